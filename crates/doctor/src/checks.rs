//! The table of checks: the subject of each check, the cost of a wrong setting, and whether `--fix` can correct it.
//! Help, documentation (`docs/reference/doctor.md`) and findings are generated from these rows.

use std::fmt::Write as _;

/// The kind of subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckSubject {
    /// An interface.
    Port,
    /// The machine.
    Machine,
    /// The directory of a store.
    Store,
}

/// The cost of a wrong setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Capture does not start.
    Fails,
    /// Packets are lost.
    Loses,
    /// Packets arrive in another order than on the wire.
    Reorders,
    /// Several packets are merged into one.
    Merges,
    /// Bytes, lengths or timestamps differ from those on the wire.
    Lies,
    /// The maximum packet rate that is captured without loss is lower than possible.
    Slows,
}

impl Cost {
    /// Returns the name of the cost in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Loses => "loses",
            Self::Reorders => "reorders",
            Self::Merges => "merges",
            Self::Lies => "lies",
            Self::Slows => "slows",
        }
    }
}

/// A check of the doctor, which is one row of the table of checks.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the check, which `--only` accepts.
    pub name: &'static str,
    pub(crate) about: CheckSubject,
    /// The kind of cost that a wrong setting has.
    pub cost: Cost,
    /// The cost of a wrong setting, in a sentence.
    pub why: &'static str,
    /// True if `--fix` can correct the setting in at least some cases.
    pub can_fix: bool,
}

macro_rules! checks {
    ($($row:ident: $name:literal, $about:ident, $cost:ident, $can_fix:ident, $why:literal;)*) => {
        $(pub static $row: Check = Check {
            name: $name,
            about: CheckSubject::$about,
            cost: Cost::$cost,
            why: $why,
            can_fix: checks!(@ $can_fix),
        };)*

        impl Check {
            /// All checks.
            pub const ALL: &[&Self] = &[$(&$row),*];
        }
    };
    (@ fix) => { true };
    (@ command) => { false };
}

