//! The table of exported time series fields; [`crate::fields`] describes how such a table is used.

use crate::element::{DataType, Element, Semantics, Unit};
use base::{Cause, Note};
use series::{Direction, Row, SIZE_BOUNDS, SIZES, TrafficClass};
use std::borrow::Cow;
use std::sync::LazyLock;

/// An entry of the table.
pub(crate) struct Field {
    pub element: Element,
    /// Octets on the wire.
    pub len: u16,
    pub get: fn(&Row, usize) -> u128,
    pub set: fn(&mut Row, usize, u128),
    /// The index that `get` and `set` receive: if they access an array of the row, it selects the element of the array.
    pub index: usize,
}

/// Gives access to a number of a series row that has a field of its own.
macro_rules! at {
    ($($field:tt)+) => {
        Access { get: |r, _| u128::from(r.$($field)+), set: |r, _, v| r.$($field)+ = v as _ }
    };
}

/// Gives access to the numbers of a series row that are stored in an array; the index selects one of them.
macro_rules! each {
    ($array:ident . $($field:tt)+) => {
        Access { get: |r, i| u128::from(r.$array[i].$($field)+), set: |r, i, v| r.$array[i].$($field)+ = v as _ }
    };
}

/// The functions that read a number from a series row and write it into a series row.
struct Access {
    get: fn(&Row, usize) -> u128,
    set: fn(&mut Row, usize, u128),
}

/// First element numbers of the ledger; the loss causes and notes follow in the order of `spec/events.toml`.
const LOST: u16 = 220;
const NOTES: u16 = 260;

/// The table of exported fields, in the order in which they are encoded.
pub(crate) static SERIES: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let mut table = standard();
    table.extend(own());
    table.extend(ledger());
    table
});

fn standard() -> Vec<Field> {
    use DataType::*;
    use Semantics::{Default as Plain, *};
    let mut table = Vec::new();
    let mut row = |id,
                   name: &'static str,
                   data_type,
                   semantics,
                   unit,
                   len,
                   Access { get, set }: Access,
                   meaning: &'static str| {
        let element = Element {
            is_enterprise: false,
            id,
            name: name.into(),
            data_type,
            semantics,
            unit,
            description: meaning.into(),
        };
        table.push(Field { element, len, get, set, index: 0 });
    };
    let begins = Access { get: |r, _| u128::from(r.second) * 1000, set: |r, _, v| r.second = (v / 1000) as u64 };
    let ends = Access { get: |r, _| (u128::from(r.second) + 1) * 1000, set: |_, _, _| () };
    let direction = Access {
        get: |r, _| r.direction as u128,
        set: |r, _, v| r.direction = if v == 1 { Direction::Out } else { Direction::In },
    };
    let [millis, packets, octets] = [Unit::Milliseconds, Unit::Packets, Unit::Octets];
    row(
        359,
        "monitoringIntervalStartMilliSeconds",
        DateTimeMilliseconds,
        Plain,
        millis,
        8,
        begins,
        "begin of the second that the row describes",
    );
    row(
        360,
        "monitoringIntervalEndMilliSeconds",
        DateTimeMilliseconds,
        Plain,
        millis,
        8,
        ends,
        "end of the second that the row describes",
    );
    row(10, "ingressInterface", Unsigned32, Identifier, Unit::None, 4, at!(interface), "number of the interface");
    let meaning = "0: received packets; 1: packets sent by this host";
    row(61, "flowDirection", Unsigned8, Identifier, Unit::None, 1, direction, meaning);
    row(2, "packetDeltaCount", Unsigned64, DeltaCounter, packets, 8, at!(total.packets), "number of packets");
    row(352, "layer2OctetDeltaCount", Unsigned64, DeltaCounter, octets, 8, at!(total.bytes), "octets of the frames");
    row(219, "tcpFinTotalCount", Unsigned64, TotalCounter, packets, 8, at!(fin), "packets of this second with FIN");
    row(220, "tcpRstTotalCount", Unsigned64, TotalCounter, packets, 8, at!(rst), "packets of this second with RST");
    let distinct = "distinct source addresses, estimated";
    row(378, "distinctCountOfSourceIPAddress", Unsigned64, TotalCounter, Unit::None, 8, at!(sources), distinct);
    let distinct = "distinct destination addresses, estimated";
    row(
        379,
        "distinctCountOfDestinationIPAddress",
        Unsigned64,
        TotalCounter,
        Unit::None,
        8,
        at!(destinations),
        distinct,
    );
    table
}

