//! The table of all configuration keys: it defines the values, their defaults, the output of `--dump`, the text of
//! `docs/reference/configuration.md`, and which keys a reload may change.

use super::groups::Group;
use super::raw_value::RawValue;
use super::value::{Age, Count, DuplicateMode, DuplicateTable, IdleOf, Keep, Setting, Size, SourceKind};
use super::value_error::ValueError;
use crate::units::{CpuList, Mode};
use duplicates::Classes;
use std::path::PathBuf;
use std::time::Duration;
use store::MeterKey;
use timestamping::{SwitchTimestamps, TimestampSetting};

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// A change takes effect at the next start of the process; SIGHUP does not apply it.
    Start,
    /// A change takes effect at the next start of the process, or at SIGHUP if that comes first.
    Reload,
}

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// The name of the key, as `section.key`.
    pub name: &'static str,
    /// The type of the value of the key.
    pub kind: &'static str,
    /// The description of the key.
    pub description: &'static str,
    /// When a change takes effect.
    pub when: TakesEffect,
}

impl Key {
    /// Returns the section of the key: the part of its name before the dot.
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// Returns the name of the key within its section: the part after the dot.
    pub fn key(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, key)| key)
    }
}

macro_rules! sections {
    ($($(#[doc = $about:literal])+ $section:ident $Section:ident {
        $($(#[doc = $meaning:literal])+ $key:ident: $type:ty = $default:expr, $when:ident;)+
    })+) => {
        /// The values of all keys.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[doc = $about])+ pub $section: $Section,)+
            /// Groups that exist before the first packet.
            pub group: Vec<Group>,
        }

        $($(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Section {
            $($(#[doc = $meaning])+ pub $key: $type,)+
        }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        })+

        /// All keys, section by section.
        pub const KEYS: &[Key] = &[$($(Key {
            name: concat!(stringify!($section), ".", stringify!($key)),
            kind: <$type as Setting>::KIND,
            description: concat!($($meaning),+),
            when: TakesEffect::$when,
        },)+)+];

        /// The description of each section.
        pub const SECTIONS: &[(&str, &str)] = &[$((stringify!($section), concat!($($about),+)),)+];

        impl Config {
            /// Sets a key; `None` if no key has this name.
            pub fn set(&mut self, name: &str, given: &RawValue) -> Option<Result<(), ValueError>> {
                $($(if name == concat!(stringify!($section), ".", stringify!($key)) {
                    return Some(<$type as Setting>::read(given).map(|value| self.$section.$key = value));
                })+)+
                None
            }

            /// Returns the value of a key as TOML; the text is empty if no key has this name.
            pub fn show(&self, name: &str) -> String {
                $($(if name == concat!(stringify!($section), ".", stringify!($key)) {
                    return self.$section.$key.show();
                })+)+
                String::new()
            }
        }
    };
}

sections! {
    /// Where packets come from.
    capture Capture {
        /// Interfaces to capture from; each has its own directory in the store, ring socket and interface number.
        interfaces: Vec<String> = Vec::new(), Start;
        /// Capture method; auto means AF_XDP on an interface that is dedicated or that neither the host nor another
        /// program uses, otherwise TPACKET.
        source: SourceKind = SourceKind::Auto, Start;
        /// Dedicate the interfaces to capture: the host no longer receives packets from them.
        dedicated: bool = false, Start;
        /// Number of queues (AF_XDP) or threads (TPACKET) of each interface; none means all queues, or one thread.
        queues: Option<Count> = None, Start;
        /// Processors for the capture threads, assigned in turn: 2 or 2,3 or 4-7; none means those of the interface's
        /// NUMA node.
        cpus: Option<CpuList> = None, Start;
        /// The capture threads spin instead of sleeping while no packets arrive.
        spin: bool = false, Start;
        /// Method of timestamping (docs/reference/timestamps.md). auto: the timestamps of the kernel or the NIC with
        /// TPACKET, and poll with AF_XDP.
        timestamps: TimestampSetting = TimestampSetting::Auto, Start;
        /// Format of the timestamps that an aggregation switch adds to the frames (docs/reference/timestamps.md): the
        /// timestamp replaces that of the capture, and the bytes of the switch are removed from the frame. off leaves
        /// the frames as they are.
        switch_timestamps: SwitchTimestamps = SwitchTimestamps::Off, Start;
        /// AF_XDP busy polling: the capture thread runs the receive loop of the driver.
        busy_poll: bool = false, Start;
        /// Size of the ring of each queue. none means: for interfaces, 1 GiB for all queues of an interface together,
        /// and for all interfaces at most an eighth of the memory limit of the process; for files, as much as a file
        /// needs, at most 64 MiB.
        ring: Option<Size> = None, Start;
        /// Maximum number of bytes kept of each packet; 0 keeps all.
        snaplen: Count = Count(0), Start;
        /// Treatment of duplicates, the further copies of a packet that was sent once: off, mark (stored, with the
        /// class in the descriptor), drop (not stored, counted in the ledger).
        duplicates: DuplicateMode = DuplicateMode::Off, Start;
        /// Classes of duplicates: switching, routing, nat, proxying, fragment.
        duplicate_classes: Classes = Classes::USUAL, Start;
        /// Longest time between a packet and its duplicate, at most 60s.
        duplicate_window: Duration = duplicates::settings::WINDOW, Start;
        /// Longest time between two equal packets without identification that are duplicates; 0s excludes them.
        duplicate_repeat_window: Duration = Duration::ZERO, Start;
        /// Packets with which a packet is compared: those of its queue, those of its interface, or those of all
        /// interfaces of this run, for example of both mirrors of a link. interface and all share a table between the
        /// capture threads.
        duplicate_table: DuplicateTable = DuplicateTable::Queue, Start;
        /// Equal packets of different interfaces are duplicates, also without identification: each interface gets at
        /// most one copy of a packet, as from the mirrors of both ends of a link. Needs duplicate_table = "all".
        duplicate_mirrored_interfaces: bool = false, Start;
        /// Packets that a table of duplicates holds; each needs about 170 bytes of memory.
        duplicate_records: Count = Count(duplicates::settings::RECORDS as u64), Start;
        /// Capture filter (docs/reference/filters.md): packets that do not match are counted but not stored.
        filter: Option<String> = None, Start;
        /// File with a program of the packet language that decides on every packet before it is stored, in the kernel
        /// as far as possible (docs/design/kernel-programs.md). SIGHUP rereads the file and swaps the running program
        /// if it differs; it can neither add nor remove a program.
        program: Option<PathBuf> = None, Reload;
    }
    /// The store: the directory tree for packets, flow records and time series.
    store Store {
        /// Directory of the store; none means that nothing is stored, and data is only exported and reported.
        dir: Option<PathBuf> = None, Start;
        /// Maximum time that retention waits while a query reads the files to remove; after this time retention removes
        /// newer files, or, if there are no newer files, the files that the query reads.
        wait_for_readers: Duration = store::hold::WAIT, Start;
    }
    /// Packet files.
    packets Packets {
        /// Record packets.
        record: bool = true, Start;
        /// Size at which a new packet file begins; if the key is not set, a smaller size is used on a volume of less
        /// than eight times this size.
        segment: Size = Size(2 << 30), Start;
        /// Begin a new file at every multiple of this span, even without packets.
        rotate: Option<Duration> = None, Start;
        /// Maximum number of writes in flight.
        depth: Count = Count(engine::WRITE_DEPTH as u64), Start;
        /// Space to keep free on the volume: 5%, 200GB, or none to remove nothing and wait when the volume is full;
        /// auto removes old files of an interface to make space for its next files, and removes no files for a replay.
        keep_free: Keep = Keep(None), Reload;
        /// Maximum total size of the packet files of each interface.
        max_size: Option<Size> = None, Reload;
        /// Maximum age of packets; older files are removed.
        max_age: Option<Age> = None, Reload;
        /// Directory to which packet files are moved instead of being removed.
        archive: Option<PathBuf> = None, Reload;
    }
    /// Flow records.
    flow Flow {
        /// Make and store flow records.
        record: bool = true, Start;
        /// Number of shards of the flow table, each with a part of the capacity; the flow records do not depend on this
        /// number.
        shards: Count = Count(1), Start;
        /// One record for both directions of a flow (biflow, RFC 5103).
        bidirectional: bool = true, Start;
        /// A flow ends after this time without a packet.
        idle_timeout: Duration = Duration::from_secs(30), Start;
        /// Idle timeouts of single protocols: udp=10s, icmp=5s, 89=1min.
        protocol_idle_timeouts: Vec<IdleOf> = Vec::new(), Start;
        /// A flow that continues gets an interim record each time this span has passed; none means one record per flow,
        /// at its end.
        active_timeout: Option<Duration> = Some(Duration::from_secs(300)), Start;
        /// A closed TCP flow is kept for this time, for retransmitted packets.
        close_timeout: Duration = Duration::from_secs(5), Start;
        /// The entry of a flow of many packets is compressed after this time without a packet; 0s means that entries
        /// are never compressed. The flow records do not depend on this key.
        compress_after: Duration = Duration::from_secs(5), Start;
        /// Maximum number of active flows of each interface, over all shards of its meter. If it is not set, it is
        /// 1048576, or fewer if the flow tables of all interfaces would need more than an eighth of the memory limit of
        /// the process. Memory is allocated as flows begin.
        capacity: Option<Count> = None, Start;
        /// Number of initial packets of a flow whose time, length and flags are stored.
        initial_packets: Count = Count(10), Start;
        /// Number of payload bytes that are stored from the beginning of each direction of a flow.
        payload: Count = Count(0), Start;
        /// VLAN ids are part of the flow key.
        by_vlan: bool = true, Start;
        /// The tunnel is part of the flow key.
        by_tunnel: bool = true, Start;
        /// TEIDs of GTP-U are part of the flow key; each direction has its own TEID, so the two directions are then two
        /// flows.
        by_teid: bool = false, Start;
        /// Maximum total size of the flow records of each interface.
        max_size: Option<Size> = None, Reload;
        /// Maximum age of flow records; older files are removed.
        max_age: Option<Age> = None, Reload;
    }
    /// Time series: one row per second, interface and direction.
    series Series {
        /// Make and store rows.
        record: bool = true, Start;
        /// Secret key of the hash that counts distinct addresses; none means that a key is generated for each interface
        /// and stored in the directory of the interface.
        key: Option<MeterKey> = None, Start;
        /// Maximum total size of the rows of each interface.
        max_size: Option<Size> = None, Reload;
        /// Maximum age of rows; older files are removed.
        max_age: Option<Age> = None, Reload;
    }
    /// Export of flow records and series to other machines.
    export Export {
        /// Export targets: `udp:HOST[:PORT]`, `netflow9+udp:HOST[:PORT]`, `tcp:HOST[:PORT]`,
        /// `multicast:INTERFACE[:PORT][,ttl=N]`, `file:PATH`. Multicast groups and files get flow records and rows, UDP
        /// and TCP targets get flow records only, unless `,kinds=flows`, `,kinds=series` or `,kinds=both` follows the
        /// target. UDP and TCP targets get one record per direction with the elements of IANA, multicast groups and
        /// files one record for both directions with all elements, unless `,fields=standard`, `,fields=biflow` (the
        /// elements of IANA, both directions in one record) or `,fields=full` follows the target.
        targets: Vec<String> = Vec::new(), Reload;
    }
    /// Access of other processes to the packets.
    listen Listen {
        /// Path of the ring socket, for a configuration with one interface; none means that no listeners are admitted;
        /// auto means /run/netgrain/IFACE.sock for interfaces (IFACE.netns-NUMBER.sock in network namespaces other than
        /// the initial one) and none for files and simulations.
        socket: PathBuf = PathBuf::from("auto"), Start;
        /// Permission bits of the socket. Whatever the bits, only root, the user of the engine, and the owner and the
        /// group of the socket may connect.
        mode: Mode = Mode(0o660), Start;
        /// Owner of the socket, who may attach listeners and create groups: a number, or a name of /etc/passwd.
        owner: Option<String> = None, Start;
        /// Group of the socket, whose members may attach listeners and create groups: a number, or a name of
        /// /etc/group.
        group: Option<String> = None, Start;
        /// Allow the owner and the group to attach lossless readers, which can make the capture lose packets.
        lossless: bool = false, Start;
        /// Interfaces through which groups of users other than root and the user of the engine may send packets.
        forward: Vec<String> = Vec::new(), Start;
        /// Time after which the producer no longer waits for a lossless reader of another process that keeps the ring
        /// full; 0 means to wait for ever.
        reader_timeout: Duration = Duration::from_secs(10), Start;
    }
    /// Metrics, and the user of the process.
    status Status {
        /// Serve Prometheus metrics at http://ADDRESS/metrics.
        metrics: Option<String> = None, Start;
        /// Run as this user, with only the capabilities that capture needs; the user must be able to write to the
        /// store.
        user: Option<String> = None, Start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_description_and_a_default_that_reads_back() {
        let defaults = Config::default();
        for key in KEYS {
            assert!(key.description.trim().ends_with('.'), "{}: {:?}", key.name, key.description);
            let text = defaults.show(key.name);
            let mut reread = Config::default();
            let line = format!("[{}]\n{} = {text}\n", key.section(), key.key());
            super::super::read::read(&line, "".as_ref(), &mut reread).unwrap_or_else(|e| panic!("{line}: {e:?}"));
            assert_eq!(reread, defaults, "{line}");
        }
    }
}
