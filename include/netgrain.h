/* Reads packets, flow records and time series of a netgrain store, and packets of capture files, by interval and filter.
 * For C99 or later, and C++.
 *
 *     netgrain_error err;
 *     netgrain_query q = NETGRAIN_QUERY_ALL;
 *     q.filter = "host 10.1.2.3 and port 53";
 *     netgrain_time("-10min", &q.from, &err);
 *     netgrain *results = netgrain_open_store("/data/store", &q, &err);
 *     if (!results) { fprintf(stderr, "%s\n", err.text); return 2; }
 *     netgrain_packet p;
 *     int got;
 *     while ((got = netgrain_next(results, &p, &err)) > 0) process(p.data, p.caplen);
 *     if (got < 0) fprintf(stderr, "%s\n", err.text);
 *     netgrain_close(results);
 *
 * Complete programs are examples/c/packets.c, flows.c and series.c; docs/reference/rust-and-c-api.md describes how to
 * build and link. Filters have the syntax of docs/reference/filters.md, which is that of
 * tcpdump except for the differences that the page lists.
 *
 * Units: times are nanoseconds since 1970-01-01T00:00:00Z; lengths are bytes; link types are numbered as in pcap (1 is
 * Ethernet).
 *
 * Errors: each function that can fail has a netgrain_error parameter, which may be NULL. The function fills it on failure
 * and does not change it otherwise. `text` is one line: what failed, and what to do.
 *
 * Handles: netgrain, netgrain_flows and netgrain_series are handles of the results of a query.
 *
 * Threads: a handle belongs to the thread that opened it. Different handles are independent, in one thread or in several.
 * Only netgrain_stop, netgrain_flows_stop and netgrain_series_stop may be called from any thread and from a signal handler,
 * at any time before the handle is closed. Functions without a handle may be called from any thread.
 *
 * Memory: the library owns all memory that it returns. The memory is valid until the event that the comment of the function
 * or structure names, and the caller never frees it. A panic inside the library never unwinds into the caller: the function
 * fails with NETGRAIN_BUG, and after that the handle can only be closed. Callbacks must return; they must not leave by
 * longjmp or by a C++ exception.
 *
 * Version: NETGRAIN_API_VERSION increases when a structure or a meaning changes. A program passes the version with which it
 * was compiled (NETGRAIN_QUERY_ALL does so); a library of another version rejects the query with an error. */
#ifndef NETGRAIN_H
#define NETGRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NETGRAIN_API_VERSION 1

/* The results of a packet query: its packets in order of time. */
typedef struct netgrain netgrain;

/* Error codes. */
#define NETGRAIN_ARGUMENT 1  /* an argument is NULL, not UTF-8, or of another version */
#define NETGRAIN_FILTER 2    /* the filter has a syntax error */
#define NETGRAIN_TIME 3      /* the time has a syntax error, or the interval ends before it begins */
#define NETGRAIN_INTERFACE 4 /* the store has no such interface */
#define NETGRAIN_READ 5      /* a file or directory cannot be read */
#define NETGRAIN_BUG 6       /* a bug in netgrain: please report it with the text */

#define NETGRAIN_TEXT 512

typedef struct netgrain_error {
    int32_t code;              /* NETGRAIN_ARGUMENT ... */
    char text[NETGRAIN_TEXT];  /* one line of text, terminated by NUL; truncated if too long */
} netgrain_error;

/* Selects packets, flow records or rows. */
typedef struct netgrain_query {
    uint32_t version;              /* NETGRAIN_API_VERSION */
    uint32_t flags;                /* NETGRAIN_FOLLOW | ... */
    uint64_t from;                 /* begin of the interval */
    uint64_t to;                   /* end of the interval, inclusive */
    const char *filter;            /* NULL or "" for every packet */
    const char *const *interfaces; /* names of interfaces of the store; NULL and a count of 0 for all */
    size_t interface_count;
} netgrain_query;

#define NETGRAIN_FOLLOW 1u      /* continue with new packets as they arrive, until `to` or netgrain_stop */
#define NETGRAIN_NO_RING 2u     /* read files only, not the ring of a running recorder */
/* Lower the CPU and I/O priority of the calling thread below that of recorders, permanently; a warning if that fails. */
#define NETGRAIN_LOW_PRIORITY 4u

