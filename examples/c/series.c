/* Prints the rows of an interval, one per line: packets, bits per second, the peak millisecond, and lost packets by cause.
 *
 *     cargo build --release -p netgrain-capi
 *     cc -std=c11 -O2 -I include examples/c/series.c -L target/release -lnetgrain \
 *        -Wl,-rpath,"$PWD/target/release" -o series
 *     ./series [--live] STORE [FROM [TO]]
 *
 * With --live it continues with new rows until Ctrl-C or TO. Exit status: 0 complete result, 1 nothing found or result
 * incomplete, 2 error. */
#include "netgrain.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static netgrain_series *series;

static void stop(int signal) {
    (void)signal;
    netgrain_series_stop(series);
}

static int fail(const netgrain_error *err) {
    fprintf(stderr, "series: %s\n", err->text);
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
        fprintf(stderr, "usage: series [--live] STORE [FROM [TO]]\n");
        return 2;
    }
    if (argc > 2 && netgrain_time(argv[2], &query.from, &err) != 0) return fail(&err);
    if (argc > 3 && netgrain_time(argv[3], &query.to, &err) != 0) return fail(&err);

    series = netgrain_series_open(argv[1], &query, &err);
    if (!series) return fail(&err);
    signal(SIGINT, stop);

    const netgrain_second *s;
    uint64_t rows = 0, packets = 0;
    int got;
    while ((got = netgrain_series_next(series, &s, &err)) > 0) {
        printf("%" PRIu64 " %s %s packets %" PRIu64 " bits %" PRIu64 " new flows %" PRIu64 " peak bytes in 1 ms %" PRIu64
               " lost %" PRIu64,
               s->second, s->interface_name, s->direction == NETGRAIN_IN ? "in" : "out", s->total.packets,
               s->total.bytes * 8, s->flows_new, s->peak_1ms.bytes, s->ledger.lost);
        /* Older versions of the library do not have these fields. */
        if (NETGRAIN_HAS(s, note_count)) {
            for (uint32_t i = 0; i < s->loss_count; i++) {
                if (s->losses[i] > 0) printf(" %s %" PRIu64, netgrain_loss_name(i), s->losses[i]);
            }
            if (s->tunnel_missing > 0) printf(" missing in tunnels %" PRIu64, s->tunnel_missing);
        }
        printf("\n");
        fflush(stdout);
        rows++;
        packets += s->total.packets;
    }
    if (got < 0) return fail(&err);
    printf("rows %" PRIu64 " packets %" PRIu64 "\n", rows, packets);
    for (size_t i = 0, n = netgrain_series_warnings(series); i < n; i++) {
        fprintf(stderr, "%s\n", netgrain_series_warning(series, i));
    }
    int complete = netgrain_series_is_complete(series);
    netgrain_series_close(series);
    return rows > 0 && complete ? 0 : 1;
}
