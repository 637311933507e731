/* Prints the flow records of an interval and filter, one per line, and their sums.
 *
 *     cargo build --release -p netgrain-capi
 *     cc -std=c11 -O2 -I include examples/c/flows.c -L target/release -lnetgrain \
 *        -Wl,-rpath,"$PWD/target/release" -o flows
 *     ./flows [--live] STORE [FILTER [FROM [TO]]]
 *
 * With --live it continues with new records until Ctrl-C or TO. Exit status: 0 complete result, 1 nothing found or result
 * incomplete, 2 error. */
#include "netgrain.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct sums {
    uint64_t packets, bytes;
} sums;

static netgrain_flows *flows;

static void stop(int signal) {
    (void)signal;
    netgrain_flows_stop(flows);
}

static int show(void *user, const netgrain_flow *f) {
    sums *s = user;
    const netgrain_direction *forward = &f->directions[0], *reverse = &f->directions[1];
    char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
    int family = f->ip_version == 4 ? AF_INET : AF_INET6;
    inet_ntop(family, f->src, src, sizeof src);
    inet_ntop(family, f->dst, dst, sizeof dst);
    printf("%" PRIu64 " %" PRIu32 " %s %" PRIu64 " %" PRIu64 " protocol %d %s %d %s %d packets %" PRIu64 " %" PRIu64
           " bytes %" PRIu64 " %" PRIu64 " end %d",
           f->id, f->record_index, f->interface_name, f->first, f->last, f->protocol, src, f->src_port, dst, f->dst_port,
           forward->packets, reverse->packets, forward->bytes, reverse->bytes, f->end_reason);
    /* Older versions of the library do not have these fields. */
    for (int i = 0; i < 2 && NETGRAIN_HAS(f, tunnel_seq_last); i++) {
        if (f->tunnel_seq_first[i] == NETGRAIN_NONE) continue;
        printf(" tunnel %s %" PRIu64 " to %" PRIu64, i == 0 ? "forward" : "reverse",
               f->tunnel_seq_first[i], f->tunnel_seq_last[i]);
    }
    printf("\n");
    fflush(stdout);
    s->packets += forward->packets + reverse->packets;
    s->bytes += forward->bytes + reverse->bytes;
    return 0;
}

static int fail(const netgrain_error *err) {
    fprintf(stderr, "flows: %s\n", err->text);
    return 2;
}

int main(int argc, char **argv) {
    netgrain_error err;
    netgrain_query query = NETGRAIN_QUERY_ALL;
    if (argc > 1 && strcmp(argv[1], "--live") == 0) {
        query.flags |= NETGRAIN_FOLLOW;
        argc--, argv++;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: flows [--live] STORE [FILTER [FROM [TO]]]\n");
        return 2;
    }
    if (argc > 2) query.filter = argv[2];
    if (argc > 3 && netgrain_time(argv[3], &query.from, &err) != 0) return fail(&err);
    if (argc > 4 && netgrain_time(argv[4], &query.to, &err) != 0) return fail(&err);

    flows = netgrain_flows_open(argv[1], &query, 0, &err);
    if (!flows) return fail(&err);
    signal(SIGINT, stop);

    sums s = {0, 0};
    int64_t records = netgrain_flows_loop(flows, 0, show, &s, &err);
    if (records < 0) return fail(&err);
    printf("records %" PRId64 " packets %" PRIu64 " bytes %" PRIu64 "\n", records, s.packets, s.bytes);
    for (size_t i = 0, n = netgrain_flows_warnings(flows); i < n; i++) {
        fprintf(stderr, "%s\n", netgrain_flows_warning(flows, i));
    }
    int complete = netgrain_flows_is_complete(flows);
    netgrain_flows_close(flows);
    return records > 0 && complete ? 0 : 1;
}
