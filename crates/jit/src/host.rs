//! Defines the Rust functions that generated code calls: for flow maps, large sets, fragment tracking, the header
//! parser, and the lists of actions and traces. Every pointer argument of these functions is valid, because this crate
//! itself wrote the pointer into the generated code or into its context.

use crate::packet::{Packet, PacketAction, ParseDepth, Verdict};
use crate::table::Table;
use ::ir::interp::{Action, Execution};
use ::ir::{DuplicateDetectors, FragmentTracker};
use ::ir::{FragmentScope, Log, Set};

/// The data that generated code needs in addition to the packets. The pointers are valid during one call of the
/// generated code.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    pub hash_key: u64,
    /// [`::ir::COUNTERS`] counters.
    pub counters: *mut u64,
    /// Pointer to an array with one table for each map of the program.
    pub tables: *const *mut Table,
    pub acts: *mut Vec<PacketAction>,
    pub traces: *mut Vec<Execution>,
    pub datagrams: *const FragmentTracker,
    pub detectors: *const DuplicateDetectors,
    /// The number of packets that the worker evaluated before the first packet of this call.
    pub sequence: u64,
}

/// Offsets in [`Context`].
pub(crate) mod at {
    use super::Context;
    use std::mem::offset_of;

    pub const HASH_KEY: usize = offset_of!(Context, hash_key);
    pub const COUNTERS: usize = offset_of!(Context, counters);
    pub const TABLES: usize = offset_of!(Context, tables);
    pub const ACTS: usize = offset_of!(Context, acts);
    pub const TRACES: usize = offset_of!(Context, traces);
    pub const DATAGRAMS: usize = offset_of!(Context, datagrams);
    pub const DETECTORS: usize = offset_of!(Context, detectors);
    pub const SEQUENCE: usize = offset_of!(Context, sequence);
}

/// Encodes an action as a number.
pub(crate) const fn code(action: Action) -> u32 {
    match action {
        Action::Forward(interface) => interface as u32,
        Action::Log(Log::Message(text)) => 1 << 16 | text as u32,
        Action::Log(Log::Packet) => 2 << 16,
        Action::Log(Log::Buffer) => 3 << 16,
        Action::Log(Log::Trace) => 4 << 16,
    }
}

const fn action(code: u32) -> Action {
    match code >> 16 {
        0 => Action::Forward(code as u16),
        1 => Action::Log(Log::Message(code as u16)),
        2 => Action::Log(Log::Packet),
        3 => Action::Log(Log::Buffer),
        _ => Action::Log(Log::Trace),
    }
}

/// Appends an action of a packet to the list of actions.
pub(crate) unsafe extern "C" fn act(acts: *mut Vec<PacketAction>, packet: u64, code: u32) {
    // SAFETY: `acts` is the list of actions in the `Context`; no other code uses it while the generated code runs.
    let acts = unsafe { &mut *acts };
    acts.push(PacketAction { packet: packet as u32, action: action(code) });
}

/// Appends the current state of a packet's verdict to the list of traces.
pub(crate) unsafe extern "C" fn trace(traces: *mut Vec<Execution>, record: *const Verdict) {
    // SAFETY: `traces` is the list of traces in the `Context`, and `record` is among the verdicts that were passed to
    // the generated code; no other code uses them during the call.
    let (traces, record) = unsafe { (&mut *traces, &*record) };
    traces.push(record.outcome());
}

/// Tests whether a set contains an address.
pub(crate) unsafe extern "C" fn member(set: *const Set, hi: u64, lo: u64) -> u64 {
    // SAFETY: the compiler wrote this address into the code; it is that of a set of the program, which lives as long as
    // the code.
    let set = unsafe { &*set };
    set.contains(u128::from(hi) << 64 | u128::from(lo)).into()
}

/// Parses the headers of a packet.
pub(crate) unsafe extern "C" fn look(packet: *mut Packet<'_>, depth: u64) {
    // SAFETY: `packet` is among the packets that were passed to the generated code; no other code uses it during the
    // call.
    let packet = unsafe { &mut *packet };
    packet.look(if depth == ParseDepth::Inner as u64 { ParseDepth::Inner } else { ParseDepth::Outer });
}

/// Returns the value that fragment tracking stores for the datagram of this packet: a steering value, or ports.
pub(crate) unsafe extern "C" fn datagram(
    datagrams: *const FragmentTracker,
    packet: *const Packet<'_>,
    of: u64,
    number: u64,
) -> u64 {
    // SAFETY: `datagrams` is the fragment tracker in the `Context`, which lives as long as the worker, and `packet` is
    // among the packets that were passed to the generated code.
    let (datagrams, packet) = unsafe { (&*datagrams, &*packet) };
    let (parts, form) = parts_and_form(of);
    datagrams.number(packet.bytes(), &packet.facts, parts, form, number)
}

