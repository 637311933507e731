/* A C listener that attaches to a socket a given number of times and calls every function of the header each time.
 * Started by tests/hostile.rs; arguments: the socket, the rounds. Prints the number of successful attachments. */
#include "../../../include/netgrain_listen.h"

int main(int argc, char **argv) {
    static ngl_desc descs[1000];
    static unsigned char bytes[NGL_RECORD_MAX];
    long rounds = argc > 2 ? atol(argv[2]) : 0, welcome = 0;
    for (long i = 0; i < rounds; i++) {
        ngl_error err;
        ngl *engine = ngl_attach(argv[1], i % 2 ? NGL_LOSSLESS : NGL_LOSSY, "victim", &err);
        if (!engine) continue;
        welcome++;
        for (size_t q = 0; q < engine->rings; q++) {
            ngl_ring *r = &engine->ring[q];
            for (int turn = 0; turn < 4; turn++) {
                size_t n = ngl_next(r, descs, turn == 0 ? 1000 : 100);
                for (size_t d = 0; d < n; d++) {
                    long len = ngl_packet(r, &descs[d], bytes, sizeof bytes);
                    long all = ngl_record(r, &descs[d], bytes, sizeof bytes);
                    if (len > NGL_PACKET_MAX || all > NGL_RECORD_MAX) return 1;
                }
                (void)ngl_counts(r);
                (void)ngl_read_accounting(r);
                (void)ngl_lag(r);
                (void)ngl_ended(r);
                (void)ngl_connected(r);
                (void)ngl_expired(r);
                ngl_report(r);
            }
        }
        ngl_close(engine);
    }
    printf("%ld\n", welcome);
    return 0;
}
