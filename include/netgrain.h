/* Reading packets, flow records and series of a netgrain store, and packets of capture files, by interval and filter: C99 or
 * later, C++ too.
 *
 *     netgrain_error err;
 *     netgrain_query q = NETGRAIN_QUERY_ALL;
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
 * Full programs are examples/c/packets.c, flows.c and series.c; docs/reference/rust-and-c-api.md says how to build and link. The filter's words are
 * those of docs/reference/filters.md (tcpdump's, with two differences).
 *
 * Units: times are nanoseconds since 1970-01-01T00:00:00Z; lengths are bytes; link types are numbered as in pcap (1 is
 * Ethernet).
 *
 * Errors: whatever can fail takes a netgrain_error, which may be NULL, and fills it when it fails; otherwise it leaves it
 * alone. `text` is one line that names the thing and says what to do.
 *
 * Threads: an answer belongs to the thread that opened it. Different answers are independent, in one thread or in many.
 * Only netgrain_stop and its like may be called from anywhere at any time before netgrain_close, a signal handler included.
 * Functions without an answer may be called from any thread.
 *
 * Memory: what a function lends stays good until the moment that its comment names; nothing lent is ever freed by the
 * caller. A failure inside the library never unwinds into the caller: it becomes NETGRAIN_BUG, after which the answer can
 * only be closed. Callbacks must return; they must not leave by longjmp or by a C++ exception.
 *
 * Version: NETGRAIN_API_VERSION grows when a structure or a meaning changes. A program passes the one it was compiled
 * with (NETGRAIN_QUERY_ALL does), and a library of another version refuses in words instead of misreading. */
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

/* Which packets, flow records or seconds are wanted. */
typedef struct netgrain_query {
    uint32_t version;              /* NETGRAIN_API_VERSION */
    uint32_t flags;                /* NETGRAIN_FOLLOW | ... */
    uint64_t from;                 /* the first moment wanted */
    uint64_t to;                   /* the last moment wanted, itself included */
    const char *filter;            /* NULL or "" for every packet */
    const char *const *interfaces; /* names of interfaces of the store; NULL with 0 for all */
    size_t interface_count;
} netgrain_query;

#define NETGRAIN_FOLLOW 1u      /* go on with packets as they arrive, until `to` or netgrain_stop */
#define NETGRAIN_NO_RING 2u     /* do not look into the memory of a running recorder, only into files */
#define NETGRAIN_LOW_PRIORITY 4u /* put the calling thread behind recorders at disk and processor, for good; a remark if that fails */

/* Every packet that there is at this moment. */
#define NETGRAIN_QUERY_ALL { NETGRAIN_API_VERSION, 0, 0, UINT64_MAX, NULL, NULL, 0 }

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
    const char *timestamp_source;  /* who stamped the packets */
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
netgrain *netgrain_open_store(const char *store, const netgrain_query *question, netgrain_error *err);

/* Opens the answer of capture files of anyone (pcap, pcapng, HPCAP's RAW), with an index beside them or without. Those
 * without one are read here from end to end, because nothing else tells when their packets were. */