/* Selects all packets that exist now. */
#define NETGRAIN_QUERY_ALL { NETGRAIN_API_VERSION, 0, 0, UINT64_MAX, NULL, NULL, 0 }

/* One packet. `data` is valid until the next call with the same handle. */
typedef struct netgrain_packet {
    uint64_t ts;               /* its timestamp */
    const unsigned char *data; /* the first `caplen` bytes of the packet; never NULL */
    uint32_t caplen;           /* captured bytes */
    uint32_t wire_len;         /* bytes on the wire */
    uint32_t link_type;        /* link-layer format of `data`, numbered as in pcap */
    uint32_t origin;           /* index of its origin, see netgrain_get_origin */
    uint64_t lost;             /* packets known to be lost on this origin since its previous packet in these results */
} netgrain_packet;

/* An origin of packets: a queue of an interface of the store, or an interface of a capture file. The texts are valid until
 * netgrain_close; an unknown text is empty, never NULL. */
typedef struct netgrain_origin {
    const char *interface_name;
    const char *filter;  /* the capture filter of the recorder; empty if it had none */
    const char *timestamp_source;  /* the clock that made the timestamps */
    uint32_t queue;      /* the hardware queue */
    uint32_t link_type;
    uint32_t snaplen;    /* most bytes kept of each packet */
} netgrain_origin;

/* The packet counters of an origin by outcome: offered = stored + filtered + duplicate + lost. */
typedef struct netgrain_tally {
    uint64_t offered;
    uint64_t stored;
    uint64_t stored_bytes; /* on the wire */
    uint64_t filtered;
    uint64_t duplicate;
    uint64_t lost;         /* from all causes */
} netgrain_tally;

/* The cost of a query so far. */
typedef struct netgrain_cost {
    uint64_t files;               /* packet files in the interval; of foreign captures, all files */
    uint64_t files_skipped;       /* of these, files outside of the interval or without a block that may match */
    uint64_t blocks;              /* blocks of the files that were not skipped */
    uint64_t blocks_skipped_time; /* of these, blocks skipped by time */
    uint64_t blocks_skipped_keys; /* of these, blocks skipped because the index excludes a match of the filter */
    uint64_t blocks_read;
    uint64_t bytes;               /* bytes of the files that were not skipped */
    uint64_t bytes_read;          /* bytes of packets that were read */
    uint64_t index_bytes_read;
    uint64_t packets;             /* packets to which the filter was applied */
    uint64_t matched;
    uint64_t from_ring;           /* packets read from the ring of a running recorder */
} netgrain_cost;

/* Queries a store: its sealed files, the growing file, and the ring of a running recorder as one sequence. The function
 * already lists the files and opens the growing file and the ring, for which it may wait briefly for a running recorder.
 * `query` is copied. Returns NULL and fills `err` on failure. */
netgrain *netgrain_open_store(const char *store, const netgrain_query *query, netgrain_error *err);

/* Queries capture files of any origin (pcap, pcapng, HPCAP RAW), with or without an index beside them. A file without an
 * index is read completely by this function, to determine the time range of its packets. */
netgrain *netgrain_open_files(const char *const *files, size_t count, const netgrain_query *query,
                              netgrain_error *err);

/* Returns 1 and fills `packet` with the next packet; returns 0 at the end or after netgrain_stop; returns -1 and fills `err`
 * on failure. With NETGRAIN_FOLLOW the function waits for the next packet. */
int netgrain_next(netgrain *results, netgrain_packet *packet, netgrain_error *err);

/* A callback for one packet, which is valid until the callback returns. Returns 0 to continue, another value to end the
 * loop. */
typedef int (*netgrain_callback)(void *user, const netgrain_packet *packet);

/* Calls the callback for each packet, for at most `limit` packets (0: no limit), as pcap_loop does. Returns the number of
 * packets that were passed to the callback, or -1 and fills `err`. A loop that ended by its limit or its callback can be
 * continued with another call. The callback must call no function with this handle except netgrain_stop. */
int64_t netgrain_loop(netgrain *results, uint64_t limit, netgrain_callback callback, void *user, netgrain_error *err);

/* Ends the results: from now on netgrain_next returns 0, also a call that is waiting. May be called from any thread and from
 * a signal handler. */
void netgrain_stop(netgrain *results);

