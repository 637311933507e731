/* Listens to a running netgrain engine from C (C11) or C++ (C++11): a single header that needs only libc.
 *
 *     ngl_error err;
 *     ngl *engine = ngl_attach("/run/netgrain/eth1.sock", NGL_LOSSY, "my tool", &err);
 *     if (!engine) { fprintf(stderr, "%s\n", err.text); return 2; }
 *     ngl_desc descs[256];
 *     static unsigned char bytes[NGL_PACKET_MAX];
 *     for (size_t n; !ngl_ended(&engine->ring[0]); ) {
 *         n = ngl_next(&engine->ring[0], descs, 256);
 *         for (size_t i = 0; i < n; i++) {
 *             if (!ngl_is_packet(&descs[i])) continue;
 *             long len = ngl_packet(&engine->ring[0], &descs[i], bytes, sizeof bytes);
 *             if (len >= 0) process(bytes, (size_t)len);
 *         }
 *         if (n == 0) sleep_briefly();
 *     }
 *     ngl_close(engine);
 *
 * A complete program is examples/c/count.c. The rings of the engine (one per queue) are mapped read-only, so a failing
 * listener can damage neither the rings nor other listeners. The producer overtakes a *lossy* listener that is too slow;
 * the number of packets that the listener missed is exact (ngl_counts). The producer never overtakes a *lossless* listener:
 * while the listener does not call ngl_next, the engine waits and loses packets. So attach losslessly only if every packet
 * is necessary.
 *
 * Races are prevented as in the Rust listener (crates/ring/src/protocol.rs): copy with relaxed atomic loads, then an acquire
 * fence, then read how far the producer has claimed the ring, and discard the copies of data that may have been overwritten.
 * Layout and attach protocol are those of crates/ring/src/layout.rs and attach.rs; a test compares the numbers.
 *
 * Each ring may be used by one thread at a time. Include this header before other headers, or define _DEFAULT_SOURCE for the
 * whole program. */
#ifndef NETGRAIN_LISTEN_H
#define NETGRAIN_LISTEN_H

#if !defined(_DEFAULT_SOURCE) && !defined(_GNU_SOURCE)
#define _DEFAULT_SOURCE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef MAP_ANONYMOUS
#error "include netgrain_listen.h before other headers, or define _DEFAULT_SOURCE for the whole program"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring is laid out for little-endian machines"
#endif

#ifdef __cplusplus
#include <atomic>
typedef std::atomic<uint64_t> ngl_word;
typedef std::atomic<unsigned char> ngl_byte;
#define NGL_RELAXED std::memory_order_relaxed
#define NGL_ACQUIRE std::memory_order_acquire
#define NGL_RELEASE std::memory_order_release
#else
#include <stdatomic.h>
typedef _Atomic uint64_t ngl_word;
typedef _Atomic unsigned char ngl_byte;
#define NGL_RELAXED memory_order_relaxed
#define NGL_ACQUIRE memory_order_acquire
#define NGL_RELEASE memory_order_release
#endif

/* ---- Types of the interface --------------------------------------------------------------------------------------- */

/* A descriptor: a packet, or with NGL_FLAG_CONTROL another event at this position of the stream. */
typedef struct ngl_desc {
    uint64_t annotated_pos; /* see ngl_pos, ngl_timestamp_method, ngl_duplicate_class; of a control event, see ngl_number */
    uint64_t ts;       /* nanoseconds since 1970 (UTC) */
    uint32_t hash;     /* keyed symmetric flow hash; 0 without a flow */
    uint32_t mark;     /* set by programs; in a control descriptor, its kind */
    uint16_t caplen;   /* bytes stored */
    uint16_t wire_len; /* bytes on the wire; 65535 means 65535 or more, and the record header has the exact number */
    uint8_t queue;     /* queue number, modulo 256 */
    uint8_t flags;     /* NGL_FLAG_... */
    uint8_t l3;        /* offset of the network header in the packet; 0 if there is none within 255 bytes */
    uint8_t l4;        /* offset of the transport header, likewise */
} ngl_desc;

