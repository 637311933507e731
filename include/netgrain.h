/* Reading packets of a netgrain store, or of capture files, by interval and filter: C99 or later, C++ too.
 *
 *     netgrain_error err;
 *     netgrain_question q = NETGRAIN_EVERYTHING;
 *     q.filter = "host 10.1.2.3 and port 53";
 *     netgrain_time("-10min", &q.from, &err);
 *     netgrain *answer = netgrain_open_store("/data/store", &q, &err);
 *     if (!answer) { fprintf(stderr, "%s\n", err.text); return 2; }
 *     netgrain_packet p;
 *     int got;
 *     while ((got = netgrain_next(answer, &p, &err)) > 0) look_at(p.data, p.caplen);
 *     if (got < 0) fprintf(stderr, "%s\n", err.text);
 *     netgrain_close(answer);
 *
 * A full program is examples/c/packets.c; docs/API.md says how to build and link. The filter's words are those of
 * docs/FILTER.md (tcpdump's, with two differences).
 *
 * Units: times are nanoseconds since 1970-01-01T00:00:00Z; lengths are bytes; link types are numbered as in pcap (1 is
 * Ethernet).
 *
 * Errors: whatever can fail takes a netgrain_error, which may be NULL, and fills it when it fails; otherwise it leaves it
 * alone. `text` is one line that names the thing and says what to do.
 *
 * Threads: an answer belongs to the thread that opened it. Different answers are independent, in one thread or in many.
 * Only netgrain_stop may be called from anywhere at any time before netgrain_close, a signal handler included. Functions
 * without an answer may be called from any thread.
 *
 * Memory: what a function lends stays good until the moment that its comment names; nothing lent is ever freed by the
 * caller. A failure inside the library never unwinds into the caller: it becomes NETGRAIN_BUG, after which the answer can
 * only be closed. Callbacks must return; they must not leave by longjmp or by a C++ exception.
 *
 * Version: NETGRAIN_API_VERSION grows when a structure or a meaning changes. A program passes the one it was compiled
 * with (NETGRAIN_EVERYTHING does), and a library of another version refuses in words instead of misreading. */
#ifndef NETGRAIN_H
#define NETGRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NETGRAIN_API_VERSION 1

/* An answer: the packets of one question, one after the other, in order of time. */
typedef struct netgrain netgrain;

/* Why something failed. */
#define NETGRAIN_ARGUMENT 1  /* an argument is NULL, no UTF-8, or of another version */
#define NETGRAIN_FILTER 2    /* the filter is not understood */
#define NETGRAIN_TIME 3      /* the time is not understood, or the interval ends before it begins */
#define NETGRAIN_INTERFACE 4 /* the store has no such interface */
#define NETGRAIN_READ 5      /* a file or folder cannot be read */
#define NETGRAIN_BUG 6       /* a bug in netgrain: please report it with the text */

#define NETGRAIN_TEXT 512

typedef struct netgrain_error {
    int32_t code;              /* NETGRAIN_ARGUMENT ... */
    char text[NETGRAIN_TEXT];  /* one line for people, ended by a NUL; cut if it is longer */
} netgrain_error;

/* Which packets are wanted. */
typedef struct netgrain_question {
    uint32_t version;              /* NETGRAIN_API_VERSION */
    uint32_t flags;                /* NETGRAIN_FOLLOW | ... */
    uint64_t from;                 /* the first moment wanted */
    uint64_t to;                   /* the last moment wanted, itself included */
    const char *filter;            /* NULL or "" for every packet */
    const char *const *interfaces; /* names of interfaces of the store; NULL with 0 for all */
    size_t interface_count;
} netgrain_question;

#define NETGRAIN_FOLLOW 1u      /* go on with packets as they arrive, until `to` or netgrain_stop */
#define NETGRAIN_NO_RING 2u     /* do not look into the memory of a running recorder, only into files */
#define NETGRAIN_STEP_BEHIND 4u /* put the calling thread behind recorders at disk and processor, for good; a remark if that fails */

/* Every packet that there is at this moment. */
#define NETGRAIN_EVERYTHING { NETGRAIN_API_VERSION, 0, 0, UINT64_MAX, NULL, NULL, 0 }

/* One packet. `data` is lent until the next call with this answer. */
typedef struct netgrain_packet {
    uint64_t ts;               /* when it arrived */
    const unsigned char *data; /* its first `caplen` bytes; never NULL */
    uint32_t caplen;           /* bytes kept */
    uint32_t wire_len;         /* bytes it had on the wire */
    uint32_t link_type;        /* how to read its first bytes */
    uint32_t origin;           /* number of its origin: netgrain_get_origin */
    uint64_t lost;             /* packets known to be lost on this origin since its packet before in this answer */
} netgrain_packet;

/* Where packets come from: a queue of an interface of the store, or an interface of a capture file. The texts are lent
 * until netgrain_close; where nothing is known they are empty, never NULL. */