checks! {
    LINK: "link", Port, Loses, command,
        "an interface without a link delivers no packets, and in half duplex mode colliding frames are dropped";
    SOURCE: "source", Port, Slows, command,
        "without native XDP each packet passes the network stack; without zero copy the kernel copies each packet";
    XDP_TAKEN: "xdp-taken", Port, Fails, command,
        "another XDP program is attached, so AF_XDP cannot use the interface";
    FUNCTION: "virtual-function", Port, Loses, command,
        "a virtual function receives only its own packets unless the host trusts it";
    MERGING: "merging", Port, Merges, fix,
        "several packets of a connection are merged into one: counts, lengths and timestamps differ from the wire";
    SENDING: "sending-offloads", Port, Lies, command,
        "packets that this host sends are captured before the NIC segments them and fills in checksums";
    VLAN: "vlan-stripping", Port, Lies, fix,
        "the NIC removes the VLAN tag before AF_XDP gets the packet, and netgrain cannot restore the tag";
    RX_RING: "rx-ring", Port, Loses, fix,
        "the ring of the NIC is short, and overflows in bursts that a longer ring would hold";
    QUEUES: "queues", Port, Slows, fix,
        "with more queues than processors, threads wait for each other; with one queue, one processor handles all \
         packets";
    RSS: "rss", Port, Reorders, command,
        "the two directions of a connection arrive in different queues, so the order of their packets follows only \
         from timestamps";
    INTERRUPTS: "interrupts", Port, Slows, command,
        "all queues interrupt one processor, or a processor of another NUMA node";
    NUMA: "numa", Port, Loses, command,
        "if the ring is in the memory of another NUMA node than the NIC, packets are lost (34 to 47 % in a thesis \
         about packet capture)";
    MTU: "mtu", Port, Slows, command,
        "packets larger than an XDP buffer force TPACKET if the driver has no multi-buffer support";
    PAUSE: "pause", Port, Lies, fix,
        "pause frames make the link partner wait: bursts arrive late, and the link partner loses packets that no \
         counter of this host shows";
    COUNTERS: "counters", Port, Loses, command,
        "the NIC has lost packets since the interface came up";
    CARD_STAMPS: "card-stamps", Port, Lies, command,
        "timestamps are made by software, microseconds after the arrival of the packet";
    KERNEL: "kernel", Machine, Fails, command,
        "AF_XDP, BPF links and the XDP features of drivers need Linux 6.3 and CONFIG_XDP_SOCKETS";
    BPF_JIT: "bpf-jit", Machine, Slows, fix,
        "the XDP program is interpreted for every packet";
    IO_URING: "io-uring", Machine, Slows, fix,
        "without io_uring the writer uses one blocking write at a time";
    PRIVILEGES: "privileges", Machine, Fails, command,
        "the kernel does not let a process without capabilities open capture sockets and load programs";
    MEMLOCK: "memlock", Machine, Loses, command,
        "a ring that cannot be locked in memory can be swapped out, and AF_XDP cannot register its memory";
    MEMORY: "memory", Machine, Fails, command,
        "the ring must fit into the free memory";
    HUGE_PAGES: "huge-pages", Machine, Slows, fix,
        "in a ring of small pages, nearly every packet access misses the TLB";
    SOFTNET: "softnet", Machine, Loses, fix,
        "the kernel dropped packets, or ran out of its time budget, before any socket got them";
    GOVERNOR: "governor", Machine, Slows, fix,
        "processors run below their highest frequency and increase it slowly in a burst";
    IDLE: "idle-states", Machine, Slows, command,
        "a processor in a deep idle state wakes slowly, while the ring of the NIC fills";
    ISOLATION: "isolation", Machine, Slows, command,
        "isolated processors run only threads that are pinned to them, so give their numbers with --cpu";
    IRQBALANCE: "irqbalance", Machine, Slows, command,
        "irqbalance moves interrupts during capture";
    STEAL: "steal", Machine, Loses, command,
        "the hypervisor runs other guests on the processor while the ring of the NIC fills";
    CLOCK_SOURCE: "clock-source", Machine, Lies, command,
        "without a reliable time stamp counter, each timestamp needs a system call, or timestamps jump";
    CLOCK_SYNC: "clock-sync", Machine, Lies, command,
        "timestamps of an unsynchronised clock cannot be compared with those of other machines";
    TRIAL: "trial", Machine, Fails, command,
        "if AF_XDP does not deliver packets between two private interfaces, it does not deliver them from a real \
         interface";
    DIRECTORY: "directory", Store, Fails, command,
        "the recorder must be able to write to the directory";
    FILE_SYSTEM: "file-system", Store, Slows, command,
        "files in a memory file system are lost at a restart, and network and user-space file systems stall the writer";
    DIRECT: "direct-writes", Store, Slows, command,
        "without O_DIRECT the page cache competes with the ring for memory and stalls at its limit";
    SPACE: "space", Store, Loses, command,
        "on a full volume the recorder waits, and packets are lost when the ring is full";
    DEVICE: "disk-queue", Store, Slows, command,
        "a rotating disk loses time by seeks between files, and an I/O scheduler needlessly reorders sequential writes";
    WRITE_SPEED: "write-speed", Store, Loses, command,
        "if the volume is slower than the link, packets are lost when the ring is full";
}

impl Check {
    /// Returns the check with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().copied().find(|c| c.name == name)
    }

    /// Returns the table of checks in Markdown, as `docs/reference/doctor.md` shows it.
    pub fn table() -> String {
        let mut out = String::from("| check | about | costs | why | `--fix` |\n|---|---|---|---|---|\n");
        for c in Self::ALL {
            let about = match c.about {
                CheckSubject::Port => "interface",
                CheckSubject::Machine => "machine",
                CheckSubject::Store => "store",
            };
            let fix = if c.can_fix { "yes" } else { "" };
            let _ = writeln!(out, "| `{}` | {about} | {} | {} | {fix} |", c.name, c.cost.name(), c.why);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_found_by_its_name() {
        for check in Check::ALL {
            assert_eq!(Check::named(check.name), Some(*check), "{}", check.name);
        }
        assert_eq!(Check::named("everything"), None);
    }

    #[test]
    fn the_doctor_page_has_the_table_of_checks() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/doctor.md");
        let text = std::fs::read_to_string(path).expect("docs/reference/doctor.md");
        assert!(
            text.contains(&Check::table()),
            "docs/reference/doctor.md does not have this table:\n{}",
            Check::table()
        );
    }
}