#define NGL_FLAG_CONTROL 1       /* not a packet */
#define NGL_FLAG_TRUNCATED 2     /* fewer bytes are stored than were on the wire */
#define NGL_FLAG_MALFORMED 4     /* a header contradicts its length */
#define NGL_FLAG_SUPER_FRAME 8   /* merged by the NIC or the kernel */
#define NGL_FLAG_VLAN_RESTORED 16 /* a VLAN tag that the kernel had removed was restored */
#define NGL_FLAG_OUTGOING 32     /* sent by this host */
#define NGL_FLAG_CLAMPED 64      /* the timestamp was raised to that of the packet before */
#define NGL_FLAG_WIRE_RAISED 128  /* the wire length of the capture was below the caplen and was raised to it */

/* Kinds of control descriptors, in ngl_desc.mark. */
#define NGL_KIND_SEGMENT 1  /* a new segment begins at stream position ngl_number; the segment before ended `hash` bytes earlier */
#define NGL_KIND_LOST 2     /* ngl_number packets were lost: loss cause in l3, slot of the lossless reader (if any) in l4 */
#define NGL_KIND_FILTERED 3 /* ngl_number packets did not match the capture filter */
#define NGL_KIND_TICK 4     /* the time has reached the second of ts */
#define NGL_KIND_END 5      /* end of the stream */
#define NGL_KIND_PROGRAM 6  /* in a branch: generation ngl_number of the group's program evaluated the packets that follow */
#define NGL_KIND_DUPLICATE 7 /* ngl_number packets were removed as duplicates */
#define NGL_KIND_TIMESTAMPS 8 /* quality of the timestamps of the second of ts: in ngl_number the estimated standard deviation in ns
                                 (lower half, 0: not known) and the maximum error of the system clock in us (upper half); in l3 bit 0:
                                 the state of the clock is known, bit 1: synchronised; in hash the correction of its rate in ppb (signed) */
#define NGL_KIND_CLOCK_STEP 9 /* the system clock was set to ts, `hash` times, by the sum of ngl_number nanoseconds (signed) */

/* Methods that made the timestamp of a packet; see ngl_timestamp_method. */
#define NGL_METHOD_UNKNOWN 0
#define NGL_METHOD_POLL 1     /* the engine thread read its clock when it took the packet */
#define NGL_METHOD_BATCH 2    /* the engine thread read its clock once for the batch */
#define NGL_METHOD_UDTS 3     /* the time between two batches, divided equally between the packets */
#define NGL_METHOD_WDTS 4     /* the time between two batches, divided by the lengths of the packets on the wire */
#define NGL_METHOD_KERNEL 5
#define NGL_METHOD_HARDWARE 6 /* the NIC */
#define NGL_METHOD_FILE 7     /* the capture file */
#define NGL_METHOD_TRAILER 8  /* the trailer that an aggregation switch added to the frame */
#define NGL_METHOD_SCHEDULE 9 /* the schedule of the simulator */

/* Classes of duplicate packets; see ngl_duplicate_class. 0 means that the packet is no duplicate. */
#define NGL_DUPLICATE_SWITCHING 1
#define NGL_DUPLICATE_ROUTING 2
#define NGL_DUPLICATE_NAT 3
#define NGL_DUPLICATE_PROXYING 4
#define NGL_DUPLICATE_FRAGMENT 5

#define NGL_RECORD_HEADER 16           /* bytes of the nanosecond-pcap record header before each packet */
#define NGL_PACKET_MAX 65535           /* greatest number of bytes of a packet; a buffer of this size always suffices */
#define NGL_RECORD_MAX (NGL_RECORD_HEADER + NGL_PACKET_MAX)
#define NGL_CAUSES 32                  /* greatest number of loss causes, numbered as in spec/events.toml */

typedef enum ngl_mode { NGL_LOSSY = 0, NGL_LOSSLESS = 1 } ngl_mode;

typedef enum ngl_failure {
    NGL_UNREACHABLE = 1, /* no engine listens at the path, or the path cannot be reached */
    NGL_REFUSED = 2,     /* the engine rejected the listener; text has its reason */
    NGL_PROTOCOL = 3,    /* the engine violated the protocol */
    NGL_MEMORY = 4       /* the memory could not be mapped */
} ngl_failure;

/* The reason why attaching failed, as a number and as one line of text. */
typedef struct ngl_error {
    ngl_failure failure;
    char text[256];
} ngl_error;

/* Packet counters of one listener on one ring. */
typedef struct ngl_count {
    uint64_t published; /* published since the listener joined */
    uint64_t seen;      /* returned by ngl_next */
    uint64_t missed;    /* overwritten before the listener read them */
    uint64_t waiting;   /* not yet read */
} ngl_count;

