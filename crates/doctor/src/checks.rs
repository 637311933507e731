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
    /// The rate that is captured without loss is lower than possible.
    Slows,
}

impl Cost {
    /// Returns the name in tables and documents.
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

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// The name, as `--only` takes it.
    pub name: &'static str,
    pub(crate) about: CheckSubject,
    /// The kind of cost.
    pub cost: Cost,
    /// The cost in a sentence.
    pub why: &'static str,
    /// True if `--fix` can correct the setting in at least some cases.
    pub can_fix: bool,
}

macro_rules! checks {
    ($($row:ident: $name:literal, $about:ident, $cost:ident, $can_fix:ident, $why:literal;)*) => {
        $(pub static $row: Check =
            Check { name: $name, about: CheckSubject::$about, cost: Cost::$cost, why: $why, can_fix: checks!(@ $can_fix) };)*

        impl Check {
            /// Every check there is.
            pub const ALL: &[&Self] = &[$(&$row),*];
        }
    };
    (@ fix) => { true };
    (@ command) => { false };
}

checks! {
    LINK: "link", Port, Loses, command,
        "an interface without a link delivers nothing, and one with half duplex drops what collides";
    SOURCE: "source", Port, Slows, command,
        "without native XDP each packet passes the network stack, with a copy in the kernel each is moved once more";
    XDP_TAKEN: "xdp-taken", Port, Fails, command,
        "somebody's XDP program sees the packets first, and AF_XDP cannot have the interface";
    FUNCTION: "virtual-function", Port, Loses, command,
        "a virtual function receives only its own packets unless the host trusts it";
    MERGING: "merging", Port, Merges, fix,
        "packets of one connection come out as one long packet: counts, lengths and stamps are not those of the wire";
    SENDING: "sending-offloads", Port, Lies, command,
        "what this host sends is captured before the card cuts it up and fills in its checksums";
    VLAN: "vlan-stripping", Port, Lies, fix,
        "the card takes the VLAN tag out before AF_XDP sees the packet, and nobody can put it back";
    RX_RING: "rx-ring", Port, Loses, fix,
        "a short ring overflows in bursts that the program would have caught up with";
    QUEUES: "queues", Port, Slows, fix,
        "more queues than processors make threads wait for each other; one queue leaves one processor with all packets";
    RSS: "rss", Port, Reorders, command,
        "the two directions of a connection come in different queues, where only their stamps tell their order";
    INTERRUPTS: "interrupts", Port, Slows, command,
        "all queues interrupt one processor, or one far from the card's memory";
    NUMA: "numa", Port, Loses, command,
        "memory of another node than the card's cost the thesis 34 to 47 % of the packets";
    MTU: "mtu", Port, Slows, command,
        "packets that do not fit one buffer of XDP force TPACKET where the driver cannot spread them";
    PAUSE: "pause", Port, Lies, fix,
        "the card makes the other end wait: bursts arrive late and losses happen where nobody counts them";
    COUNTERS: "counters", Port, Loses, command,
        "packets that were lost before netgrain could count them, since the interface came up";
    CARD_STAMPS: "card-stamps", Port, Lies, command,
        "stamps are taken when software sees the packet, microseconds after it came";
    KERNEL: "kernel", Machine, Fails, command,
        "AF_XDP, BPF links and what drivers tell of XDP need Linux 6.3, and CONFIG_XDP_SOCKETS";
    BPF_JIT: "bpf-jit", Machine, Slows, fix,
        "the XDP program is interpreted for every packet";
    IO_URING: "io-uring", Machine, Slows, fix,
        "the writer falls back to one blocking write at a time";
    PRIVILEGES: "privileges", Machine, Fails, command,
        "the kernel refuses sockets and programs to a process without the capabilities";
    MEMLOCK: "memlock", Machine, Loses, command,
        "a ring that cannot be locked can be swapped, and AF_XDP is refused its memory";
    MEMORY: "memory", Machine, Fails, command,
        "the ring must fit the memory that is free";
    HUGE_PAGES: "huge-pages", Machine, Slows, fix,
        "a ring of small pages misses the TLB at nearly every packet";
    SOFTNET: "softnet", Machine, Loses, fix,
        "the kernel dropped packets or ran out of time before any socket saw them";
    GOVERNOR: "governor", Machine, Slows, fix,
        "processors run below their speed and take their time to rise when a burst comes";
    IDLE: "idle-states", Machine, Slows, command,
        "a processor that sleeps deeply takes long to wake, while the card's ring fills";
    ISOLATION: "isolation", Machine, Slows, command,
        "processors set apart from the scheduler run only what is pinned to them: name them with --cpu";
    IRQBALANCE: "irqbalance", Machine, Slows, command,
        "irqbalance moves interrupts while packets flow";
    STEAL: "steal", Machine, Loses, command,
        "the hypervisor takes the processor away while the card's ring fills";
    CLOCK_SOURCE: "clock-source", Machine, Lies, command,
        "each stamp costs a system call, or jumps, where the time stamp counter is not to be trusted";
    CLOCK_SYNC: "clock-sync", Machine, Lies, command,
        "stamps of a clock that nobody keeps cannot be compared with those of other machines";
    TRIAL: "trial", Machine, Fails, command,
        "what AF_XDP does not deliver between two private interfaces, it will not from a real one";
    FOLDER: "folder", Store, Fails, command,
        "the recorder must be able to write there";
    FILE_SYSTEM: "file-system", Store, Slows, command,
        "files in memory vanish, and those of a network or of user space stall the writer";
    DIRECT: "direct-writes", Store, Slows, command,
        "without O_DIRECT the page cache competes with the ring for memory and stalls at its limit";
    SPACE: "space", Store, Loses, command,
        "a full volume stops the recording, and what the ring cannot hold is lost";
    DEVICE: "disk-queue", Store, Slows, command,
        "a spinning disk seeks between files, and a scheduler reorders what is already in order";
    WRITE_SPEED: "write-speed", Store, Loses, command,
        "a volume slower than the link loses what the ring cannot hold";
}

impl Check {
    /// Returns the check with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().copied().find(|c| c.name == name)
    }

    /// Returns the table as in `docs/reference/doctor.md`.
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
    fn names_are_unique_and_found() {
        for check in Check::ALL {
            assert_eq!(Check::named(check.name), Some(*check), "{}", check.name);
        }
        assert_eq!(Check::named("everything"), None);
    }

    #[test]
    fn the_documentation_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/doctor.md");
        let text = std::fs::read_to_string(path).expect("docs/reference/doctor.md");
        assert!(
            text.contains(&Check::table()),
            "docs/reference/doctor.md has another table than this:\n{}",
            Check::table()
        );
    }
}
