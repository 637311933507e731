//! The columns of flow records.

use super::Layout;
use super::early::early;
use super::guess::{Guess, guess};
use super::put::put;
use super::text::{mac_number, mac_of, read_mac, write_address, write_mac};
use crate::builder::Tile;
use crate::sheet::{Asked, Cells, Coding, Column, Holds, Shape};
use crate::thing::{blank, end, tcp, tunnel};
use base::Timestamp;
use flow::{Locator, Record};
use wire::IpProtocol;

/// A record, its first and last moment, and what they let one expect.
pub struct Line {
    pub(super) record: Record,
    first: Timestamp,
    pub(super) last: Timestamp,
    guess: [Guess; 2],
}

/// A number that is always there, of 64 bits.
macro_rules! long {
    ($name:expr, $coding:ident, $asked:ident, $type:literal, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required int64 {} {};", $name, $type),
            shape: Shape::One,
            holds: Holds::Longs,
            coding: Coding::$coding,
            asked: Asked::$asked,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.longs.len() == lines.len()).then_some(())?;
                for ($l, value) in lines.iter_mut().zip(&cells.longs) {
                    let $v = *value as u64;
                    $put;
                }
                Some(())
            },
        }
    };
}

/// The same of 32 bits; `$from` is the type of the field.
macro_rules! int {
    ($name:expr, $coding:ident, $bits:literal, $from:ty, $asked:ident, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required int32 {} (INTEGER({},false));", $name, $bits),
            shape: Shape::One,
            holds: Holds::Ints,
            coding: Coding::$coding,
            asked: Asked::$asked,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.ints.len() == lines.len()).then_some(())?;
                for ($l, value) in lines.iter_mut().zip(&cells.ints) {
                    let $v = <$from>::try_from(*value as u32).ok()?;
                    $put;
                }
                Some(())
            },
        }
    };
}

/// One that may be missing, of 64 bits.
macro_rules! maybe_long {
    ($name:expr, $coding:ident, $type:literal, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional int64 {} {};", $name, $type),
            shape: Shape::Maybe,
            holds: Holds::Longs,
            coding: Coding::$coding,
            asked: Asked::Never,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.there.len() == lines.len()).then_some(())?;
                let mut values = cells.longs.iter();
                for ($l, there) in lines.iter_mut().zip(&cells.there) {
                    let $v = if *there > 0 { Some(*values.next()? as u64) } else { None };
                    $put;
                }
                Some(())
            },
        }
    };
}

/// The same of 32 bits.
macro_rules! maybe_int {
    ($name:expr, $bits:literal, $from:ty, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional int32 {} (INTEGER({},false));", $name, $bits),
            shape: Shape::Maybe,
            holds: Holds::Ints,
            coding: Coding::Distinct,
            asked: Asked::Never,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.there.len() == lines.len()).then_some(())?;
                let mut values = cells.ints.iter();
                for ($l, there) in lines.iter_mut().zip(&cells.there) {
                    let $v = if *there > 0 { Some(<$from>::try_from(*values.next()? as u32).ok()?) } else { None };
                    $put;
                }
                Some(())
            },
        }
    };
}

/// The first bytes that a side carried; null if there are none.
macro_rules! payload {
    ($name:expr, $s:literal) => {
        Column {
            path: $name.into(),
            declared: format!("optional binary {};", $name),
            shape: Shape::Maybe,
            holds: Holds::Bytes,
            coding: Coding::Bytewise,
            asked: Asked::Never,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.there.len() == lines.len()).then_some(())?;
                let (mut ends, mut from) = (cells.ends.iter(), 0);
                for (line, there) in lines.iter_mut().zip(&cells.there) {
                    let end = if *there > 0 { *ends.next()? } else { from };
                    line.record.payload[$s] = cells.raw.get(from..end)?.to_vec();
                    from = end;
                }
                Some(())
            },
        }
    };
}

/// The link address of a side, as text; null where there is none.
macro_rules! mac {
    ($name:expr, $s:literal) => {
        Column {
            path: $name.into(),
            declared: format!("optional binary {} (STRING);", $name),
            shape: Shape::Maybe,
            holds: Holds::Names(|number, out| write_mac(mac_of(number), out), |text| read_mac(text).map(mac_number)),
            coding: Coding::Wide,
            asked: Asked::Never,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.there.len() == lines.len()).then_some(())?;
                let mut values = cells.longs.iter();
                for (line, there) in lines.iter_mut().zip(&cells.there) {
                    line.record.sides[$s].mac = if *there > 0 { Some(mac_of(*values.next()?)) } else { None };
                }
                Some(())
            },
        }
    };
}

/// An address, as text.
macro_rules! address {
    ($name:literal, $field:ident) => {
        Column {
            path: $name.into(),
            declared: format!("required binary {} (STRING);", $name),
            shape: Shape::One,
            holds: Holds::Addresses(write_address),
            coding: Coding::Wide,
            asked: Asked::Member,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.addresses.len() == lines.len()).then_some(())?;
                lines.iter_mut().zip(&cells.addresses).for_each(|(line, address)| line.record.key.$field = *address);
                Some(())
            },
        }
    };
}