/* The accounting of a ring by the engine: offered = stored + filtered + duplicate + the sum of lost. */
typedef struct ngl_accounting {
    uint64_t offered, stored, stored_bytes, filtered, duplicate;
    uint64_t lost[NGL_CAUSES];
} ngl_accounting;

/* One ring. Programs may read the fields up to `mode`; the other fields are private. */
typedef struct ngl_ring {
    char name[65]; /* interface, file or simulation */
    uint32_t link_type, snaplen;
    uint16_t queue;
    ngl_mode mode;

    uint64_t bytes_len, descs_len; /* capacities: bytes, and number of descriptors; powers of two */
    unsigned char *bytes, *descs, *control, *cursor;
    size_t bytes_mapped, descs_mapped, control_mapped, cursor_mapped;
    uint64_t next, end, start, start_controls, seen_descs, seen_controls, settled_head, settled_controls;
    int socket;
} ngl_ring;

/* An attached engine. */
typedef struct ngl {
    size_t rings;
    ngl_ring *ring;
    int socket;
} ngl;

/* ---- Layout and protocol, as in crates/ring/src/layout.rs and attach.rs ------------------------------------------- */

#define NGL_MAGIC UINT64_C(0x0031474e4952474e) /* "NGRING1\0" */
#define NGL_VERSION 2
#define NGL_PAGE 4096
#define NGL_NAME 64
#define NGL_DESC_BYTES 32
#define NGL_BLOCK (UINT64_C(1) << 20)
#define NGL_BYTES_MAX (UINT64_C(1) << 40)

#define NGL_AT_MAGIC 0
#define NGL_AT_VERSION 8
#define NGL_AT_BYTES_LEN 16
#define NGL_AT_DESCS 24
#define NGL_AT_LINK_TYPE 32
#define NGL_AT_SNAPLEN 40
#define NGL_AT_QUEUE 48
#define NGL_AT_HEAD 64
#define NGL_AT_CONTROLS_BEFORE 72
#define NGL_AT_ENDED 80
#define NGL_AT_CONTROLS_AFTER 88
#define NGL_AT_CLAIMED_DESC 128
#define NGL_AT_CLAIMED_POS 136
#define NGL_AT_OFFERED 192
#define NGL_AT_STORED 200
#define NGL_AT_STORED_BYTES 208
#define NGL_AT_FILTERED 216
#define NGL_AT_DUPLICATE 224
#define NGL_AT_LOST 256
#define NGL_AT_NOTES 512
#define NGL_AT_NAME 1024
#define NGL_AT_RELEASED_DESC 0
#define NGL_AT_RELEASED_POS 8
#define NGL_AT_SEEN 16
#define NGL_AT_MISSED 24
#define NGL_AT_EXPIRED 64

#define NGL_HELLO (24 + NGL_NAME)
#define NGL_ACCEPT 128
#define NGL_RING 40
#define NGL_RINGS_MAX 256
#define NGL_HUGE_PAGE ((size_t)2 << 20)
#define NGL_HUGETLBFS_ 0x958458f6u
/* F_GET_SEALS, F_SEAL_SHRINK, and F_SEAL_WRITE with F_SEAL_FUTURE_WRITE, which fcntl.h has only with _GNU_SOURCE. */
#define NGL_GET_SEALS_ 1034
#define NGL_SEAL_SHRINK_ 0x02
#define NGL_SEAL_WRITES_ 0x18

static inline uint64_t ngl_load_(const unsigned char *page, size_t at) {
    return atomic_load_explicit((ngl_word *)(page + at), NGL_RELAXED);
}

static inline uint64_t ngl_acquire_(const unsigned char *page, size_t at) {
    return atomic_load_explicit((ngl_word *)(page + at), NGL_ACQUIRE);
}

static inline void ngl_store_(unsigned char *page, size_t at, uint64_t value) {
    atomic_store_explicit((ngl_word *)(page + at), value, NGL_RELAXED);
}

