//! The table of all configuration keys: it defines the values, their defaults, the output of `--dump`, the text of
//! `docs/reference/configuration.md`, and which keys a reload may change.

use super::groups::Group;
use super::value::{Age, Count, IdleOf, Keep, RawValue, Setting, Size, SourceKind};
use crate::units::{CpuList, Mode};
use std::path::PathBuf;
use std::time::Duration;
use store::MeterKey;

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// At the next start.
    Start,
    /// At the next start or at SIGHUP.
    Reload,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// `section.key`.
    pub name: &'static str,
    /// The type of its value.
    pub kind: &'static str,
    /// Its description.
    pub description: &'static str,
    /// When a change takes effect.
    pub when: TakesEffect,
}

impl Key {
    /// The part before the point.
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part after the point.
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
            pub fn set(&mut self, name: &str, given: &RawValue) -> Option<Result<(), String>> {
                $($(if name == concat!(stringify!($section), ".", stringify!($key)) {
                    return Some(<$type as Setting>::read(given).map(|value| self.$section.$key = value));
                })+)+
                None
            }

            /// The value of a key as TOML; empty if no key has this name.
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
        /// Interfaces to watch, each with a store folder, a listener's socket and a number of its own.
        interfaces: Vec<String> = Vec::new(), Start;
        /// Which way to take packets from an interface: AF_XDP on one that is dedicated or that the host does not use,
        /// else TPACKET.
        source: SourceKind = SourceKind::Auto, Start;
        /// Take the interfaces for capture alone: the host no longer receives what arrives there.
        dedicated: bool = false, Start;
        /// Queues (AF_XDP) or threads (TPACKET) of each interface; none takes all queues, or one thread.
        queues: Option<Count> = None, Start;
        /// Processors for the capture threads, in turn: 2 or 2,3 or 4-7; none takes those of the interface's NUMA node.
        cpus: Option<CpuList> = None, Start;
        /// Spin instead of sleeping while no packets come.
        spin: bool = false, Start;
        /// AF_XDP: let the capture thread run the driver's receive loop itself.
        busy_poll: bool = false, Start;
        /// Memory of each queue's ring; none takes 1 GiB for all queues of an interface, at most an eighth of the
        /// memory that the process may have for all interfaces; for files what they need, at most 64 MiB.
        ring: Option<Size> = None, Start;
        /// Most bytes kept of each packet; 0 keeps all.
        snaplen: Count = Count(0), Start;
        /// Only packets that match, in the words of docs/reference/filters.md: the others are only counted.
        filter: Option<String> = None, Start;
        /// File with a program of the packet language that judges every packet before it is stored, in the kernel as
        /// far as it can (docs/design/kernel-programs.md). SIGHUP reads it again, and the program that runs is
        /// exchanged if it differs; one can be neither added nor taken away by that.
        program: Option<PathBuf> = None, Reload;
    }
    /// Where everything is kept.
    store Store {
        /// The folder; none keeps nothing, which leaves the export and the status.
        dir: Option<PathBuf> = None, Start;
        /// How long a query is waited for that holds files which should go; then later files go first, and where there
        /// are none, the files go while the query reads.
        wait_for_readers: Duration = store::hold::WAIT, Start;
    }
    /// The packets.
    packets Packets {
        /// Record them.
        record: bool = true, Start;
        /// A new file at this size; where nobody chose one, less on a volume that has not eight times as much.
        segment: Size = Size(2 << 30), Start;
        /// A new file at every multiple of this span, silence included.
        rotate: Option<Duration> = None, Start;
        /// Writes in flight at a time.
        depth: Count = Count(engine::WRITE_DEPTH as u64), Start;
        /// Keep so much of the volume free: 5%, 200GB, or none to wait when it is full; auto makes room for the next
        /// files of an interface and keeps those of a replay.
        keep_free: Keep = Keep(None), Reload;
        /// Let the packets of each interface take at most so much.
        max_size: Option<Size> = None, Reload;
        /// Keep no packets that are older.
        max_age: Option<Age> = None, Reload;
        /// Move packet files there instead of removing them.
        archive: Option<PathBuf> = None, Reload;
    }
    /// Flow records.
    flow Flow {
        /// Make and keep them.
        record: bool = true, Start;
        /// Parts of the flow table, each with its share of the capacity; the records are the same for any number.
        shards: Count = Count(1), Start;
        /// One record for both directions of a conversation (RFC 5103).
        bidirectional: bool = true, Start;
        /// A flow ends when it was silent for so long.
        idle_timeout: Duration = Duration::from_secs(30), Start;
        /// The same for single protocols: udp=10s, icmp=5s, 89=1min.
        protocol_idle_timeouts: Vec<IdleOf> = Vec::new(), Start;
        /// One that goes on gives a record each time so much has passed; none: only at its end.
        active_timeout: Option<Duration> = Some(Duration::from_secs(300)), Start;
        /// How long a TCP flow is kept after its end, for packets that are sent again.
        close_timeout: Duration = Duration::from_secs(5), Start;
        /// A flow of many packets that was silent for so long is packed until it is needed; 0s: never. No record
        /// depends on it.
        compress_after: Duration = Duration::from_secs(5), Start;
        /// Flows in memory at most, of all shards together; none takes 1048576 for each interface, at most as many as
        /// fit an eighth of the memory that the process may have. Memory is taken as they come.
        capacity: Option<Count> = None, Start;
        /// First packets of a flow of which time, length and flags are kept.
        initial_packets: Count = Count(10), Start;
        /// First bytes carried that are kept, of each direction.
        payload: Count = Count(0), Start;
        /// VLAN ids tell flows apart.
        by_vlan: bool = true, Start;
        /// Tunnels tell flows apart.
        by_tunnel: bool = true, Start;
        /// TEIDs of GTP-U tell flows apart; each direction has one of its own, so a conversation is then two flows.
        by_teid: bool = false, Start;
        /// Let the flow records of each interface take at most so much.
        max_size: Option<Size> = None, Reload;
        /// Keep no flow records that are older.
        max_age: Option<Age> = None, Reload;
    }
    /// One row each second, interface and direction.
    series Series {
        /// Make and keep them.
        record: bool = true, Start;
        /// Secret under which addresses are hashed to be counted; none draws one for each interface and keeps it with
        /// its packets.
        key: Option<MeterKey> = None, Start;
        /// Let the rows of each interface take at most so much.
        max_size: Option<Size> = None, Reload;
        /// Keep no rows that are older.
        max_age: Option<Age> = None, Reload;
    }
    /// Flow records and series for other machines.
    export Export {
        /// Collectors: `udp:HOST[:PORT]`, `netflow9+udp:HOST[:PORT]`, `tcp:HOST[:PORT]`,
        /// `multicast:INTERFACE[:PORT][,ttl=N]`, `file:PATH`. Groups and files get rows too, the others flow records,
        /// unless `,kinds=flows`, `,kinds=series` or `,kinds=both` stands behind one. UDP and TCP get one record per
        /// direction with IANA's elements, groups and files one record for both directions with all elements, unless
        /// `,fields=standard`, `,fields=biflow` (IANA's elements, both directions in one record) or `,fields=full`
        /// stands behind one.
        targets: Vec<String> = Vec::new(), Reload;
    }
    /// Who may read along.
    listen Listen {
        /// The socket of an interface, when there is one interface; none lets nobody in, auto is
        /// /run/netgrain/IFACE.sock for interfaces (IFACE.netns-NUMBER.sock in other network namespaces than the
        /// machine's first) and none for files and simulations.
        socket: PathBuf = PathBuf::from("auto"), Start;
        /// Permission bits of the socket. They let nobody in by themselves: who may come is root, the engine's user,
        /// this owner and this group.
        mode: Mode = Mode(0o660), Start;
        /// Its owner, who may then listen and ask for groups of programs: a number, or a name of /etc/passwd.
        owner: Option<String> = None, Start;
        /// Its group, whose members may then listen and ask for groups of programs: a number, or a name of /etc/group.
        group: Option<String> = None, Start;
        /// Let that owner and group attach lossless readers too, which can make capture drop packets.
        lossless: bool = false, Start;
        /// Interfaces that groups of others than root may send through.
        forward: Vec<String> = Vec::new(), Start;
        /// How long a lossless reader of another process may hold up a full ring before the producer no longer waits
        /// for it; 0 for ever.
        reader_timeout: Duration = Duration::from_secs(10), Start;
    }
    /// What is said of itself.
    status Status {
        /// Serve Prometheus metrics at http://ADDRESS/metrics.
        metrics: Option<String> = None, Start;
        /// Run as this user, with no more than capturing takes; the store must be writable for it.
        user: Option<String> = None, Start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_meaning_of_a_sentence_and_a_value_that_reads_back() {
        let usual = Config::default();
        for key in KEYS {
            assert!(key.description.trim().ends_with('.'), "{}: {:?}", key.name, key.description);
            let text = usual.show(key.name);
            let mut other = Config::default();
            let line = format!("[{}]\n{} = {text}\n", key.section(), key.key());
            super::super::read::read(&line, "".as_ref(), &mut other).unwrap_or_else(|e| panic!("{line}: {e:?}"));
            assert_eq!(other, usual, "{line}");
        }
    }
}