/// Returns the number of the duplicate class of a packet, or 0.
pub(crate) unsafe extern "C" fn duplicate(
    detectors: *const DuplicateDetectors,
    packet: *mut Packet<'_>,
    detector: u64,
) -> u64 {
    // SAFETY: `detectors` are those in the `Context`, which live as long as the worker, and `packet` is among the
    // packets that were passed to the generated code; no other code uses it during the call.
    let (detectors, packet) = unsafe { (&*detectors, &mut *packet) };
    // The code for a common case runs before the headers are parsed.
    packet.look(ParseDepth::Outer);
    detectors.class(detector as u16, packet.bytes(), &packet.facts)
}

/// Encodes the two parameters of fragment tracking, `parts` and `form`, as one number.
pub(crate) const fn of_datagram(parts: FragmentScope, form: u32) -> u64 {
    (parts as u64) << 32 | form as u64
}

const fn parts_and_form(of: u64) -> (FragmentScope, u32) {
    const OUTER: u64 = FragmentScope::Outer as u64;
    const INNER: u64 = FragmentScope::Inner as u64;
    let parts = match of >> 32 {
        OUTER => FragmentScope::Outer,
        INNER => FragmentScope::Inner,
        _ => FragmentScope::Enclosing,
    };
    (parts, of as u32)
}

/// Functions for accesses to flow maps. The key is on the stack of the generated code and has as many words as the map
/// declares.
pub(crate) mod map {
    use super::Table;

    pub unsafe extern "C" fn has<const W: usize>(table: *mut Table, key: *const [u64; W], now: u64) -> u64 {
        // SAFETY: `table` is a table in the `Context`, and no other call uses it at the same time; `key` is on the
        // stack of the caller.
        unsafe { (*table).has(&*key, now).into() }
    }

    pub unsafe extern "C" fn get<const W: usize>(table: *mut Table, key: *const [u64; W], now: u64) -> u64 {
        // SAFETY: as in `has`.
        unsafe { (*table).get(&*key, now) }
    }

    pub unsafe extern "C" fn put<const W: usize>(table: *mut Table, key: *const [u64; W], now: u64, value: u64) {
        // SAFETY: as in `has`.
        unsafe { (*table).put(&*key, value, now) }
    }

    pub unsafe extern "C" fn add<const W: usize>(table: *mut Table, key: *const [u64; W], now: u64, by: u64) -> u64 {
        // SAFETY: as in `has`.
        unsafe { (*table).add(&*key, by, now) }
    }

    pub unsafe extern "C" fn delete<const W: usize>(table: *mut Table, key: *const [u64; W]) {
        // SAFETY: as in `has`.
        unsafe { (*table).delete(&*key) }
    }

    pub unsafe extern "C" fn announce<const W: usize>(table: *mut Table, key: *const [u64; W]) {
        // SAFETY: as in `has`.
        unsafe { (*table).announce(&*key) }
    }
}

/// The functions that generated code calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum HostCall {
    Act,
    Trace,
    Member,
    ParseDepth,
    Datagram,
    Duplicate,
    Has,
    Get,
    Put,
    Add,
    Delete,
    Announce,
}

impl HostCall {
    /// The address of this function. A function for flow maps is compiled once for each number of words of a key;
    /// `words` selects the version.
    pub fn address(self, words: u8) -> *const u8 {
        macro_rules! by_words {
            ($f:ident) => {
                match words {
                    1 => map::$f::<1> as *const u8,
                    2 => map::$f::<2> as *const u8,
                    3 => map::$f::<3> as *const u8,
                    4 => map::$f::<4> as *const u8,
                    5 => map::$f::<5> as *const u8,
                    6 => map::$f::<6> as *const u8,
                    7 => map::$f::<7> as *const u8,
                    _ => map::$f::<8> as *const u8,
                }
            };
        }
        match self {
            Self::Act => act as *const u8,
            Self::Trace => trace as *const u8,
            Self::Member => member as *const u8,
            Self::ParseDepth => look as *const u8,
            Self::Datagram => datagram as *const u8,
            Self::Duplicate => duplicate as *const u8,
            Self::Has => by_words!(has),
            Self::Get => by_words!(get),
            Self::Put => by_words!(put),
            Self::Add => by_words!(add),
            Self::Delete => by_words!(delete),
            Self::Announce => by_words!(announce),
        }
    }

    /// The widths in bits of the arguments of the function, and true if it returns a value.
    pub const fn shape(self) -> (&'static [u8], bool) {
        match self {
            Self::Act => (&[64, 64, 32], false),
            Self::Member | Self::Duplicate => (&[64, 64, 64], true),
            Self::Has | Self::Get => (&[64, 64, 64], true),
            Self::Put => (&[64, 64, 64, 64], false),
            Self::Add | Self::Datagram => (&[64, 64, 64, 64], true),
            Self::Trace | Self::ParseDepth | Self::Delete | Self::Announce => (&[64, 64], false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_round_trip_through_their_code() {
        let logs = [Log::Message(7), Log::Message(u16::MAX), Log::Packet, Log::Buffer, Log::Trace].map(Action::Log);
        for a in logs.into_iter().chain([0, 9, u16::MAX].map(Action::Forward)) {
            assert_eq!(action(code(a)), a);
        }
    }
}