static inline uint64_t ngl_min_(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t ngl_max_(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t ngl_minus_(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static inline uint64_t ngl_plus_(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

static inline int ngl_is_packet(const ngl_desc *d) { return (d->flags & NGL_FLAG_CONTROL) == 0; }

/* The stream position of the packet's pcap record header: the low 56 bits of annotated_pos. Only for packets. */
static inline uint64_t ngl_pos(const ngl_desc *d) { return d->annotated_pos & ((UINT64_C(1) << 56) - 1); }

/* The method that made the timestamp of the packet: NGL_METHOD_... Only for packets. */
static inline unsigned ngl_timestamp_method(const ngl_desc *d) { return (unsigned)(d->annotated_pos >> 56) & 15; }

/* The class of a duplicate packet: NGL_DUPLICATE_..., or 0 if the packet is no duplicate. Only for packets. */
static inline unsigned ngl_duplicate_class(const ngl_desc *d) { return (unsigned)(d->annotated_pos >> 60) & 7; }

/* The number of a control event; its meaning depends on the kind, see NGL_KIND_... */
static inline uint64_t ngl_number(const ngl_desc *d) { return d->annotated_pos; }

/* Copies a descriptor. The copy is valid only if ngl_oldest_desc_, called after the copy, returns at most `index`. */
static inline ngl_desc ngl_load_desc_(const ngl_ring *r, uint64_t index) {
    const unsigned char *slot = r->descs + (size_t)(index & (r->descs_len - 1)) * NGL_DESC_BYTES;
    uint64_t words[4];
    ngl_desc d;
    for (size_t i = 0; i < 4; i++) words[i] = ngl_load_(slot, 8 * i);
    memcpy(&d, words, sizeof d);
    return d;
}

/* Returns the index of the oldest descriptor that the producer has not overwritten. Must be called after the copy that it
 * verifies; ngl_oldest_pos_ does the same for the stream position of the oldest byte. */
static inline uint64_t ngl_oldest_desc_(const ngl_ring *r) {
    atomic_thread_fence(NGL_ACQUIRE);
    return ngl_minus_(ngl_load_(r->control, NGL_AT_CLAIMED_DESC), r->descs_len);
}

static inline uint64_t ngl_oldest_pos_(const ngl_ring *r) {
    atomic_thread_fence(NGL_ACQUIRE);
    return ngl_minus_(ngl_load_(r->control, NGL_AT_CLAIMED_POS), r->bytes_len);
}

/* Releases the descriptors that were returned before (the producer waits for this release of a lossless listener), and copies
 * up to `most` of the next descriptors; returns their number. 0 means that there is no new descriptor, or that the producer
 * has overtaken the listener, which then skipped forward. */
static inline size_t ngl_next(ngl_ring *r, ngl_desc *out, size_t most) {
    uint64_t head, to, oldest;
    size_t n = 0;
    atomic_store_explicit((ngl_word *)(r->cursor + NGL_AT_RELEASED_DESC), r->next, NGL_RELEASE);
    atomic_store_explicit((ngl_word *)(r->cursor + NGL_AT_RELEASED_POS), r->end, NGL_RELEASE);
    head = ngl_acquire_(r->control, NGL_AT_HEAD);
    to = ngl_max_(ngl_min_(head, ngl_plus_(r->next, ngl_min_(most, r->descs_len))), r->next);
    for (uint64_t i = r->next; i < to; i++) out[n++] = ngl_load_desc_(r, i);
    oldest = ngl_oldest_desc_(r);
    if (oldest > r->next) {
        /* Overtaken: the copies are invalid. Skip so far that the producer does not overtake the listener again at once. */
        head = ngl_acquire_(r->control, NGL_AT_HEAD);
        r->next = ngl_max_(ngl_min_(ngl_plus_(oldest, r->descs_len / 4), head), r->next);
        return 0;
    }
    r->next = to;
    r->seen_descs += n;
    for (size_t i = 0; i < n; i++) {
        if (ngl_is_packet(&out[i])) r->end = ngl_pos(&out[i]) + NGL_RECORD_HEADER + out[i].caplen;
        else r->seen_controls++;
    }
    return n;
}

/* Copies `len` bytes of the stream; returns 1 if they were not overwritten during the copy. */
static inline int ngl_copy_(const ngl_ring *r, uint64_t pos, unsigned char *to, size_t len) {
    const unsigned char *from = r->bytes + (size_t)(pos & (r->bytes_len - 1));
    size_t i = 0;
    /* Bytes up to the first aligned word, then words, then the remaining bytes. The memory is mapped twice in a row, so every
     * range is contiguous. */
    for (; i < len && ((uintptr_t)(from + i) & 7) != 0; i++)
        to[i] = atomic_load_explicit((ngl_byte *)(from + i), NGL_RELAXED);
    for (; i + 8 <= len; i += 8) {
        uint64_t word = ngl_load_(from, i);
        memcpy(to + i, &word, 8);
    }
    for (; i < len; i++) to[i] = atomic_load_explicit((ngl_byte *)(from + i), NGL_RELAXED);
    return ngl_oldest_pos_(r) <= pos;
}

/* Copies at most `size` bytes of a packet. Returns their number, or -1 if they were overwritten during the copy. */
static inline long ngl_packet(const ngl_ring *r, const ngl_desc *d, void *to, size_t size) {
    size_t len = d->caplen < size ? d->caplen : size;
    return ngl_copy_(r, ngl_pos(d) + NGL_RECORD_HEADER, (unsigned char *)to, len) ? (long)len : -1;
}

/* As ngl_packet, with the nanosecond-pcap record header before the packet, as in a pcap file. */
static inline long ngl_record(const ngl_ring *r, const ngl_desc *d, void *to, size_t size) {
    size_t all = (size_t)NGL_RECORD_HEADER + d->caplen, len = all < size ? all : size;
    return ngl_copy_(r, ngl_pos(d), (unsigned char *)to, len) ? (long)len : -1;
}

/* Reads the head and the number of control descriptors that the producer stored together. The producer stores the two numbers
 * nanoseconds apart, so the first 1000 attempts follow each other at once. If the producer was preempted between the two
 * stores, the later attempts sleep, so that the producer can run. Returns 0 if the producer ended between the two stores. */
static inline int ngl_settled_(const ngl_ring *r, uint64_t *head, uint64_t *controls) {
    for (int i = 0; i < 1100; i++) {
        struct timespec pause = {0, 1000000};
        uint64_t before;
        if (i >= 1000) nanosleep(&pause, NULL);
        *controls = ngl_acquire_(r->control, NGL_AT_CONTROLS_AFTER);
        *head = ngl_acquire_(r->control, NGL_AT_HEAD);
        before = ngl_load_(r->control, NGL_AT_CONTROLS_BEFORE);
        if (before == *controls) return 1;
    }
    return 0;
}

/* The packet counters of this listener, exact as of the latest complete publication. */
static inline ngl_count ngl_counts(ngl_ring *r) {
    uint64_t head, controls, from, to;
    ngl_count c;
    if (ngl_settled_(r, &head, &controls)) {
        r->settled_head = head;
        r->settled_controls = controls;
    }
    head = r->settled_head;
    c.published = ngl_minus_(ngl_minus_(head, r->start), ngl_minus_(r->settled_controls, r->start_controls));
    c.seen = r->seen_descs - r->seen_controls;
    c.waiting = 0;
    from = ngl_max_(r->next, ngl_oldest_desc_(r));
    to = ngl_min_(head, ngl_plus_(from, r->descs_len));
    for (uint64_t i = from; i < to; i++) {
        ngl_desc d = ngl_load_desc_(r, i);
        if (ngl_is_packet(&d)) c.waiting++;
    }
    c.missed = ngl_minus_(c.published, c.seen + c.waiting);
    return c;
}

/* Reports the counters of this listener to the engine, which shows them in its tables. Call it from time to time. */
static inline void ngl_report(ngl_ring *r) {
    ngl_count c = ngl_counts(r);
    ngl_store_(r->cursor, NGL_AT_SEEN, c.seen);
    ngl_store_(r->cursor, NGL_AT_MISSED, c.missed);
}

/* The engine's counters. */
static inline ngl_accounting ngl_read_accounting(const ngl_ring *r) {
    ngl_accounting b;
    b.offered = ngl_load_(r->control, NGL_AT_OFFERED);
    b.stored = ngl_load_(r->control, NGL_AT_STORED);
    b.stored_bytes = ngl_load_(r->control, NGL_AT_STORED_BYTES);
    b.filtered = ngl_load_(r->control, NGL_AT_FILTERED);
    b.duplicate = ngl_load_(r->control, NGL_AT_DUPLICATE);
    for (size_t i = 0; i < NGL_CAUSES; i++) b.lost[i] = ngl_load_(r->control, NGL_AT_LOST + 8 * i);
    return b;
}

/* Number of published descriptors that the listener has not read. */
static inline uint64_t ngl_lag(const ngl_ring *r) { return ngl_minus_(ngl_acquire_(r->control, NGL_AT_HEAD), r->next); }

/* Returns 1 if the producer has finished and ngl_next has returned all published descriptors. */
static inline int ngl_ended(const ngl_ring *r) {
    return ngl_acquire_(r->control, NGL_AT_ENDED) != 0 && ngl_lag(r) == 0;
}

/* Returns 1 while the engine runs: it sends nothing after the welcome message, so a readable socket is closed. */
static inline int ngl_connected(const ngl_ring *r) {
    struct pollfd p;
    p.fd = r->socket;
    p.events = POLLIN;
    p.revents = 0;
    return poll(&p, 1, 0) == 0;
}

/* Returns 1 if the producer no longer waits for this lossless listener, because it released nothing within the reader
 * timeout. */
static inline int ngl_expired(const ngl_ring *r) { return ngl_acquire_(r->cursor, NGL_AT_EXPIRED) != 0; }

/* ---- Attaching ---------------------------------------------------------------------------------------------------- */

static inline void ngl_put_(unsigned char *to, uint64_t value) { memcpy(to, &value, 8); }

static inline uint64_t ngl_get_(const unsigned char *from) {
    uint64_t value;
    memcpy(&value, from, 8);
    return value;
}

static inline int ngl_fail_(ngl_error *err, ngl_failure failure, const char *what, const char *why) {
    if (err) {
        err->failure = failure;
        snprintf(err->text, sizeof err->text, "%s%s", what, why);
    }
    return 0;
}

/* Receives one message of exactly `want` bytes and up to 4 file descriptors (in fds; -1 for each missing one). */
static inline int ngl_receive_(int sock, unsigned char *to, size_t want, int fds[4], ngl_error *err) {
    union {
        struct cmsghdr align;
        unsigned char space[CMSG_SPACE(16 * sizeof(int))];
    } control;
    struct iovec iov;
    struct msghdr msg;
    struct cmsghdr *c;
    ssize_t n;
    memset(&control, 0, sizeof control);
    memset(&msg, 0, sizeof msg);
    iov.iov_base = to;
    iov.iov_len = want;
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = &control;
    msg.msg_controllen = sizeof control;
    for (int i = 0; i < 4; i++) fds[i] = -1;
    n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0) return ngl_fail_(err, NGL_UNREACHABLE, "no engine listens on this socket: ", strerror(errno));
    for (c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (i < 4 && fds[i] < 0) fds[i] = fd;
            else close(fd);
        }
    }
    if ((size_t)n != want || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return ngl_fail_(err, NGL_PROTOCOL, "the engine's response is invalid: ", "a message is malformed");
    return 1;
}

/* Maps `len` bytes `times` times back to back; returns NULL and sets errno if the kernel rejects the mapping. */
static inline unsigned char *ngl_map_(int fd, uint64_t len, size_t times, int prot, size_t *mapped) {
    size_t all = (size_t)len * times, reserved = all + NGL_HUGE_PAGE;
    struct stat st;
    struct statfs fs;
    unsigned char *area, *start;
    int seals;
    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0) return NULL;
    if ((uint64_t)st.st_size < len) {
        errno = ENODATA;
        return NULL;
    }
    /* Without these seals the owner could truncate the memory or punch holes into it; the next access would be a bus error. */
    seals = fcntl(fd, NGL_GET_SEALS_);
    if (seals < 0 || (seals & NGL_SEAL_SHRINK_) == 0 || ((prot & PROT_WRITE) == 0 && (seals & NGL_SEAL_WRITES_) == 0)) {
        errno = EPERM;
        return NULL;
    }
    /* The kernel maps only whole huge pages, which would extend beyond the reservation. */
    if ((uint32_t)fs.f_type == NGL_HUGETLBFS_ && (fs.f_bsize <= 0 || len % (uint64_t)fs.f_bsize != 0)) {
        errno = EINVAL;
        return NULL;
    }
    /* The reservation makes the mappings adjacent and aligned to a huge page. */
    area = (unsigned char *)mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == (unsigned char *)MAP_FAILED) return NULL;
    start = area + (NGL_HUGE_PAGE - ((uintptr_t)area & (NGL_HUGE_PAGE - 1))) % NGL_HUGE_PAGE;
    if (start > area) munmap(area, (size_t)(start - area));
    if (area + reserved > start + all) munmap(start + all, (size_t)(area + reserved - (start + all)));
    for (size_t i = 0; i < times; i++) {
        if (mmap(start + i * (size_t)len, (size_t)len, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            /* The kernel may already have unmapped this part of the reservation, and another thread may have mapped it since:
             * only the parts before and after it certainly belong to this mapping. */
            int why = errno;
            if (i > 0) munmap(start, i * (size_t)len);
            if (i + 1 < times) munmap(start + (i + 1) * (size_t)len, (times - i - 1) * (size_t)len);
            errno = why;
            return NULL;
        }
    }
    *mapped = all;
    return start;
}

static inline int ngl_is_valid_size_(uint64_t n, uint64_t least) {
    return (n & (n - 1)) == 0 && n >= least && n <= NGL_BYTES_MAX;
}

/* Maps a ring from its four file descriptors; after a failure ngl_close unmaps it. */
static inline int ngl_open_ring_(ngl_ring *r, const int fds[4], const unsigned char *message, ngl_error *err) {
    const char *form = "the engine's response is invalid: ", *map = "the shared ring cannot be mapped: ";
    uint64_t head, controls, desc = ngl_get_(message + 16), descs;
    for (int i = 0; i < 4; i++)
        if (fds[i] < 0) return ngl_fail_(err, NGL_PROTOCOL, form, "a Ring message does not carry four file descriptors");
    r->control = ngl_map_(fds[2], NGL_PAGE, 1, PROT_READ, &r->control_mapped);
    if (!r->control) return ngl_fail_(err, NGL_MEMORY, map, strerror(errno));
    if (ngl_load_(r->control, NGL_AT_MAGIC) != NGL_MAGIC || ngl_load_(r->control, NGL_AT_VERSION) != NGL_VERSION)
        return ngl_fail_(err, NGL_PROTOCOL, form, "the ring is not of this version of netgrain");
    r->bytes_len = ngl_load_(r->control, NGL_AT_BYTES_LEN);
    r->descs_len = descs = ngl_load_(r->control, NGL_AT_DESCS);
    if (!ngl_is_valid_size_(r->bytes_len, NGL_BLOCK) || descs > NGL_BYTES_MAX / NGL_DESC_BYTES ||
        !ngl_is_valid_size_(descs * NGL_DESC_BYTES, NGL_PAGE))
        return ngl_fail_(err, NGL_PROTOCOL, form, "the size of the ring is out of range");
    if (ngl_get_(message) != r->bytes_len || ngl_get_(message + 8) != descs)
        return ngl_fail_(err, NGL_PROTOCOL, form, "the sizes of the ring in the message and in the control page differ");
    r->link_type = (uint32_t)ngl_load_(r->control, NGL_AT_LINK_TYPE);
    r->snaplen = (uint32_t)ngl_load_(r->control, NGL_AT_SNAPLEN);
    r->queue = (uint16_t)ngl_load_(r->control, NGL_AT_QUEUE);
    for (size_t i = 0; i < NGL_NAME; i += 8) {
        uint64_t word = ngl_load_(r->control, NGL_AT_NAME + i);
        memcpy(r->name + i, &word, 8);
    }
    r->name[NGL_NAME] = 0;
    r->bytes = ngl_map_(fds[0], r->bytes_len, 2, PROT_READ, &r->bytes_mapped);
    if (r->bytes) r->descs = ngl_map_(fds[1], descs * NGL_DESC_BYTES, 2, PROT_READ, &r->descs_mapped);
    if (r->descs) r->cursor = ngl_map_(fds[3], NGL_PAGE, 1, PROT_READ | PROT_WRITE, &r->cursor_mapped);
    if (!r->cursor) return ngl_fail_(err, NGL_MEMORY, map, strerror(errno));

    /* The numbers contradict each other only if the producer ended during a publication; then nothing more is published. */
    ngl_settled_(r, &head, &controls);
    r->settled_head = r->start = r->next = head;
    r->settled_controls = r->start_controls = controls;
    if (r->mode == NGL_LOSSLESS && desc <= head && head - desc <= descs) {
        /* A lossless listener begins at the position that the producer assigned, which may be before the current head. */
        for (uint64_t i = desc; i < head; i++) {
            ngl_desc d = ngl_load_desc_(r, i);
            if (!ngl_is_packet(&d)) r->start_controls = ngl_minus_(r->start_controls, 1);
        }
        r->start = r->next = desc;
        r->end = ngl_get_(message + 24);
    }
    return 1;
}

/* Detaches. The engine notices the end of the connection, as when the process ends. NULL is allowed. */
static inline void ngl_close(ngl *e) {
    if (!e) return;
    for (size_t i = 0; i < e->rings; i++) {
        ngl_ring *r = &e->ring[i];
        if (r->bytes) munmap(r->bytes, r->bytes_mapped);
        if (r->descs) munmap(r->descs, r->descs_mapped);
        if (r->control) munmap(r->control, r->control_mapped);
        if (r->cursor) munmap(r->cursor, r->cursor_mapped);
    }
    if (e->socket >= 0) close(e->socket);
    free(e->ring);
    free(e);
}

/* Sends the hello message and receives the rings; returns 0 and sets *err on failure. */
static inline int ngl_handshake_(ngl *e, const char *path, ngl_mode mode, const char *name, ngl_error *err) {
    const char *unreachable = "no engine listens on this socket: ";
    struct timeval timeout = {10, 0};
    struct sockaddr_un addr;
    unsigned char hello[NGL_HELLO] = {0}, welcome[NGL_ACCEPT], message[NGL_RING];
    int fds[4], ok = 1;
    size_t len = name ? strlen(name) : 0;
    uint64_t rings;
    memset(&addr, 0, sizeof addr);
    addr.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof addr.sun_path)
        return ngl_fail_(err, NGL_UNREACHABLE, unreachable, "the path of the socket is too long");
    memcpy(addr.sun_path, path, strlen(path));
    e->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (e->socket < 0 || connect(e->socket, (struct sockaddr *)&addr, sizeof addr) != 0 ||
        setsockopt(e->socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0)
        return errno == EACCES
                   ? ngl_fail_(err, NGL_UNREACHABLE, "permission denied on the engine's socket; ",
                               "run as its owner or a member of its group")
                   : ngl_fail_(err, NGL_UNREACHABLE, unreachable, strerror(errno));
    ngl_put_(hello, NGL_MAGIC);
    ngl_put_(hello + 8, NGL_VERSION);
    ngl_put_(hello + 16, mode == NGL_LOSSLESS);
    if (len > 0) memcpy(hello + 24, name, len < NGL_NAME ? len : NGL_NAME);
    /* An engine that rejects the listener before it reads the hello has closed its end; its reason can still be received. */
    if (send(e->socket, hello, sizeof hello, MSG_NOSIGNAL) < 0 && errno != EPIPE)
        return ngl_fail_(err, NGL_UNREACHABLE, unreachable, strerror(errno));

    if (!ngl_receive_(e->socket, welcome, sizeof welcome, fds, err)) ok = 0;
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0) close(fds[i]);
    if (!ok) return 0;
    if (ngl_get_(welcome) != NGL_MAGIC)
        return ngl_fail_(err, NGL_PROTOCOL, "the engine's response is invalid: ", "the Welcome message is malformed");
    welcome[NGL_ACCEPT - 1] = 0;
    if (welcome[24] != 0) return ngl_fail_(err, NGL_REFUSED, "the engine refused: ", (const char *)welcome + 24);
    rings = ngl_get_(welcome + 16);
    if (rings == 0 || rings > NGL_RINGS_MAX)
        return ngl_fail_(err, NGL_PROTOCOL, "the engine's response is invalid: ", "the number of rings is out of range");
    e->ring = (ngl_ring *)calloc((size_t)rings, sizeof *e->ring);
    if (!e->ring) return ngl_fail_(err, NGL_MEMORY, "the shared ring cannot be mapped: ", strerror(errno));
    while (ok && e->rings < rings) {
        ngl_ring *r = &e->ring[e->rings++];
        r->mode = mode;
        r->socket = e->socket;
        ok = ngl_receive_(e->socket, message, sizeof message, fds, err) && ngl_open_ring_(r, fds, message, err);
        /* The mappings remain valid after the file descriptors are closed. */
        for (int i = 0; i < 4; i++)
            if (fds[i] >= 0) close(fds[i]);
    }
    return ok;
}

/* Attaches to the engine with the ring socket `path`, under a name of at most 64 bytes, which the engine shows in its tables.
 * Returns NULL on failure, with the reason in *err (which may be NULL). */
static inline ngl *ngl_attach(const char *path, ngl_mode mode, const char *name, ngl_error *err) {
    ngl *e = (ngl *)calloc(1, sizeof *e);
    if (!e) {
        ngl_fail_(err, NGL_MEMORY, "the shared ring cannot be mapped: ", strerror(errno));
        return NULL;
    }
    e->socket = -1;
    if (ngl_handshake_(e, path, mode, name, err)) return e;
    ngl_close(e);
    return NULL;
}

#endif