typedef struct netgrain_origin {
    const char *interface_name;
    const char *filter;  /* what the recorder kept; empty for everything */
    const char *stamps;  /* who stamped the packets */
    uint32_t queue;      /* the hardware queue */
    uint32_t link_type;
    uint32_t snaplen;    /* bytes kept of each packet */
} netgrain_origin;

/* What happened on an origin, in packets: offered = stored + filtered + duplicate + lost. */
typedef struct netgrain_tally {
    uint64_t offered;
    uint64_t stored;
    uint64_t stored_bytes; /* on the wire */
    uint64_t filtered;
    uint64_t duplicate;
    uint64_t lost;         /* from all causes */
} netgrain_tally;

/* What an answer has cost so far. */
typedef struct netgrain_cost {
    uint64_t files;               /* packet files met in the interval; of foreign captures all */
    uint64_t files_skipped;       /* of these, outside of the interval or without a block that could match */
    uint64_t blocks;              /* blocks of the files that were looked at */
    uint64_t blocks_skipped_time; /* of these, skipped by time */
    uint64_t blocks_skipped_keys; /* of these, skipped because the index denies what the filter needs */
    uint64_t blocks_read;
    uint64_t bytes;               /* of these files */
    uint64_t bytes_read;          /* of packets */
    uint64_t index_bytes_read;
    uint64_t packets;             /* looked at */
    uint64_t matched;
    uint64_t from_ring;           /* taken from the memory of a running recorder */
} netgrain_cost;

/* Opens the answer of a store: its files, the file that is being written, and the ring of a running recorder as one. Names
 * are listed, and what is being written and the ring are looked into already: it may wait a moment for a running recorder.
 * `question` is copied. NULL, with `err` filled, if it cannot be done. */
netgrain *netgrain_open_store(const char *store, const netgrain_question *question, netgrain_error *err);

/* Opens the answer of capture files of anyone (pcap, pcapng, HPCAP's RAW), with an index beside them or without. Those
 * without one are read here from end to end, because nothing else tells when their packets were. */
netgrain *netgrain_open_files(const char *const *files, size_t count, const netgrain_question *question,
                              netgrain_error *err);

/* The next packet: 1 and `packet` filled, 0 at the end (or after netgrain_stop), -1 and `err` filled on failure. With
 * NETGRAIN_FOLLOW it waits. */
int netgrain_next(netgrain *answer, netgrain_packet *packet, netgrain_error *err);

/* Called for a packet, which is lent until it returns. 0 to go on, anything else to end the loop. */
typedef int (*netgrain_callback)(void *user, const netgrain_packet *packet);

/* Calls back for each packet, at most `limit` of them (0: no limit), as pcap_loop does. The number of packets that the
 * callback was given, or -1 with `err` filled. A loop that ended by its limit or its callback can be taken up again. The
 * callback must not call anything with this answer but netgrain_stop. */
int64_t netgrain_loop(netgrain *answer, uint64_t limit, netgrain_callback callback, void *user, netgrain_error *err);

/* Ends the answer: netgrain_next gives 0 from now on, also where it waits. From any thread, or a signal handler. */
void netgrain_stop(netgrain *answer);

/* Origins known by now, and one of them: 0, or -1 with `err` filled for a number that is not known. An origin is known
 * before the first packet that names it. */
size_t netgrain_origins(netgrain *answer);
int netgrain_get_origin(netgrain *answer, size_t number, netgrain_origin *origin, netgrain_error *err);

/* What happened on an origin in the seconds of the interval, so far: of files that were walked to their end or beyond that
 * of the interval. 0, or -1 with `err` filled. */
int netgrain_get_tally(netgrain *answer, size_t number, netgrain_tally *tally, netgrain_error *err);

/* What the answer has cost so far. */
void netgrain_get_cost(netgrain *answer, netgrain_cost *cost);

/* Whether everything could be read that should have been: 0 when packets may be missing, which a remark then explains. */
int netgrain_is_whole(netgrain *answer);

/* What people should know about the answer (damaged files, files without an index): how many remarks there are by now, and
 * one of them, lent until netgrain_remarks is called again; NULL for a number that there is not. */
size_t netgrain_remarks(netgrain *answer);
const char *netgrain_remark(netgrain *answer, size_t number);

/* Gives everything back. NULL is allowed. */
void netgrain_close(netgrain *answer);

/* Reads a time: 2026-11-21T10:42:00Z (any offset), 10:42 (today), 1795257720.5, now, -10min. All without a zone are UTC.
 * 0, or -1 with `err` filled. */
int netgrain_time(const char *text, uint64_t *nanos, netgrain_error *err);

/* Whether a filter is understood: 0, or -1 with `err` filled, which says where and what to write instead. */
int netgrain_check_filter(const char *filter, netgrain_error *err);

/* The version of the library for people, such as "0.1.0", and its NETGRAIN_API_VERSION. */
const char *netgrain_version(void);
uint32_t netgrain_api_version(void);

#ifdef __cplusplus
}
#endif

#endif