/* netgrain_origins returns the number of origins found so far. netgrain_get_origin fills `origin` with the origin of index
 * `number`, and returns 0; if there is no such origin, it returns -1 and fills `err`. An origin is found before its first
 * packet is returned. */
size_t netgrain_origins(netgrain *results);
int netgrain_get_origin(netgrain *results, size_t number, netgrain_origin *origin, netgrain_error *err);

/* Fills `tally` with the packet counters of an origin in the seconds of the interval. They include the files that the query
 * has read so far to their end or beyond the end of the interval. Returns 0, or -1 and fills `err`. */
int netgrain_get_tally(netgrain *results, size_t number, netgrain_tally *tally, netgrain_error *err);

/* The cost of the query so far. */
void netgrain_get_cost(netgrain *results, netgrain_cost *cost);

/* Returns 1 if the results are complete so far, 0 if packets may be missing; a warning then has the reason. */
int netgrain_is_complete(netgrain *results);

/* Warnings about the results, such as damaged files and files without an index. netgrain_warnings returns their number so
 * far. netgrain_warning returns the warning of index `number`, valid until the next call of netgrain_warnings, or NULL if
 * there is no such warning. */
size_t netgrain_warnings(netgrain *results);
const char *netgrain_warning(netgrain *results, size_t number);

/* Frees the results. NULL is allowed. */
void netgrain_close(netgrain *results);

/* ---- Flow records and time series ----
 *
 *     netgrain_flows *flows = netgrain_flows_open("/data/store", &q, 0, &err);
 *     const netgrain_flow *f;
 *     while ((got = netgrain_flows_next(flows, &f, &err)) > 0)
 *         process(f->id, f->directions[0].bytes, f->directions[1].bytes);
 *     netgrain_flows_close(flows);
 *
 * These functions read the flow records and time series that `netgrain run` stores beside the packets: sealed files and
 * growing journals. The rules above for errors, threads, memory and stopping apply. The query structure is the same:
 * NETGRAIN_LOW_PRIORITY has the same effect; NETGRAIN_NO_RING excludes journals; NETGRAIN_FOLLOW continues with new data, see
 * the functions that open a handle.
 *
 * The library allocates the returned structures; each is valid until the next call with the same handle. `size` is the length
 * of the structure in the library. Later versions of the library only append fields to a structure. A program that uses an
 * appended field first tests with NETGRAIN_HAS whether the library has this field. */
#define NETGRAIN_HAS(structure, field) \
    ((size_t)((const char *)(&(structure)->field + 1) - (const char *)(structure)) <= (structure)->size)

/* The value of a time, position or sequence number that does not exist. */
#define NETGRAIN_NONE UINT64_MAX

typedef struct netgrain_flows netgrain_flows;
typedef struct netgrain_series netgrain_series;

/* Statistics of n values: minimum and maximum (0 if n is 0), sum, mean and sample standard deviation (divisor n - 1). The sum
 * of the squares is deviation * deviation * (n - 1) + mean * sum; with it the statistics of several records can be merged. */
typedef struct netgrain_stats {
    uint64_t min, max, sum;
    double mean, deviation;
} netgrain_stats;

/* One direction of a flow. */
typedef struct netgrain_direction {
    uint64_t first, last;         /* times of its first and last packet in this record, ns since 1970; 0 without packets */
    uint64_t packets;
    uint64_t bytes;               /* bytes of the frames on the wire, without FCS */
    uint64_t ip_bytes;            /* bytes of the (inner) IP packets, as NetFlow counts */
    uint64_t payload_bytes;       /* payload bytes of the transport protocol */
    uint64_t payload_packets;     /* packets with payload */
    netgrain_stats length;      /* lengths of the IP packets in bytes; `packets` values */
    netgrain_stats iat;         /* inter-arrival times in ns; `iat_count` values */
    uint64_t iat_count;
    uint64_t tcp_flags[8];        /* packets with FIN, SYN, RST, PSH, ACK, URG, ECE, CWR */
    uint64_t zero_window;         /* packets that advertised a window of zero, without RST */
    uint64_t retransmitted;       /* packets whose payload was completely sent before */
    uint64_t retransmitted_bytes; /* payload bytes of these */
    uint64_t out_of_order;        /* packets after packets with later sequence numbers, not sent before */
    uint8_t ttl_min, ttl_max;     /* TTL or hop limit */
    uint8_t dscp_min, dscp_max;
    uint8_t mac[6];               /* source MAC address of its first frame, if has_mac is 1 */
    uint8_t has_mac;
    uint8_t reserved[5];
} netgrain_direction;