/// Columns of a side that are always there.
macro_rules! side {
    ($columns:ident, $p:literal, $s:literal) => {
        $columns.extend([
            long!(concat!($p, "packets"), Distinct, Range, "(INTEGER(64,false))", l, v => l.record.sides[$s].packets = v),
            long!(concat!($p, "bytes"), Distinct, Range, "(INTEGER(64,false))", l, v => l.record.sides[$s].bytes = v),
            long!(concat!($p, "link_bytes"), Distinct, Never, "", l, v => l.record.sides[$s].ip_bytes = l.record.sides[$s].bytes.wrapping_sub(v)),
            long!(concat!($p, "header_bytes"), Wide, Never, "", l, v => l.record.sides[$s].payload_bytes = l.record.sides[$s].ip_bytes.wrapping_sub(v)),
            long!(concat!($p, "payload_packets"), Distinct, Never, "(INTEGER(64,false))", l, v => l.record.sides[$s].payload_packets = v),
        ]);
        side!(@flags $columns, $p, $s, "fin" 0, "syn" 1, "rst" 2, "psh" 3, "ack" 4, "urg" 5, "ece" 6, "cwr" 7);
        side!(@counts $columns, $p, $s, zero_window, retransmitted, retransmitted_bytes, out_of_order);
        $columns.extend([
            int!(concat!($p, "ttl_min"), Distinct, 8, u8, Never, l, v => l.record.sides[$s].ttl.0 = v),
            int!(concat!($p, "ttl_max"), Distinct, 8, u8, Never, l, v => l.record.sides[$s].ttl.1 = v),
            int!(concat!($p, "dscp_min"), Distinct, 8, u8, Never, l, v => l.record.sides[$s].dscp.0 = v),
            int!(concat!($p, "dscp_max"), Distinct, 8, u8, Never, l, v => l.record.sides[$s].dscp.1 = v),
            mac!(concat!($p, "mac"), $s),
            payload!(concat!($p, "payload"), $s),
            maybe_int!(concat!($p, "tunnel_seq_first"), 32, u32, l, v => l.record.sides[$s].tunnel_sequence = v.map(|first| (first, 0))),
            maybe_int!(concat!($p, "tunnel_seq_last"), 32, u32, l, v => if let (Some(at), Some(v)) = (&mut l.record.sides[$s].tunnel_sequence, v) { at.1 = v }),
        ]);
    };
    (@flags $columns:ident, $p:literal, $s:literal, $($flag:literal $bit:literal),*) => {
        $columns.extend([$(
            long!(concat!($p, $flag), Distinct, Never, "(INTEGER(64,false))", l, v => l.record.sides[$s].flags[$bit] = v),
        )*]);
    };
    (@counts $columns:ident, $p:literal, $s:literal, $($field:ident),*) => {
        $columns.extend([$(
            long!(concat!($p, stringify!($field)), Distinct, Never, "(INTEGER(64,false))", l, v => l.record.sides[$s].$field = v),
        )*]);
    };
}

/// A number of a side that is null where it is as guessed.
macro_rules! guessed {
    ($name:expr, $s:literal, $coding:ident, $type:literal, $($field:tt)+) => {
        maybe_long!($name, $coding, $type,
            l, v => l.record.sides[$s].$($field)+ = v.unwrap_or(l.guess[$s].$($field)+))
    };
}

/// A moment of a side that is null where it is as guessed.
macro_rules! guessed_moment {
    ($name:expr, $s:literal, $field:ident) => {
        maybe_long!($name, Bytewise, "(TIMESTAMP(NANOS,true))",
            l, v => l.record.sides[$s].$field = v.map_or(l.guess[$s].$field, Timestamp::from_nanos))
    };
}

/// Squares, null where they are as guessed: as a decimal number, which is the widest that SQL has.
macro_rules! guessed_squares {
    ($name:expr, $s:literal, $field:ident) => {
        Column {
            path: $name.into(),
            declared: format!("optional fixed_len_byte_array(16) {} (DECIMAL(38,0));", $name),
            shape: Shape::Maybe,
            holds: Holds::Squares,
            coding: Coding::Bytewise,
            asked: Asked::Never,
            arg: 0,
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.there.len() == lines.len()).then_some(())?;
                let mut values = cells.wide.iter();
                for (line, there) in lines.iter_mut().zip(&cells.there) {
                    line.record.sides[$s].$field.squares =
                        if *there > 0 { *values.next()? } else { line.guess[$s].$field.squares };
                }
                Some(())
            },
        }
    };
}