fn own() -> Vec<Field> {
    use Unit::{Flows, Octets, Packets};
    let mut table = Vec::new();
    for kind in TrafficClass::ALL {
        let (i, name) = (kind as usize, camel("", kind.name()));
        let id = 100 + 2 * i as u16;
        let class = kind.description();
        table.push(count(id, format!("{name}Packets"), Packets, i, each!(classes.packets), class.into()));
        table.push(count(
            id + 1,
            format!("{name}Octets"),
            Octets,
            i,
            each!(classes.bytes),
            format!("octets of {class}"),
        ));
    }
    table.push(count(114, "ipv6Packets".into(), Packets, 0, at!(ipv6.packets), "IPv6 packets".into()));
    table.push(count(115, "ipv6Octets".into(), Octets, 0, at!(ipv6.bytes), "octets of IPv6 packets".into()));
    let sizes = || Access { get: |r, i| r.sizes[i].into(), set: |r, i, v| r.sizes[i] = v as u64 };
    for i in 0..SIZES {
        let (name, meaning) = match SIZE_BOUNDS.get(i) {
            Some(most) => (format!("sizeUpTo{most}Packets"), format!("packets of the size class up to {most} octets")),
            None => {
                let most = SIZE_BOUNDS[SIZES - 2];
                (format!("sizeAbove{most}Packets"), format!("packets above {most} octets"))
            }
        };
        table.push(count(120 + i as u16, name, Packets, i, sizes(), meaning));
    }
    for (id, name, access, meaning) in [
        (130, "tcpSynAlonePackets", at!(syn), "packets with SYN and no ACK"),
        (131, "tcpSynAckPackets", at!(syn_ack), "packets with SYN and ACK"),
    ] {
        table.push(count(id, name.into(), Packets, 0, access, meaning.into()));
    }
    for (id, name, access, meaning) in [
        (132, "flowsActive", at!(flows_active), "flows in the flow table at the end of the second"),
        (133, "flowsNew", at!(flows_new), "flows that began in the second"),
        (134, "flowsEnded", at!(flows_ended), "flows that ended in the second"),
    ] {
        table.push(count(id, name.into(), Flows, 0, access, meaning.into()));
    }
    for (id, name, access, meaning) in [
        (135, "tunnelNumberedPackets", at!(tunnel_numbered), "packets with a tunnel sequence number"),
        (
            136,
            "tunnelMissingPackets",
            at!(tunnel_missing),
            "packets that are missing according to the tunnel sequence numbers",
        ),
        (137, "tunnelLatePackets", at!(tunnel_late), "packets that were counted as missing and arrived later"),
    ] {
        table.push(count(id, name.into(), Packets, 0, access, meaning.into()));
    }
    for (id, name, unit, access, meaning) in [
        (138, "duplicatePackets", Packets, at!(duplicate.packets), "stored packets that are marked as copies"),
        (139, "duplicateOctets", Octets, at!(duplicate.bytes), "octets of the frames of marked copies"),
        (
            140,
            "peak1msOctets",
            Octets,
            at!(peak_1ms.bytes),
            "largest number of octets within one millisecond of the second",
        ),
        (
            141,
            "peak1msPackets",
            Packets,
            at!(peak_1ms.packets),
            "largest number of packets within one millisecond of the second",
        ),
        (
            142,
            "peak10msOctets",
            Octets,
            at!(peak_10ms.bytes),
            "largest number of octets within ten milliseconds of the second",
        ),
        (
            143,
            "peak10msPackets",
            Packets,
            at!(peak_10ms.packets),
            "largest number of packets within ten milliseconds of the second",
        ),
    ] {
        table.push(count(id, name.into(), unit, 0, access, meaning.into()));
    }
    table
}

fn ledger() -> Vec<Field> {
    use Unit::{Octets, Packets};
    let mut table = Vec::new();
    for (id, name, unit, access, meaning) in [
        (
            200,
            "ledgerOffered",
            Packets,
            at!(ledger.offered),
            "packets that reached the point at which the source counts",
        ),
        (201, "ledgerStored", Packets, at!(ledger.stored), "stored packets"),
        (202, "ledgerStoredOctets", Octets, at!(ledger.stored_bytes), "octets of the frames of stored packets"),
        (203, "ledgerFiltered", Packets, at!(ledger.filtered), "packets rejected by the capture filter"),
        (204, "ledgerDuplicate", Packets, at!(ledger.duplicate), "packets removed as duplicates"),
    ] {
        table.push(count(id, name.into(), unit, 0, access, meaning.into()));
    }
    let lost = || Access { get: |r, i| r.ledger.lost[i].into(), set: |r, i, v| r.ledger.lost[i] = v as u64 };
    for cause in Cause::ALL {
        let (i, name) = (cause as usize, camel("ledgerLost", cause.name()));
        let meaning = format!("lost packets, cause `{}`: {}", cause.name(), cause.description());
        table.push(count(LOST + i as u16, name, Packets, i, lost(), meaning));
    }
    let notes = || Access { get: |r, i| r.ledger.notes[i].into(), set: |r, i, v| r.ledger.notes[i] = v as u64 };
    for note in Note::ALL {
        let (i, name) = (note as usize, camel("ledgerNote", note.name()));
        // IANA has no unit for clock steps and files.
        let (unit, what) = match note.unit() {
            "packets" => (Packets, String::new()),
            other => (Unit::None, format!(" (unit: {other})")),
        };
        table.push(count(NOTES + i as u16, name, unit, i, notes(), format!("note: {}{what}", note.description())));
    }
    table
}

/// Makes the table entry of a counter, which is exported in an element of netgrain's own, with 8 octets.
fn count(id: u16, name: String, unit: Unit, index: usize, Access { get, set }: Access, meaning: String) -> Field {
    let (name, meaning) = (Cow::Owned(name), Cow::Owned(meaning));
    let (data_type, semantics) = (DataType::Unsigned64, Semantics::DeltaCounter);
    Field {
        element: Element { is_enterprise: true, id, name, data_type, semantics, unit, description: meaning },
        len: 8,
        get,
        set,
        index,
    }
}

/// The element name: `ledgerLost` and `ring_full` give `ledgerLostRingFull`; `other_ip` without prefix gives `otherIp`.
fn camel(prefix: &str, snake: &str) -> String {
    let mut name = prefix.to_owned();
    for word in snake.split('_') {
        if name.is_empty() {
            name.push_str(word);
            continue;
        }
        let (head, tail) = word.split_at(1);
        name.push_str(&head.to_ascii_uppercase());
        name.push_str(tail);
    }
    name
}