/* An initial packet of a flow. */
typedef struct netgrain_initial_packet {
    uint64_t offset_ns; /* ns after the first packet of the flow */
    uint16_t length;   /* bytes of the IP packet */
    uint8_t flags;     /* TCP flags; 0 for other protocols */
    uint8_t reverse;   /* 1 for the reverse direction */
    uint32_t reserved;
} netgrain_initial_packet;

/* Flow end reasons, numbered as flowEndReason of IPFIX. */
#define NETGRAIN_END_IDLE_TIMEOUT 1   /* no packet for the idle timeout */
#define NETGRAIN_END_ACTIVE_TIMEOUT 2 /* active timeout; the next record has the same id and the next record_index */
#define NETGRAIN_END_OF_FLOW 3  /* TCP FINs or RST */
#define NETGRAIN_END_FORCED_END 4 /* the meter was stopped, or the capture ended */
#define NETGRAIN_END_LACK_OF_RESOURCES 5   /* the flow table was full */

/* TCP states, by the packets that were seen. */
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

/* A flow record: one flow on one interface in one period. The source is the sender of the first packet. */
typedef struct netgrain_flow {
    uint32_t size;              /* bytes of this structure in the library */
    uint32_t record_index;      /* number of earlier records of this flow */
    uint64_t id;                /* flow ID, equal in all records of a flow; the decimal number of `netgrain packets --flow` */
    const char *interface_name; /* valid until netgrain_flows_close */
    uint64_t flow_start;        /* time of the first packet of the flow, ns since 1970; before `first` if record_index > 0 */
    uint64_t first, last;       /* times of the first and last packet of this record, ns since 1970 */
    uint8_t src[16], dst[16];   /* addresses in network byte order; IPv4 in the first four bytes */
    uint16_t src_port;          /* in host byte order; 0 for protocols without ports */
    uint16_t dst_port;          /* for ICMP: type * 256 + code of the first packet */
    uint8_t ip_version;         /* 4 or 6 */
    uint8_t protocol;           /* IANA number of the protocol above IP */
    uint8_t end_reason;         /* NETGRAIN_END_... */
    uint8_t tcp_state;          /* NETGRAIN_TCP_... */
    int32_t vlan, vlan_inner;   /* VLAN ids, outer tag first; -1 without tag */
    int32_t mpls;               /* topmost label; -1 without label */
    uint32_t tunnel;            /* NETGRAIN_TUNNEL_... */
    uint32_t tunnel_id;         /* VNI, VSID, TEID, session or key */
    uint32_t queue;             /* queue of its packet files */
    uint64_t position;          /* stream position of its first packet in the queue, bytes; NETGRAIN_NONE if not stored */
    uint64_t position_span;     /* bytes from `position` to that of its last packet; NETGRAIN_NONE if not stored */
    uint64_t syn_rtt_ns;        /* ns from SYN to SYN+ACK; NETGRAIN_NONE if not seen */
    uint64_t ack_rtt_ns;        /* ns from SYN+ACK to the ACK; NETGRAIN_NONE if not seen */
    uint64_t lost;              /* packets that the interface lost in the seconds of this record */
    const netgrain_initial_packet *initial_packets; /* initial_packet_count packets, in the first record of a flow */
    const unsigned char *payload[2];   /* first payload bytes, forward and reverse: payload_len of them */
    uint32_t payload_len[2];           /* 0 unless the meter is configured to keep payload */
    uint32_t initial_packet_count;
    uint32_t reserved;
    netgrain_direction directions[2];     /* forward (source to destination) and reverse */
    /* Appended later: test with NETGRAIN_HAS. */
    uint64_t tunnel_seq_first[2]; /* tunnel sequence number (ERSPAN, GRE, GTP-U) of the first packet with one, forward and
                                   * reverse; NETGRAIN_NONE if no packet had one, or if an older version wrote the file */
    uint64_t tunnel_seq_last[2];  /* of the last packet with one; packets of other flows have numbers in between */
} netgrain_flow;

