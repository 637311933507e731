/* Counts the packets of a netgrain engine, and the packets that this listener missed.
 *
 *     cc -std=c11 -O2 -I include examples/c/count.c -o count
 *     ./count SOCKET [lossy|lossless]
 *
 * Prints one line per second to stdout, and a last line at the end of the stream. Ends with the engine. */
#include "netgrain_listen.h"

#include <inttypes.h>

enum { BATCH = 256 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: count SOCKET [lossy|lossless]\n");
        return 2;
    }
    ngl_error err;
    ngl_mode mode = argc > 2 && strcmp(argv[2], "lossless") == 0 ? NGL_LOSSLESS : NGL_LOSSY;
    ngl *engine = ngl_attach(argv[1], mode, "count", &err);
    if (!engine) {
        fprintf(stderr, "%s: %s\n", argv[1], err.text);
        return 2;
    }
    static unsigned char bytes[NGL_PACKET_MAX];
    ngl_desc descs[BATCH];
    uint64_t packets = 0, octets = 0, overwritten = 0, sum = 0;
    double last = now();
    for (size_t open = engine->rings; open > 0;) {
        size_t got = 0;
        open = 0;
        for (size_t q = 0; q < engine->rings; q++) {
            ngl_ring *ring = &engine->ring[q];
            size_t n = ngl_next(ring, descs, BATCH);
            for (size_t i = 0; i < n; i++) {
                if (!ngl_is_packet(&descs[i])) continue;
                long len = ngl_packet(ring, &descs[i], bytes, sizeof bytes);
                if (len < 0) overwritten++;
                for (long b = 0; b < len; b++) sum += bytes[b];
                packets++;
                octets += descs[i].wire_len;
            }
            got += n;
            /* After the end of the engine, the descriptors that it has published can still be read. */
            if (!ngl_ended(ring) && (n > 0 || ngl_connected(ring) || ngl_lag(ring) > 0)) open++;
        }
        double t = now();
        if (t - last >= 1.0 || open == 0) {
            uint64_t missed = 0;
            for (size_t q = 0; q < engine->rings; q++) {
                missed += ngl_counts(&engine->ring[q]).missed;
                ngl_report(&engine->ring[q]);
            }
            printf("packets %" PRIu64 " bytes %" PRIu64 " missed %" PRIu64 " overwritten %" PRIu64 " sum %" PRIu64 "\n",
                   packets, octets, missed, overwritten, sum);
            fflush(stdout);
            last = t;
        }
        if (got == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    ngl_close(engine);
    return 0;
}
