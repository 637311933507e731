//! The columns of flow records.

use super::Layout;
use super::guess::{Guess, guess};
use crate::pack::{blank, end, tcp, tunnel};
use crate::sheet::{Asked, Cells, Coding, Column};
use base::Timestamp;
use flow::{Early, Key, Locator, Record};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use wire::{IpProtocol, MacAddr};

/// A record, its first and last moment, and what they let one expect.
pub struct Line {
    record: Record,
    first: Timestamp,
    last: Timestamp,
    guess: [Guess; 2],
}

impl Line {
    /// Who with whom.
    pub fn key(&self) -> &Key {
        &self.record.key
    }
}

/// A number that is always there, of 64 bits.
macro_rules! long {
    ($name:expr, $coding:ident, $asked:ident, $type:literal, $l:ident => $get:expr, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required int64 {} {};", $name, $type),
            coding: Coding::$coding,
            asked: Asked::$asked,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                cells.longs.extend(lines.iter().map(|$l| {
                    let n: u64 = $get;
                    n as i64
                }))
            },
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
    ($name:expr, $coding:ident, $bits:literal, $from:ty, $asked:ident, $l:ident => $get:expr, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required int32 {} (INTEGER({},false));", $name, $bits),
            coding: Coding::$coding,
            asked: Asked::$asked,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                cells.ints.extend(lines.iter().map(|$l| {
                    let n: $from = $get;
                    n as i32
                }))
            },
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
    ($name:expr, $coding:ident, $type:literal, $l:ident => $get:expr, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional int64 {} {};", $name, $type),
            coding: Coding::$coding,
            asked: Asked::Never,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                for $l in lines {
                    let value: Option<u64> = $get;
                    cells.def.push(i16::from(value.is_some()));
                    cells.longs.extend(value.map(|n| n as i64));
                }
            },
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.def.len() == lines.len()).then_some(())?;
                let mut values = cells.longs.iter();
                for ($l, def) in lines.iter_mut().zip(&cells.def) {
                    let $v = if *def > 0 { Some(*values.next()? as u64) } else { None };
                    $put;
                }
                Some(())
            },
        }
    };
}

/// The same of 32 bits.
macro_rules! maybe_int {
    ($name:expr, $bits:literal, $from:ty, $l:ident => $get:expr, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional int32 {} (INTEGER({},false));", $name, $bits),
            coding: Coding::Distinct,
            asked: Asked::Never,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                for $l in lines {
                    let value: Option<$from> = $get;
                    cells.def.push(i16::from(value.is_some()));
                    cells.ints.extend(value.map(|n| n as i32));
                }
            },
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.def.len() == lines.len()).then_some(())?;
                let mut values = cells.ints.iter();
                for ($l, def) in lines.iter_mut().zip(&cells.def) {
                    let $v = if *def > 0 { Some(<$from>::try_from(*values.next()? as u32).ok()?) } else { None };
                    $put;
                }
                Some(())
            },
        }
    };
}

/// Bytes that may be missing; `$write` appends them and says whether there are any.
macro_rules! maybe_bytes {
    ($name:expr, $coding:ident, $type:literal, $l:ident, $raw:ident => $write:expr, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional binary {} {};", $name, $type),
            coding: Coding::$coding,
            asked: Asked::Never,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                for $l in lines {
                    let $raw = &mut cells.raw;
                    let some: bool = $write;
                    cells.def.push(i16::from(some));
                    if some {
                        cells.end();
                    }
                }
            },
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.def.len() == lines.len()).then_some(())?;
                let mut values = cells.bytes.iter();
                for ($l, def) in lines.iter_mut().zip(&cells.def) {
                    let $v: Option<&[u8]> = if *def > 0 { Some(values.next()?.data()) } else { None };
                    $put;
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
            coding: Coding::Distinct,
            asked: Asked::Member,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                for line in lines {
                    write_address(line.record.key.$field, &mut cells.raw);
                    cells.end();
                }
            },
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.bytes.len() == lines.len()).then_some(())?;
                let mut memo = Memo::default();
                for (line, text) in lines.iter_mut().zip(&cells.bytes) {
                    line.record.key.$field = memo.address(text.data())?;
                }
                Some(())
            },
        }
    };
}