/* Packets and their bytes on the wire, without FCS. */
typedef struct netgrain_volume {
    uint64_t packets, bytes;
} netgrain_volume;

#define NETGRAIN_IN 0  /* received; on a mirror port, all packets */
#define NETGRAIN_OUT 1 /* sent by the host */

/* A row: one second of one direction of one interface. A second without packets is a row of zeros; an unknown second has no
 * row. */
typedef struct netgrain_second {
    uint32_t size;              /* bytes of this structure in the library */
    uint32_t direction;         /* NETGRAIN_IN or NETGRAIN_OUT */
    uint64_t second;            /* seconds since 1970 (UTC) */
    const char *interface_name; /* valid until netgrain_series_close */
    netgrain_volume total;
    netgrain_volume tcp, udp, icmp, sctp, other_ip, arp, other; /* traffic classes; icmp includes ICMPv6 */
    netgrain_volume ipv6;       /* IPv6 packets of all classes */
    uint64_t sizes[7];          /* packets of up to 60, 123, 251, 507, 1019, 1514 bytes without FCS, and longer */
    uint64_t syn;               /* TCP packets with SYN and without ACK */
    uint64_t syn_ack;           /* TCP packets with SYN and ACK */
    uint64_t fin, rst;          /* TCP packets with FIN, with RST */
    uint64_t flows_active;      /* flows at the end of the second; both directions, in the row of NETGRAIN_IN */
    uint64_t flows_new;         /* flows that began in the second; both directions, in the row of NETGRAIN_IN */
    uint64_t flows_ended;       /* flows that ended in the second; both directions, in the row of NETGRAIN_IN */
    uint64_t sources, destinations; /* distinct addresses, estimated (+-1.6 %) */
    netgrain_volume peak_1ms;   /* most packets and most bytes within 1 ms, not necessarily the same millisecond */
    netgrain_volume peak_10ms;  /* the same within 10 ms */
    netgrain_tally ledger;      /* outcome of the packets; of both directions, in the row of NETGRAIN_IN */
    /* Appended later: test with NETGRAIN_HAS. */
    uint64_t tunnel_numbered;   /* packets with a tunnel sequence number; of both directions, in the row of NETGRAIN_IN */
    uint64_t tunnel_missing;    /* missing tunnel sequence numbers; of both directions, in the row of NETGRAIN_IN */
    uint64_t tunnel_late;       /* late tunnel sequence numbers; of both directions, in the row of NETGRAIN_IN */
    const uint64_t *losses;     /* ledger.lost by cause: loss_count numbers; netgrain_loss_name returns their names */
    const uint64_t *notes;      /* notes: note_count numbers; netgrain_note_name returns their names */
    uint32_t loss_count;
    uint32_t note_count;
    netgrain_volume duplicate;  /* stored packets marked as copies of earlier packets; total does not contain them */
    /* The quality of the timestamps; of both directions, in the row of NETGRAIN_IN; 0 where it is not known. */
    uint64_t timestamp_packets[16]; /* stored packets by timestamp method: the index is NGL_METHOD_... of netgrain_listen.h */
    uint64_t timestamp_deviation_ns; /* estimated standard deviation */
    uint64_t clock_synchronised;     /* 1 if a time daemon synchronised the system clock */
    uint64_t clock_unsynchronised;   /* 1 if no time daemon synchronised the system clock */
    uint64_t clock_maximum_error_us; /* maximum error of the system clock */
    uint64_t clock_rate;             /* 1000000000 plus the correction of the rate in parts per billion */
    uint64_t clock_step_forward_ns;  /* largest step of the system clock forward */
    uint64_t clock_step_back_ns;     /* largest step of the system clock back */
} netgrain_second;

/* Queries the flow records of a store that overlap the interval and match the filter, in order of their begin. In the filter,
 * src is the initiator and dst the responder; primitives that flow records cannot answer are rejected
 * (docs/reference/filters.md lists them).
 *
 * With NETGRAIN_FOLLOW, the results continue with new records, each once, about a second after a flow ended or reached its
 * active timeout. `late` is the greatest delay of a record after its last packet in nanoseconds; a record with a longer delay
 * is missed. 0 means 90 s, which suits the default timeouts; use more if the meter has longer timeouts. The results end at
 * netgrain_flows_stop, or `late` after `to`. Records of old captures that are imported later are found by a query without
 * NETGRAIN_FOLLOW. Returns NULL and fills `err` on failure. */
