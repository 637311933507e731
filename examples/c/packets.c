/* Counts the packets of an interval and filter by origin, and prints the cost of the query.
 *
 *     cargo build --release -p netgrain-capi
 *     cc -std=c11 -O2 -I include examples/c/packets.c -L target/release -lnetgrain \
 *        -Wl,-rpath,"$PWD/target/release" -o packets
 *     ./packets STORE|FILE [FILTER [FROM [TO]]]
 *
 * A directory is a store; any other path is a capture file. Ctrl-C ends the query and prints the counts so far. Exit
 * status: 0 complete result, 1 nothing found or result incomplete, 2 error. */
#include "netgrain.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

enum { ORIGINS = 64 };

typedef struct counts {
    uint64_t packets[ORIGINS], bytes[ORIGINS], lost, sum;
} counts;

static netgrain *result;

static void stop(int signal) {
    (void)signal;
    netgrain_stop(result);
}

static int count(void *user, const netgrain_packet *p) {
    counts *c = user;
    uint32_t origin = p->origin < ORIGINS ? p->origin : ORIGINS - 1;
    c->packets[origin]++;
    c->bytes[origin] += p->wire_len;
    c->lost += p->lost;
    for (uint32_t i = 0; i < p->caplen; i++) c->sum += p->data[i];
    return 0;
}

static int fail(const netgrain_error *err) {
    fprintf(stderr, "packets: %s\n", err->text);
    return 2;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: packets STORE|FILE [FILTER [FROM [TO]]]\n");
        return 2;
    }
    netgrain_error err;
    netgrain_query query = NETGRAIN_QUERY_ALL;
    if (argc > 2) query.filter = argv[2];
    if (argc > 3 && netgrain_time(argv[3], &query.from, &err) != 0) return fail(&err);
    if (argc > 4 && netgrain_time(argv[4], &query.to, &err) != 0) return fail(&err);

    struct stat status;
    if (stat(argv[1], &status) == 0 && S_ISDIR(status.st_mode)) {
        result = netgrain_open_store(argv[1], &query, &err);
    } else {
        const char *files[] = {argv[1]};
        result = netgrain_open_files(files, 1, &query, &err);
    }
    if (!result) return fail(&err);
    signal(SIGINT, stop);

    static counts c;
    int64_t packets = netgrain_loop(result, 0, count, &c, &err);
    if (packets < 0) return fail(&err);

    uint64_t bytes = 0;
    for (size_t i = 0; i < netgrain_origins(result) && i < ORIGINS; i++) {
        netgrain_origin origin;
        if (netgrain_get_origin(result, i, &origin, &err) != 0) return fail(&err);
        printf("origin %zu link type %" PRIu32 " queue %" PRIu32 " packets %" PRIu64 "\n", i, origin.link_type,
               origin.queue, c.packets[i]);
        bytes += c.bytes[i];
    }
    printf("packets %" PRId64 " bytes %" PRIu64 " lost %" PRIu64 " sum %" PRIu64 "\n", packets, bytes, c.lost, c.sum);
    netgrain_cost cost;
    netgrain_get_cost(result, &cost);
    fprintf(stderr, "%" PRIu64 " of %" PRIu64 " bytes read, %" PRIu64 " packets scanned\n", cost.bytes_read, cost.bytes,
            cost.packets);
    for (size_t i = 0, n = netgrain_warnings(result); i < n; i++) fprintf(stderr, "%s\n", netgrain_warning(result, i));
    int complete = netgrain_is_complete(result);
    netgrain_close(result);
    return packets > 0 && complete ? 0 : 1;
}