/// Columns of a side that are always there.
macro_rules! side {
    ($columns:ident, $p:literal, $s:literal) => {
        $columns.extend([
            long!(concat!($p, "packets"), Distinct, Range, "(INTEGER(64,false))", l => l.record.sides[$s].packets, v => l.record.sides[$s].packets = v),
            long!(concat!($p, "bytes"), Distinct, Range, "(INTEGER(64,false))", l => l.record.sides[$s].bytes, v => l.record.sides[$s].bytes = v),
            long!(concat!($p, "link_bytes"), Distinct, Never, "", l => l.record.sides[$s].bytes.wrapping_sub(l.record.sides[$s].ip_bytes),
                v => l.record.sides[$s].ip_bytes = l.record.sides[$s].bytes.wrapping_sub(v)),
            long!(concat!($p, "header_bytes"), Distinct, Never, "", l => l.record.sides[$s].ip_bytes.wrapping_sub(l.record.sides[$s].payload_bytes),
                v => l.record.sides[$s].payload_bytes = l.record.sides[$s].ip_bytes.wrapping_sub(v)),
            long!(concat!($p, "payload_packets"), Distinct, Never, "(INTEGER(64,false))", l => l.record.sides[$s].payload_packets, v => l.record.sides[$s].payload_packets = v),
        ]);
        side!(@flags $columns, $p, $s, "fin" 0, "syn" 1, "rst" 2, "psh" 3, "ack" 4, "urg" 5, "ece" 6, "cwr" 7);
        side!(@counts $columns, $p, $s, zero_window, retransmitted, retransmitted_bytes, out_of_order);
        $columns.extend([
            int!(concat!($p, "ttl_min"), Distinct, 8, u8, Never, l => l.record.sides[$s].ttl.0, v => l.record.sides[$s].ttl.0 = v),
            int!(concat!($p, "ttl_max"), Distinct, 8, u8, Never, l => l.record.sides[$s].ttl.1, v => l.record.sides[$s].ttl.1 = v),
            int!(concat!($p, "dscp_min"), Growing, 8, u8, Never, l => l.record.sides[$s].dscp.0, v => l.record.sides[$s].dscp.0 = v),
            int!(concat!($p, "dscp_max"), Growing, 8, u8, Never, l => l.record.sides[$s].dscp.1, v => l.record.sides[$s].dscp.1 = v),
            maybe_bytes!(concat!($p, "mac"), Distinct, "(STRING)",
                l, raw => l.record.sides[$s].mac.map(|mac| write_mac(mac, raw)).is_some(),
                v => l.record.sides[$s].mac = match v { Some(text) => Some(read_mac(text)?), None => None }),
            maybe_bytes!(concat!($p, "payload"), Plain, "",
                l, raw => { raw.extend(&l.record.payload[$s]); !l.record.payload[$s].is_empty() },
                v => l.record.payload[$s] = v.unwrap_or_default().to_vec()),
        ]);
    };
    (@flags $columns:ident, $p:literal, $s:literal, $($flag:literal $bit:literal),*) => {
        $columns.extend([$(
            long!(concat!($p, $flag), Distinct, Never, "(INTEGER(64,false))", l => l.record.sides[$s].flags[$bit], v => l.record.sides[$s].flags[$bit] = v),
        )*]);
    };
    (@counts $columns:ident, $p:literal, $s:literal, $($field:ident),*) => {
        $columns.extend([$(
            long!(concat!($p, stringify!($field)), Growing, Never, "(INTEGER(64,false))", l => l.record.sides[$s].$field, v => l.record.sides[$s].$field = v),
        )*]);
    };
}

/// A number of a side that is null where it is as guessed.
macro_rules! guessed {
    ($name:expr, $s:literal, $coding:ident, $type:literal, $($field:tt)+) => {
        maybe_long!($name, $coding, $type,
            l => { let n = l.record.sides[$s].$($field)+; (n != l.guess[$s].$($field)+).then_some(n) },
            v => l.record.sides[$s].$($field)+ = v.unwrap_or(l.guess[$s].$($field)+))
    };
}