netgrain_flows *netgrain_flows_open(const char *store, const netgrain_query *query, uint64_t late,
                                    netgrain_error *err);

/* Returns 1 and sets `*flow` to the next record; returns 0 and sets `*flow` to NULL at the end or after netgrain_flows_stop;
 * returns -1 and fills `err` on failure. With NETGRAIN_FOLLOW the function waits for the next record. */
int netgrain_flows_next(netgrain_flows *flows, const netgrain_flow **flow, netgrain_error *err);

/* Calls the callback for each record, as netgrain_loop does for packets. */
typedef int (*netgrain_flow_callback)(void *user, const netgrain_flow *flow);
int64_t netgrain_flows_loop(netgrain_flows *flows, uint64_t limit, netgrain_flow_callback callback, void *user,
                            netgrain_error *err);

/* Writes the Community ID (version 1, seed 0) of the flow, as Zeek, Suricata, Arkime and others print it, into `text`, which
 * must have NETGRAIN_COMMUNITY_ID bytes, NUL included. Returns 0, or -1 and fills `err`. */
#define NETGRAIN_COMMUNITY_ID 32
int netgrain_community_id(const netgrain_flow *flow, char *text, netgrain_error *err);

/* The same functions for flow records as netgrain_stop, netgrain_is_complete, netgrain_warnings, netgrain_warning and
 * netgrain_close for packets. */
void netgrain_flows_stop(netgrain_flows *flows);
int netgrain_flows_is_complete(netgrain_flows *flows);
size_t netgrain_flows_warnings(netgrain_flows *flows);
const char *netgrain_flows_warning(netgrain_flows *flows, size_t number);
void netgrain_flows_close(netgrain_flows *flows);

/* Queries the rows of a store that overlap the interval: one row for each second, interface and direction, in this order. A
 * query with a filter is rejected.
 *
 * With NETGRAIN_FOLLOW, the results continue with new rows, about three seconds after their second began, in order of time
 * for each interface; rows of late packets for a second that was already returned are omitted. The results end at
 * netgrain_series_stop, or half a minute after `to`. Returns NULL and fills `err` on failure. */
netgrain_series *netgrain_series_open(const char *store, const netgrain_query *query, netgrain_error *err);

/* Returns 1 and sets `*second` to the next row; returns 0 and sets `*second` to NULL at the end; returns -1 and fills `err`
 * on failure. */
int netgrain_series_next(netgrain_series *series, const netgrain_second **second, netgrain_error *err);

/* Calls the callback for each row, as netgrain_loop does for packets. */
typedef int (*netgrain_second_callback)(void *user, const netgrain_second *second);
int64_t netgrain_series_loop(netgrain_series *series, uint64_t limit, netgrain_second_callback callback, void *user,
                             netgrain_error *err);

/* Names of loss causes and notes by their numbers, as in docs/reference/counters.md ("nic", "ring_full", "truncated"). A
 * number keeps its meaning in later versions. The names are always valid; NULL if the number does not exist. */
const char *netgrain_loss_name(uint32_t number);
const char *netgrain_note_name(uint32_t number);

/* As netgrain_stop, netgrain_is_complete, netgrain_warnings, netgrain_warning and netgrain_close. */
void netgrain_series_stop(netgrain_series *series);
int netgrain_series_is_complete(netgrain_series *series);
size_t netgrain_series_warnings(netgrain_series *series);
const char *netgrain_series_warning(netgrain_series *series, size_t number);
void netgrain_series_close(netgrain_series *series);

/* ---- Functions without a handle ---- */

/* Parses a time: 2026-11-21T10:42:00Z (with any offset), 10:42 (today), 1795257720.5, now, -10min. Times without a zone are
 * UTC. Returns 0, or -1 and fills `err`. */
int netgrain_time(const char *text, uint64_t *nanos, netgrain_error *err);

/* Checks the syntax of a packet filter: returns 0, or -1 and fills `err` with the position of the error and a suggestion. */
int netgrain_check_filter(const char *filter, netgrain_error *err);

/* The version of the library as text, such as "0.1.0", and its NETGRAIN_API_VERSION. */
const char *netgrain_version(void);
uint32_t netgrain_api_version(void);

#ifdef __cplusplus
}
#endif

#endif