netgrain *netgrain_open_files(const char *const *files, size_t count, const netgrain_query *question,
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
int netgrain_is_complete(netgrain *answer);

/* What people should know about the answer (damaged files, files without an index): how many remarks there are by now, and
 * one of them, lent until netgrain_warnings is called again; NULL for a number that there is not. */
size_t netgrain_warnings(netgrain *answer);
const char *netgrain_warning(netgrain *answer, size_t number);

/* Gives everything back. NULL is allowed. */
void netgrain_close(netgrain *answer);

/* ---- Flow records and seconds ----
 *
 *     netgrain_flows *flows = netgrain_flows_open("/data/store", &q, 0, &err);
 *     const netgrain_flow *f;
 *     while ((got = netgrain_flows_next(flows, &f, &err)) > 0) look_at(f->id, f->directions[0].bytes, f->directions[1].bytes);
 *     netgrain_flows_close(flows);
 *
 * These loops read what `netgrain run` keeps in a store beside the packets: sealed files and those that are being written. All
 * that is said above of errors, threads, memory and stopping holds for them. The question is the same one:
 * NETGRAIN_LOW_PRIORITY as above; NETGRAIN_NO_RING leaves out what is not sealed yet; NETGRAIN_FOLLOW is live, see the loops.
 *
 * What a loop gives is made by the library and lent until the next call with that loop. `size` says how long the structure is
 * in the library: later versions append fields and change no others, so a program that uses one of a later header asks
 * NETGRAIN_HAS first. */
#define NETGRAIN_HAS(thing, field) \
    ((size_t)((const char *)(&(thing)->field + 1) - (const char *)(thing)) <= (thing)->size)

/* Stands where there is no time, or no position. */
#define NETGRAIN_NONE UINT64_MAX

typedef struct netgrain_flows netgrain_flows;
typedef struct netgrain_series netgrain_series;

/* Of a number n of values: the least and the greatest (0 if there is none), all together, mean and sample deviation (n - 1).
 * Their squares together are deviation * deviation * (n - 1) + mean * sum, from which those of several records follow. */
typedef struct netgrain_stats {
    uint64_t min, max, sum;
    double mean, deviation;
} netgrain_stats;

/* One direction of a flow. */
typedef struct netgrain_direction {
    uint64_t first, last;         /* its first and last packet in this record, ns since 1970; 0 if there is none */
    uint64_t packets;
    uint64_t bytes;               /* of the frames on the wire, without FCS */
    uint64_t ip_bytes;            /* of the (inner) IP packets: what NetFlow counts */
    uint64_t payload_bytes;       /* carried by the transport protocol */
    uint64_t payload_packets;     /* packets that carried any */
    netgrain_stats length;      /* of the IP packets, bytes; of `packets` values */
    netgrain_stats iat;         /* inter-arrival time, ns; of `iat_count` values */
    uint64_t iat_count;
    uint64_t tcp_flags[8];        /* packets with FIN, SYN, RST, PSH, ACK, URG, ECE, CWR */
    uint64_t zero_window;         /* packets that advertised a window of zero, without RST */
    uint64_t retransmitted;       /* packets whose bytes were all sent before */
    uint64_t retransmitted_bytes; /* their payload */
    uint64_t out_of_order;        /* packets that came behind bytes that follow them, and were not sent before */
    uint8_t ttl_min, ttl_max;     /* TTL or hop limit */
    uint8_t dscp_min, dscp_max;
    uint8_t mac[6];               /* who sent its first frame, if has_mac */
    uint8_t has_mac;
    uint8_t reserved[5];
} netgrain_direction;

/* One of the first packets of a flow. */
typedef struct netgrain_initial_packet {
    uint64_t offset_ns; /* ns after the first packet of the flow */
    uint16_t length;   /* of the IP packet, bytes */
    uint8_t flags;     /* TCP's; 0 of others */
    uint8_t reverse;   /* 1: sent by whom the first packet was not */
    uint32_t reserved;
} netgrain_initial_packet;

/* Why a record was made; the numbers are those of flowEndReason (IPFIX). */
#define NETGRAIN_END_IDLE_TIMEOUT 1   /* no packet for the idle timeout */
#define NETGRAIN_END_ACTIVE_TIMEOUT 2 /* the active timeout: the flow goes on in a record with the same id and the next record_index */
#define NETGRAIN_END_OF_FLOW 3  /* TCP's FINs or RST */
#define NETGRAIN_END_FORCED_END 4 /* the meter was stopped, or the capture ended */
#define NETGRAIN_END_LACK_OF_RESOURCES 5   /* the table was full */

/* How far TCP got, by what was seen. */
#define NETGRAIN_TCP_NONE 0 /* not TCP */
#define NETGRAIN_TCP_MIDSTREAM 1
#define NETGRAIN_TCP_SYN_SENT 2
#define NETGRAIN_TCP_SYN_RECEIVED 3
#define NETGRAIN_TCP_ESTABLISHED 4
#define NETGRAIN_TCP_HALF_CLOSED 5
#define NETGRAIN_TCP_CLOSED 6
#define NETGRAIN_TCP_RESET 7

/* Kinds of tunnels. */
#define NETGRAIN_TUNNEL_NONE 0
#define NETGRAIN_TUNNEL_GRE 1
#define NETGRAIN_TUNNEL_NVGRE 2
#define NETGRAIN_TUNNEL_ERSPAN1 3
#define NETGRAIN_TUNNEL_ERSPAN2 4
#define NETGRAIN_TUNNEL_ERSPAN3 5
#define NETGRAIN_TUNNEL_VXLAN 6
#define NETGRAIN_TUNNEL_GENEVE 7
#define NETGRAIN_TUNNEL_GTP_U 8
#define NETGRAIN_TUNNEL_IP_IN_IP 9
#define NETGRAIN_TUNNEL_TEREDO 10

/* What one conversation did on one interface in one period. Source is whoever sent the first packet. */
typedef struct netgrain_flow {
    uint32_t size;              /* of this structure in the library, bytes */
    uint32_t record_index;              /* records of this flow before this one */
    uint64_t id;                /* the same for all records of one flow: `netgrain packets --flow` takes it as a decimal number */
    const char *interface_name; /* lent until netgrain_flows_close */
    uint64_t flow_start;         /* the first packet of the flow, ns since 1970: before `first` where record_index > 0 */
    uint64_t first, last;       /* the first and last packet of this record, ns since 1970 */
    uint8_t src[16], dst[16];   /* addresses in the order of the wire; of IPv4 the first four bytes */
    uint16_t src_port;          /* in the order of this machine; 0 where the protocol has none */
    uint16_t dst_port;          /* of ICMP: type * 256 + code of the first packet */
    uint8_t ip_version;         /* 4 or 6 */
    uint8_t protocol;           /* above IP, as IANA numbers it */
    uint8_t end_reason;         /* NETGRAIN_END_... */
    uint8_t tcp_state;          /* NETGRAIN_TCP_... */
    int32_t vlan, vlan_inner;   /* ids of the tags, outer first; -1 for none */
    int32_t mpls;               /* the topmost label; -1 for none */
    uint32_t tunnel;            /* NETGRAIN_TUNNEL_... */
    uint32_t tunnel_id;         /* VNI, VSID, TEID, session or key */
    uint32_t queue;             /* of the files that its packets are in */
    uint64_t position;          /* where its first packet lies in the stream of the queue, bytes; NETGRAIN_NONE if in none */
    uint64_t position_span;     /* bytes from there to where its last one lies; NETGRAIN_NONE if in none */
    uint64_t syn_rtt_ns;        /* from SYN to SYN+ACK, ns; NETGRAIN_NONE if that was not seen */
    uint64_t ack_rtt_ns;        /* from SYN+ACK to the ACK, ns; the same */
    uint64_t lost;              /* packets that the interface lost in the seconds of this record */
    const netgrain_initial_packet *initial_packets;       /* the first packets, in the first record of a flow: initial_packet_count of them */
    const unsigned char *payload[2];   /* the first bytes carried, there and back: payload_len of them */
    uint32_t payload_len[2];           /* 0 unless the meter was told to keep them */
    uint32_t initial_packet_count;
    uint32_t reserved;
    netgrain_direction directions[2];     /* from source to destination, and back */
    /* Appended later: ask NETGRAIN_HAS. */
    uint64_t tunnel_seq_first[2]; /* sequence number in the tunnel (ERSPAN, GRE, GTP-U) of the first packet that had one, there
                                   * and back; NETGRAIN_NONE if none had, or the file is older than these numbers */
    uint64_t tunnel_seq_last[2];  /* that of the last one; others than this flow's packets lie between */
} netgrain_flow;

/* Packets and their bytes on the wire, without FCS. */
typedef struct netgrain_volume {
    uint64_t packets, bytes;
} netgrain_volume;

#define NETGRAIN_IN 0  /* received; of a mirror port, everything */
#define NETGRAIN_OUT 1 /* sent by the host */

/* One second of one direction of one interface. A second without a packet is a row of zeros; a second of which nothing is
 * known has no row. */
typedef struct netgrain_second {
    uint32_t size;              /* of this structure in the library, bytes */
    uint32_t direction;         /* NETGRAIN_IN or NETGRAIN_OUT */
    uint64_t second;            /* seconds since 1970 (UTC) */
    const char *interface_name; /* lent until netgrain_series_close */
    netgrain_volume total;
    netgrain_volume tcp, udp, icmp, sctp, other_ip, arp, other; /* which add up to the total; icmp also of IPv6 */
    netgrain_volume ipv6;       /* among them */
    uint64_t sizes[7];          /* packets of up to 60, 123, 251, 507, 1019, 1514 bytes without FCS, and more */
    uint64_t syn;               /* TCP packets with SYN and without ACK, */
    uint64_t syn_ack;           /* with both, */
    uint64_t fin, rst;          /* with FIN, with RST */
    uint64_t flows_active;      /* in the table as the second ends; of both directions, told with NETGRAIN_IN */
    uint64_t flows_new;         /* that began in it; the same */
    uint64_t flows_ended;       /* that ended in it; the same */
    uint64_t sources, destinations; /* distinct addresses, estimated (+-1.6 %) */
    netgrain_volume peak_1ms;   /* the most packets and the most bytes in a millisecond of it, maybe not the same one */
    netgrain_volume peak_10ms;  /* and in ten milliseconds */
    netgrain_tally ledger;      /* what became of the packets; of both directions, told with NETGRAIN_IN */
    /* Appended later: ask NETGRAIN_HAS. */
    uint64_t tunnel_numbered;   /* packets with a sequence number of a tunnel; of both directions, told with NETGRAIN_IN */
    uint64_t tunnel_missing;    /* packets whose numbers were passed over; the same */
    uint64_t tunnel_late;       /* of those missing, came after all; the same */
    const uint64_t *losses;     /* ledger.lost by cause: loss_count numbers, whose names netgrain_loss_name has */
    const uint64_t *notes;      /* remarks on packets, not part of the sum: note_count, whose names netgrain_note_name has */
    uint32_t loss_count;
    uint32_t note_count;
} netgrain_second;

/* Opens the flow records of a store that overlap the interval and match the filter: src is the initiator and dst the responder
 * (docs/reference/filters.md says which words records have no answer to; they are refused). They come in the order in which they begin.
 *
 * With NETGRAIN_FOLLOW, records go on coming as the meter tells them: about a second after a flow ended, or after its active
 * timeout, each once. `late` is how many nanoseconds after its last packet a record may be told and still be seen; 0 for the
 * 90 s that suit the usual timeouts, more if the meter has longer ones. The loop ends at netgrain_flows_stop, or when `to` is
 * past by so much. What is brought into the store later than that, from old captures, is found by its interval. NULL, with
 * `err` filled, if it cannot be done. */
netgrain_flows *netgrain_flows_open(const char *store, const netgrain_query *question, uint64_t late,
                                    netgrain_error *err);

/* The next record: 1 and `*flow` set, 0 and `*flow` NULL at the end (or after netgrain_flows_stop), -1 and `err` filled on
 * failure. With NETGRAIN_FOLLOW it waits. */
int netgrain_flows_next(netgrain_flows *flows, const netgrain_flow **flow, netgrain_error *err);

/* Calls back for each record, as netgrain_loop does for packets. */
typedef int (*netgrain_flow_callback)(void *user, const netgrain_flow *flow);
int64_t netgrain_flows_loop(netgrain_flows *flows, uint64_t limit, netgrain_flow_callback callback, void *user,
                            netgrain_error *err);

/* The Community ID (version 1, seed 0) of the conversation: how Zeek, Suricata, Arkime and others name it. Fills `text`, which
 * has room for NETGRAIN_COMMUNITY_ID bytes, the NUL included. 0, or -1 with `err` filled. */
#define NETGRAIN_COMMUNITY_ID 32
int netgrain_community_id(const netgrain_flow *flow, char *text, netgrain_error *err);

/* As netgrain_stop, netgrain_is_complete, netgrain_warnings, netgrain_warning and netgrain_close. */
void netgrain_flows_stop(netgrain_flows *flows);
int netgrain_flows_is_complete(netgrain_flows *flows);
size_t netgrain_flows_warnings(netgrain_flows *flows);
const char *netgrain_flows_warning(netgrain_flows *flows, size_t number);
void netgrain_flows_close(netgrain_flows *flows);

/* Opens the seconds of a store that overlap the interval, one row for each second, interface and direction, in that order. A
 * series has no filter: one is refused.
 *
 * With NETGRAIN_FOLLOW, seconds go on coming some three seconds after they began, in order for each interface; what late
 * packets add to a second that was told is left out. The loop ends at netgrain_series_stop, or half a minute after `to`. NULL,
 * with `err` filled, if it cannot be done. */
netgrain_series *netgrain_series_open(const char *store, const netgrain_query *question, netgrain_error *err);

/* The next row: 1 and `*second` set, 0 and `*second` NULL at the end, -1 and `err` filled on failure. */
int netgrain_series_next(netgrain_series *series, const netgrain_second **second, netgrain_error *err);

/* Calls back for each row, as netgrain_loop does for packets. */
typedef int (*netgrain_second_callback)(void *user, const netgrain_second *second);
int64_t netgrain_series_loop(netgrain_series *series, uint64_t limit, netgrain_second_callback callback, void *user,
                             netgrain_error *err);

/* Why packets were lost and what was remarked on packets, by their numbers, as docs/reference/counters.md names it ("nic", "ring_full",
 * "truncated"). A number keeps its meaning in later versions. Good for ever; NULL for a number that there is not. */
const char *netgrain_loss_name(uint32_t number);
const char *netgrain_note_name(uint32_t number);

/* As netgrain_stop, netgrain_is_complete, netgrain_warnings, netgrain_warning and netgrain_close. */
void netgrain_series_stop(netgrain_series *series);
int netgrain_series_is_complete(netgrain_series *series);
size_t netgrain_series_warnings(netgrain_series *series);
const char *netgrain_series_warning(netgrain_series *series, size_t number);
void netgrain_series_close(netgrain_series *series);

/* ---- Without an answer ---- */

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