/// A moment of a side that is null where it is as guessed.
macro_rules! guessed_moment {
    ($name:expr, $s:literal, $field:ident) => {
        maybe_long!($name, Growing, "(TIMESTAMP(NANOS,true))",
            l => { let n = l.record.sides[$s].$field; (n != l.guess[$s].$field).then_some(n.nanos()) },
            v => l.record.sides[$s].$field = v.map_or(l.guess[$s].$field, Timestamp::from_nanos))
    };
}

/// Squares, null where they are as guessed: as a decimal number, which is the widest that SQL has.
macro_rules! guessed_squares {
    ($name:expr, $s:literal, $field:ident) => {
        Column {
            path: $name.into(),
            declared: format!("optional fixed_len_byte_array(16) {} (DECIMAL(38,0));", $name),
            coding: Coding::Plain,
            asked: Asked::Never,
            arg: 0,
            fill: |lines: &[Line], _, cells: &mut Cells| {
                for line in lines {
                    let squares = line.record.sides[$s].$field.squares;
                    let news = squares != line.guess[$s].$field.squares;
                    cells.def.push(i16::from(news));
                    if news {
                        cells.raw.extend(squares.to_be_bytes());
                        cells.end();
                    }
                }
            },
            take: |lines: &mut [Line], _, cells: &Cells| {
                (cells.def.len() == lines.len()).then_some(())?;
                let mut values = cells.fixed.iter();
                for (line, def) in lines.iter_mut().zip(&cells.def) {
                    line.record.sides[$s].$field.squares = if *def > 0 {
                        u128::from_be_bytes(values.next()?.data().try_into().ok()?)
                    } else {
                        line.guess[$s].$field.squares
                    };
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
                l => { let s = &l.record.sides[$s]; (s.length.sum != s.ip_bytes).then_some(s.length.sum) },
                v => l.record.sides[$s].length.sum = v.unwrap_or(l.record.sides[$s].ip_bytes)),
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
const PLAIN: usize = 20 + 2 * 23 + 3;

impl Layout for Record {
    type Line = Line;
    const NAME: &'static str = "flow";

    fn columns() -> Vec<Column<Line>> {
        let mut columns = vec![
            long!("first", Growing, Range, "(TIMESTAMP(NANOS,true))", l => l.first.nanos(), v => l.first = Timestamp::from_nanos(v)),
            long!("last", Growing, Range, "(TIMESTAMP(NANOS,true))", l => l.last.nanos(), v => l.last = Timestamp::from_nanos(v)),
            maybe_long!("began", Growing, "(TIMESTAMP(NANOS,true))",
                l => (l.record.began != l.first).then_some(l.record.began.nanos()),
                v => l.record.began = v.map_or(l.first, Timestamp::from_nanos)),
            long!("id", Plain, Range, "(INTEGER(64,false))", l => l.record.id, v => l.record.id = v),
            int!("part", Growing, 32, u32, Never, l => l.record.part, v => l.record.part = v),
            int!("interface", Growing, 16, u16, Never, l => l.record.interface, v => l.record.interface = v),
            address!("src", src),
            address!("dst", dst),
            int!("src_port", Bytewise, 16, u16, Member, l => l.record.key.src_port, v => l.record.key.src_port = v),
            int!("dst_port", Distinct, 16, u16, Member, l => l.record.key.dst_port, v => l.record.key.dst_port = v),
            int!("protocol", Distinct, 8, u8, Range, l => l.record.key.protocol.0, v => l.record.key.protocol = IpProtocol(v)),
            maybe_int!("vlan", 16, u16, l => l.record.around.vlans[0], v => l.record.around.vlans[0] = v),
            maybe_int!("inner_vlan", 16, u16, l => l.record.around.vlans[1], v => l.record.around.vlans[1] = v),
            maybe_int!("mpls", 32, u32, l => l.record.around.mpls, v => l.record.around.mpls = v),
            maybe_int!("tunnel", 8, u8, l => l.record.around.tunnel.map(|(kind, _)| kind as u8),
                v => l.record.around.tunnel = match v { Some(n) => Some((tunnel(u64::from(n))?, 0)), None => None }),
            maybe_int!("tunnel_id", 32, u32, l => l.record.around.tunnel.map(|(_, id)| id),
                v => if let (Some((_, id)), Some(v)) = (&mut l.record.around.tunnel, v) { *id = v }),
            int!("end", Distinct, 8, u8, Never, l => l.record.end as u8, v => l.record.end = end(u64::from(v))?),
            int!("tcp", Distinct, 8, u8, Never, l => l.record.tcp as u8, v => l.record.tcp = tcp(u64::from(v))?),
            long!("lost", Growing, Never, "(INTEGER(64,false))", l => l.record.lost, v => l.record.lost = v),
            maybe_long!("syn_rtt", Bytewise, "(INTEGER(64,false))", l => l.record.syn_rtt, v => l.record.syn_rtt = v),
        ];
        side!(columns, "fwd_", 0);
        side!(columns, "rev_", 1);
        columns.extend(early());
        debug_assert_eq!(columns.len(), PLAIN);
        guessed_side!(columns, "fwd_", 0);
        guessed_side!(columns, "rev_", 1);
        columns.extend([
            maybe_long!("ack_rtt", Bytewise, "(INTEGER(64,false))", l => l.record.ack_rtt, v => l.record.ack_rtt = v),
            maybe_int!("queue", 16, u16, l => l.record.locator.map(|at| at.queue),
                v => l.record.locator = v.map(|queue| Locator { queue, ..Locator::default() })),
            maybe_long!("packet_first", Growing, "(INTEGER(64,false))", l => l.record.locator.map(|at| at.first),
                v => if let (Some(at), Some(v)) = (&mut l.record.locator, v) { at.first = v }),
            maybe_long!("packet_span", Bytewise, "(INTEGER(64,false))", l => l.record.locator.map(|at| at.last.wrapping_sub(at.first)),
                v => if let (Some(at), Some(v)) = (&mut l.record.locator, v) { at.last = at.first.wrapping_add(v) }),
        ]);
        columns
    }

    fn line(self) -> Line {
        let (first, last) = (self.first(), self.last());
        let guess = guess(&self, first, last);
        Line { record: self, first, last, guess }
    }

    fn blank() -> Line {
        Line { record: blank(), first: Timestamp::ZERO, last: Timestamp::ZERO, guess: [Guess::default(); 2] }
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

/// The first packets: a list of structures, whose leaves are columns of their own with the same levels.
fn early() -> [Column<Line>; 3] {
    const GROUP: &str = "required group early (LIST) { repeated group list { required group element { \
        required int64 gap; required int32 length; required int32 flags (INTEGER(8,false)); } } }";
    /// The cells of one leaf.
    fn fill(lines: &[Line], cells: &mut Cells, one: impl Fn(&mut Cells, &Early, u64)) {
        for line in lines {
            let early = &line.record.early;
            if early.is_empty() {
                cells.rep.push(0);
                cells.def.push(0);
            }
            let mut before = 0;
            for (i, packet) in early.iter().enumerate() {
                cells.rep.push(i16::from(i > 0));
                cells.def.push(1);
                one(cells, packet, before);
                before = packet.after;
            }
        }
    }
    /// Puts one leaf into the packets, which the first leaf makes.
    fn take(
        lines: &mut [Line],
        cells: &Cells,
        makes: bool,
        mut one: impl FnMut(&mut Early, u64) -> Option<()>,
    ) -> Option<()> {
        (cells.rep.len() == cells.def.len()).then_some(())?;
        let mut levels = cells.rep.iter().zip(&cells.def).peekable();
        for line in lines {
            let early = &mut line.record.early;
            let (_, def) = levels.next_if(|(rep, _)| **rep == 0)?;
            let mut there = *def > 0;
            let (mut at, mut before) = (0, 0);
            while there {
                if makes {
                    early.push(Early::default());
                }
                let packet = early.get_mut(at)?;
                one(packet, before)?;
                (before, at) = (packet.after, at + 1);
                there = levels.next_if(|(rep, _)| **rep > 0).is_some();
            }
        }
        levels.peek().is_none().then_some(())
    }
    [
        Column {
            path: "early.list.element.gap".into(),
            declared: GROUP.into(),
            coding: Coding::Bytewise,
            asked: Asked::Never,
            arg: 0,
            fill: |lines, _, cells| {
                fill(lines, cells, |c, e, before| c.longs.push(e.after.wrapping_sub(before) as i64))
            },
            take: |lines, _, cells| {
                let mut values = cells.longs.iter();
                take(lines, cells, true, |e, before| {
                    e.after = before.wrapping_add(*values.next()? as u64);
                    Some(())
                })
            },
        },
        Column {
            path: "early.list.element.length".into(),
            declared: String::new(),
            coding: Coding::Distinct,
            asked: Asked::Never,
            arg: 0,
            // Lengths of the other direction are negative; one of zero, which no packet has, is the least number.
            fill: |lines, _, cells| {
                fill(lines, cells, |c, e, _| {
                    c.ints.push(match (e.reverse, i32::from(e.length)) {
                        (true, 0) => i32::MIN,
                        (true, length) => -length,
                        (false, length) => length,
                    });
                });
            },
            take: |lines, _, cells| {
                let mut values = cells.ints.iter();
                take(lines, cells, false, |e, _| {
                    let length = *values.next()?;
                    e.reverse = length < 0;
                    e.length = if length == i32::MIN { 0 } else { u16::try_from(length.unsigned_abs()).ok()? };
                    Some(())
                })
            },
        },
        Column {
            path: "early.list.element.flags".into(),
            declared: String::new(),
            coding: Coding::Distinct,
            asked: Asked::Never,
            arg: 0,
            fill: |lines, _, cells| fill(lines, cells, |c, e, _| c.ints.push(i32::from(e.flags))),
            take: |lines, _, cells| {
                let mut values = cells.ints.iter();
                take(lines, cells, false, |e, _| {
                    e.flags = u8::try_from(*values.next()?).ok()?;
                    Some(())
                })
            },
        },
    ]
}

/// As `IpAddr` shows itself; IPv4 by hand, for it is most of what is written.
pub fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(four) => {
            for (i, part) in four.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                if part >= 100 {
                    out.push(b'0' + part / 100);
                }
                if part >= 10 {
                    out.push(b'0' + part / 10 % 10);
                }
                out.push(b'0' + part % 10);
            }
        }
        IpAddr::V6(six) => {
            // Writing into memory does not fail.
            let _ = write!(out, "{six}");
        }
    }
}

/// The inverse of [`write_address`].
fn read_address(text: &[u8]) -> Option<IpAddr> {
    let mut parts = [0u8; 4];
    let (mut at, mut value, mut digits) = (0, 0u32, 0);
    for byte in text {
        match byte {
            // More digits begin an IPv6 address.
            b'0'..=b'9' if digits < 3 => {
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if at < 3 && digits > 0 => {
                parts[at] = u8::try_from(value).ok()?;
                (at, value, digits) = (at + 1, 0, 0);
            }
            _ => return std::str::from_utf8(text).ok()?.parse().ok(),
        }
    }
    if at != 3 || digits == 0 {
        return None;
    }
    parts[3] = u8::try_from(value).ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(parts)))
}

/// Texts of one dictionary lie at the same place: each is read once, as long as two do not share a drawer.
pub struct Memo(Vec<(usize, Option<IpAddr>)>);

impl Default for Memo {
    fn default() -> Self {
        Self(vec![(0, None); 1 << 12])
    }
}

impl Memo {
    /// The address that this text says. The texts of one memo all live at the same time.
    pub fn address(&mut self, text: &[u8]) -> Option<IpAddr> {
        let at = text.as_ptr() as usize;
        let drawer = &mut self.0[(at ^ at >> 12) & 0xfff];
        if drawer.0 != at || drawer.1.is_none() {
            *drawer = (at, read_address(text));
        }
        drawer.1
    }
}

fn write_mac(mac: MacAddr, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (i, byte) in mac.0.into_iter().enumerate() {
        if i > 0 {
            out.push(b':');
        }
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

fn read_mac(text: &[u8]) -> Option<MacAddr> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|n| n as u8);
    let mut mac = [0; 6];
    for (i, byte) in mac.iter_mut().enumerate() {
        let at = text.get(3 * i..3 * i + 2)?;
        *byte = digit(at[0])? << 4 | digit(at[1])?;
    }
    Some(MacAddr(mac))
}