/// Columns of a side that are null where they are as guessed.
macro_rules! guessed_side {
    ($columns:ident, $p:literal, $s:literal) => {
        $columns.extend([
            guessed_moment!(concat!($p, "first"), $s, first),
            guessed_moment!(concat!($p, "last"), $s, last),
            guessed!(concat!($p, "length_min"), $s, Distinct, "(INTEGER(64,false))", length.min),
            guessed!(concat!($p, "length_max"), $s, Distinct, "(INTEGER(64,false))", length.max),
            maybe_long!(concat!($p, "length_sum"), Distinct, "(INTEGER(64,false))",
                l, v => l.record.sides[$s].length.sum = v.unwrap_or(l.record.sides[$s].ip_bytes)),
            guessed_squares!(concat!($p, "length_squares"), $s, length),
            guessed!(concat!($p, "gaps"), $s, Distinct, "(INTEGER(64,false))", gaps),
            guessed!(concat!($p, "gap_min"), $s, Bytewise, "(INTEGER(64,false))", gap.min),
            guessed!(concat!($p, "gap_max"), $s, Bytewise, "(INTEGER(64,false))", gap.max),
            guessed!(concat!($p, "gap_sum"), $s, Bytewise, "(INTEGER(64,false))", gap.sum),
            guessed_squares!(concat!($p, "gap_squares"), $s, gap),
        ]);
    };
}

/// How many columns stand before those that are guessed.
const PLAIN: usize = 21 + 2 * 25 + 3;

impl Layout for Record {
    type Line = Line;
    const NAME: &'static str = "flow";
    const ORDER: [&'static str; 3] = ["first", "id", "part"];

    fn columns() -> Vec<Column<Line>> {
        let mut columns = vec![
            long!("first", Growing, Range, "(TIMESTAMP(NANOS,true))", l, v => l.first = Timestamp::from_nanos(v)),
            long!("last", Bytewise, Range, "(TIMESTAMP(NANOS,true))", l, v => l.last = Timestamp::from_nanos(v)),
            maybe_long!("began", Growing, "(TIMESTAMP(NANOS,true))",
                l, v => l.record.began = v.map_or(l.first, Timestamp::from_nanos)),
            long!("id", Plain, Range, "(INTEGER(64,false))", l, v => l.record.id = v),
            int!("part", Distinct, 32, u32, Never, l, v => l.record.part = v),
            int!("interface", Distinct, 16, u16, Never, l, v => l.record.interface = v),
            address!("src", src),
            address!("dst", dst),
            int!("src_port", Bytewise, 16, u16, Range, l, v => l.record.key.src_port = v),
            int!("dst_port", Distinct, 16, u16, Range, l, v => l.record.key.dst_port = v),
            int!("protocol", Distinct, 8, u8, Range, l, v => l.record.key.protocol = IpProtocol(v)),
            maybe_int!("vlan", 16, u16, l, v => l.record.around.vlans[0] = v),
            maybe_int!("inner_vlan", 16, u16, l, v => l.record.around.vlans[1] = v),
            maybe_int!("mpls", 32, u32, l, v => l.record.around.mpls = v),
            maybe_int!("tunnel", 8, u8, l, v => l.record.around.tunnel = match v { Some(n) => Some((tunnel(u64::from(n))?, 0)), None => None }),
            maybe_int!("tunnel_id", 32, u32, l, v => if let (Some((_, id)), Some(v)) = (&mut l.record.around.tunnel, v) { *id = v }),
            int!("end", Distinct, 8, u8, Never, l, v => l.record.end = end(u64::from(v))?),
            int!("tcp", Distinct, 8, u8, Never, l, v => l.record.tcp = tcp(u64::from(v))?),
            long!("lost", Distinct, Never, "(INTEGER(64,false))", l, v => l.record.lost = v),
            maybe_long!("syn_rtt", Bytewise, "(INTEGER(64,false))", l, v => l.record.syn_rtt = v),
            maybe_long!("ack_rtt", Bytewise, "(INTEGER(64,false))", l, v => l.record.ack_rtt = v),
        ];
        side!(columns, "fwd_", 0);
        side!(columns, "rev_", 1);
        columns.extend(early());
        debug_assert_eq!(columns.len(), PLAIN);
        guessed_side!(columns, "fwd_", 0);
        guessed_side!(columns, "rev_", 1);
        columns.extend([
            maybe_int!("queue", 16, u16, l, v => l.record.locator = v.map(|queue| Locator { queue, ..Locator::default() })),
            maybe_long!("packet_first", Growing, "(INTEGER(64,false))", l, v => if let (Some(at), Some(v)) = (&mut l.record.locator, v) { at.first = v }),
            maybe_long!("packet_span", Bytewise, "(INTEGER(64,false))", l, v => if let (Some(at), Some(v)) = (&mut l.record.locator, v) { at.last = at.first.wrapping_add(v) }),
        ]);
        columns
    }

    fn blank() -> Line {
        Line { record: blank(), first: Timestamp::ZERO, last: Timestamp::ZERO, guess: [Guess::default(); 2] }
    }

    #[inline]
    fn put(&self, tile: &mut Tile) {
        put(self, tile);
    }

    fn settle(columns_taken: usize, lines: &mut [Line]) {
        if columns_taken == PLAIN {
            lines.iter_mut().for_each(|line| line.guess = guess(&line.record, line.first, line.last));
        }
    }

    fn unline(line: Line) -> Self {
        line.record
    }
}
