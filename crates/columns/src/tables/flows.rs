//! The columns of flow records. A value that is known is always written. `flow::fields` describes each column, and when
//! the column has no value.

use super::initial_packets::initial_packet_columns;
use super::put::put;
use super::record_line::RecordLine;
use super::{Schema, interface};
use crate::schema::{Cells, Column, ColumnPredicate, EncodingHint, MICRO, Repetition, ValueType};
use crate::table_row::{END_REASONS, PROTOCOL, TCP_STATES, TUNNELS, blank, end, tcp, tunnel};
use crate::text::{mac_number, mac_of, read_mac, write_address, write_mac};
use crate::tile::Tile;
use base::Timestamp;
use flow::{PacketLocation, Record};
use wire::{IpProtocol, community_id};

/// A required 64-bit number.
macro_rules! long {
    ($name:expr, $coding:ident, $predicate:ident, $type:literal, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required int64 {} {};", $name, $type),
            repetition: Repetition::One,
            value_type: ValueType::Longs,
            coding: EncodingHint::$coding,
            predicate: ColumnPredicate::$predicate,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
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

/// A required 64-bit number that is derived from others and ignored when reading.
macro_rules! made {
    ($name:expr, $coding:ident, $predicate:ident, $type:literal) => {
        Column {
            path: $name.into(),
            declared: format!("required int64 {} {};", $name, $type),
            repetition: Repetition::One,
            value_type: ValueType::Longs,
            coding: EncodingHint::$coding,
            predicate: ColumnPredicate::$predicate,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| (cells.longs.len() == lines.len()).then_some(()),
        }
    };
}

/// A required 32-bit number; `$from` is the type of the field.
macro_rules! int {
    ($name:expr, $coding:ident, $from:ty, $predicate:ident, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required int32 {};", $name),
            repetition: Repetition::One,
            value_type: ValueType::Ints,
            coding: EncodingHint::$coding,
            predicate: ColumnPredicate::$predicate,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
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

/// An optional 64-bit number.
macro_rules! maybe_long {
    ($name:expr, $coding:ident, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional int64 {};", $name),
            repetition: Repetition::Maybe,
            value_type: ValueType::Longs,
            coding: EncodingHint::$coding,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.present.len() == lines.len()).then_some(())?;
                let mut values = cells.longs.iter();
                for ($l, present) in lines.iter_mut().zip(&cells.present) {
                    let $v = if *present > 0 { Some(*values.next()? as u64) } else { None };
                    $put;
                }
                Some(())
            },
        }
    };
}

/// An optional 32-bit number.
macro_rules! maybe_int {
    ($name:expr, $from:ty, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional int32 {};", $name),
            repetition: Repetition::Maybe,
            value_type: ValueType::Ints,
            coding: EncodingHint::Distinct,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.present.len() == lines.len()).then_some(())?;
                let mut values = cells.ints.iter();
                for ($l, present) in lines.iter_mut().zip(&cells.present) {
                    let $v = if *present > 0 { Some(<$from>::try_from(*values.next()? as u32).ok()?) } else { None };
                    $put;
                }
                Some(())
            },
        }
    };
}

/// A required column with the names of an enumeration, stored as text.
macro_rules! word {
    ($name:literal, $words:expr, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("required binary {} (STRING);", $name),
            repetition: Repetition::One,
            value_type: $words.holds(),
            coding: EncodingHint::Distinct,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
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

/// A nullable column with the names of an enumeration, stored as text.
macro_rules! maybe_word {
    ($name:literal, $words:expr, $l:ident, $v:ident => $put:expr) => {
        Column {
            path: $name.into(),
            declared: format!("optional binary {} (STRING);", $name),
            repetition: Repetition::Maybe,
            value_type: $words.holds(),
            coding: EncodingHint::Distinct,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.present.len() == lines.len()).then_some(())?;
                let mut values = cells.longs.iter();
                for ($l, present) in lines.iter_mut().zip(&cells.present) {
                    if *present > 0 {
                        let $v = *values.next()? as u64;
                        $put;
                    }
                }
                Some(())
            },
        }
    };
}

/// The first payload bytes of a direction; null if there are none.
macro_rules! payload {
    ($name:expr, $s:literal) => {
        Column {
            path: $name.into(),
            declared: format!("optional binary {};", $name),
            repetition: Repetition::Maybe,
            value_type: ValueType::Bytes,
            coding: EncodingHint::Noise,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.present.len() == lines.len()).then_some(())?;
                let (mut ends, mut from) = (cells.ends.iter(), 0);
                for (line, present) in lines.iter_mut().zip(&cells.present) {
                    let end = if *present > 0 { *ends.next()? } else { from };
                    line.record.payload[$s] = cells.raw.get(from..end)?.to_vec();
                    from = end;
                }
                Some(())
            },
        }
    };
}

/// The MAC address of a direction, as text; null if there is none.
macro_rules! mac {
    ($name:expr, $s:literal) => {
        Column {
            path: $name.into(),
            declared: format!("optional binary {} (STRING);", $name),
            repetition: Repetition::Maybe,
            value_type: ValueType::Names(
                |number, out| write_mac(mac_of(number), out),
                |text| read_mac(text).map(mac_number),
            ),
            coding: EncodingHint::Wide,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.present.len() == lines.len()).then_some(())?;
                let mut values = cells.longs.iter();
                for (line, present) in lines.iter_mut().zip(&cells.present) {
                    line.record.directions[$s].mac = if *present > 0 { Some(mac_of(*values.next()?)) } else { None };
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
            repetition: Repetition::One,
            value_type: ValueType::Addresses(write_address),
            coding: EncodingHint::Wide,
            predicate: ColumnPredicate::Member,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.addresses.len() == lines.len()).then_some(())?;
                lines.iter_mut().zip(&cells.addresses).for_each(|(line, address)| line.record.key.$field = *address);
                Some(())
            },
        }
    };
}

/// Sums of squares, as decimals with 38 digits, the widest number type of SQL.
macro_rules! squares {
    ($name:expr, $s:literal, $coding:ident, $field:ident) => {
        Column {
            path: $name.into(),
            declared: format!("optional fixed_len_byte_array(16) {} (DECIMAL(38,0));", $name),
            repetition: Repetition::Maybe,
            value_type: ValueType::Squares,
            coding: EncodingHint::$coding,
            predicate: ColumnPredicate::Never,
            arg: 0,
            take: |lines: &mut [RecordLine], _, cells: &Cells| {
                (cells.present.len() == lines.len()).then_some(())?;
                let mut values = cells.wide.iter();
                for (line, present) in lines.iter_mut().zip(&cells.present) {
                    line.record.directions[$s].$field.squares = if *present > 0 { *values.next()? } else { 0 };
                }
                Some(())
            },
        }
    };
}

/// A number of a direction that is missing if the direction has no packets to which it applies.
macro_rules! maybe_direction {
    ($name:expr, $s:literal, $coding:ident, $($field:tt)+) => {
        maybe_long!($name, $coding, l, v => l.record.directions[$s].$($field)+ = v.unwrap_or(0))
    };
}

/// The columns of a direction. Its last timestamp is computed after all columns that it depends on.
macro_rules! direction {
    ($columns:ident, $p:literal, $s:literal) => {
        $columns.extend([
            long!(concat!($p, "packets"), Often, Range, "", l, v => l.record.directions[$s].packets = v),
            long!(concat!($p, "bytes"), Often, Range, "", l, v => l.record.directions[$s].bytes = v),
            long!(concat!($p, "link_bytes"), Often, Never, "", l, v => {
                let direction = &mut l.record.directions[$s];
                direction.ip_bytes = direction.bytes.wrapping_sub(v);
                direction.length.sum = direction.ip_bytes;
            }),
            long!(concat!($p, "header_bytes"), Often, Never, "", l, v => {
                let direction = &mut l.record.directions[$s];
                direction.payload_bytes = direction.ip_bytes.wrapping_sub(v);
            }),
            long!(concat!($p, "payload_packets"), Often, Never, "", l, v => {
                l.record.directions[$s].payload_packets = v;
            }),
            maybe_long!(concat!($p, "start_ns"), Noise, l, v => if let Some(v) = v {
                l.record.directions[$s].first = Timestamp::from_nanos(l.first.nanos().wrapping_add(v));
            }),
            maybe_direction!(concat!($p, "length_min"), $s, Often, length.min),
            maybe_direction!(concat!($p, "length_max"), $s, Often, length.max),
            squares!(concat!($p, "length_squares"), $s, Wide, length),
            long!(concat!($p, "iat_count"), Often, Never, "", l, v => l.record.directions[$s].iat_count = v),
            maybe_direction!(concat!($p, "iat_min_ns"), $s, Noise, iat.min),
            maybe_direction!(concat!($p, "iat_max_ns"), $s, Noise, iat.max),
            maybe_direction!(concat!($p, "iat_sum_ns"), $s, Noise, iat.sum),
            squares!(concat!($p, "iat_squares"), $s, Noise, iat),
            long!(concat!($p, "iat_carry_ns"), Noise, Never, "", l, v => {
                let direction = &mut l.record.directions[$s];
                let since = direction.first.nanos().wrapping_add(direction.iat.sum);
                direction.last = Timestamp::from_nanos(since.wrapping_sub(v));
            }),
        ]);
        direction!(@flags $columns, $p, $s, "fin" 0, "syn" 1, "rst" 2, "psh" 3, "ack" 4, "urg" 5, "ece" 6, "cwr" 7);
        direction!(@counts $columns, $p, $s, zero_window, retransmitted, retransmitted_bytes, out_of_order);
        $columns.extend([
            maybe_int!(concat!($p, "ttl_min"), u8, l, v => l.record.directions[$s].ttl.0 = v.unwrap_or(0)),
            maybe_int!(concat!($p, "ttl_max"), u8, l, v => l.record.directions[$s].ttl.1 = v.unwrap_or(0)),
            maybe_int!(concat!($p, "dscp_min"), u8, l, v => l.record.directions[$s].dscp.0 = v.unwrap_or(0)),
            maybe_int!(concat!($p, "dscp_max"), u8, l, v => l.record.directions[$s].dscp.1 = v.unwrap_or(0)),
            mac!(concat!($p, "mac"), $s),
            payload!(concat!($p, "payload"), $s),
            maybe_long!(concat!($p, "tunnel_seq_first"), Noise, l, v => {
                l.record.directions[$s].tunnel_sequence = match v {
                    Some(first) => Some((u32::try_from(first).ok()?, 0)),
                    None => None,
                };
            }),
            maybe_long!(concat!($p, "tunnel_seq_last"), Noise, l, v => {
                if let (Some(at), Some(v)) = (&mut l.record.directions[$s].tunnel_sequence, v) {
                    at.1 = u32::try_from(v).ok()?;
                }
            }),
        ]);
    };
    (@flags $columns:ident, $p:literal, $s:literal, $($flag:literal $bit:literal),*) => {
        $columns.extend([$(
            long!(concat!($p, $flag), Distinct, Never, "", l, v => l.record.directions[$s].flags[$bit] = v),
        )*]);
    };
    (@counts $columns:ident, $p:literal, $s:literal, $($field:ident),*) => {
        $columns.extend([$(
            long!(concat!($p, stringify!($field)), Distinct, Never, "", l, v => l.record.directions[$s].$field = v),
        )*]);
    };
}

/// Changes the type of a column to timestamp.
fn moment(column: Column<RecordLine>) -> Column<RecordLine> {
    Column { value_type: ValueType::Moments, ..column }
}

/// True if no other field is derived from this column, so its damage affects no other field.
fn is_alone(path: &str) -> bool {
    const OF_FLOWS: [&str; 9] =
        ["src_port", "dst_port", "vlan", "vlan_inner", "mpls", "end_reason", "lost", "syn_rtt_ns", "ack_rtt_ns"];
    const OF_DIRECTIONS: [&str; 19] = [
        "fin",
        "syn",
        "rst",
        "psh",
        "ack",
        "urg",
        "ece",
        "cwr",
        "zero_window",
        "retransmitted",
        "retransmitted_bytes",
        "out_of_order",
        "ttl_min",
        "ttl_max",
        "dscp_min",
        "dscp_max",
        "mac",
        "payload",
        "payload_packets",
    ];
    let of_direction = path.strip_prefix("fwd_").or_else(|| path.strip_prefix("rev_"));
    of_direction.map_or(OF_FLOWS.contains(&path), |name| OF_DIRECTIONS.contains(&name))
}

impl Schema for Record {
    type Line = RecordLine;
    const NAME: &'static str = "flow";
    const ORDER: [&'static str; 3] = ["first", "id", "record_index"];
    const LAST: &'static str = "last";
    const MADE: &'static [&'static str] = &["last", "duration_ns", "second", "packets", "bytes"];

    fn is_needed(path: &str, fields: Option<&[String]>) -> bool {
        if Self::MADE.contains(&path) {
            return false;
        }
        let Some(fields) = fields.filter(|_| is_alone(path)) else { return true };
        // If a requested field is not a column, it may be derived from any column.
        let is_known = |name: &String| {
            name == super::INTERFACE || Self::MADE.contains(&&name[..]) || {
                let columns = Self::columns();
                columns.iter().any(|column| column.path == *name)
            }
        };
        fields.iter().any(|name| name == path || !is_known(name))
    }

    fn columns() -> Vec<Column<RecordLine>> {
        let mut columns = vec![
            moment(
                long!("first", Noise, Range, "(TIMESTAMP(MICROS,true))", l, v => l.first = Timestamp::from_nanos(v)),
            ),
            int!("first_nanos", Noise, u16, Never, l, v => {
                let nanos = l.first.nanos();
                l.first = Timestamp::from_nanos((nanos - nanos % MICRO as u64).wrapping_add(v.into()));
            }),
            moment(made!("last", Noise, Range, "(TIMESTAMP(MICROS,true))")),
            made!("duration_ns", Noise, Never, ""),
            made!("second", Distinct, Never, ""),
            long!("age_ns", Noise, Never, "", l, v => {
                l.record.flow_start = Timestamp::from_nanos(l.first.nanos().wrapping_sub(v));
            }),
            long!("id", Plain, Range, "(INTEGER(64,false))", l, v => l.record.id = v),
            long!("record_index", Distinct, Never, "", l, v => l.record.record_index = u32::try_from(v).ok()?),
            int!("interface_id", Distinct, u16, Never, l, v => l.record.interface = v),
            address!("src", src),
            address!("dst", dst),
            int!("src_port", Noise, u16, Range, l, v => l.record.key.src_port = v),
            int!("dst_port", Often, u16, Range, l, v => l.record.key.dst_port = v),
            word!("protocol", PROTOCOL, l, v => l.record.key.protocol = IpProtocol(u8::try_from(v).ok()?)),
            maybe_int!("vlan", u16, l, v => l.record.encapsulation.vlans[0] = v),
            maybe_int!("vlan_inner", u16, l, v => l.record.encapsulation.vlans[1] = v),
            maybe_int!("mpls", u32, l, v => l.record.encapsulation.mpls = v),
            maybe_word!("tunnel", TUNNELS, l, v => l.record.encapsulation.tunnel = Some((tunnel(v)?, 0))),
            maybe_long!("tunnel_id", Often, l, v => {
                if let (Some((_, id)), Some(v)) = (&mut l.record.encapsulation.tunnel, v) {
                    *id = u32::try_from(v).ok()?;
                }
            }),
            word!("end_reason", END_REASONS, l, v => l.record.end_reason = end(v)?),
            maybe_word!("tcp_state", TCP_STATES, l, v => l.record.tcp_state = tcp(v)?),
            long!("lost", Distinct, Never, "", l, v => l.record.lost = v),
            maybe_long!("syn_rtt_ns", Noise, l, v => l.record.syn_rtt = v),
            maybe_long!("ack_rtt_ns", Noise, l, v => l.record.ack_rtt = v),
            made!("packets", Often, Never, ""),
            made!("bytes", Often, Never, ""),
        ];
        direction!(columns, "fwd_", 0);
        direction!(columns, "rev_", 1);
        columns.extend(initial_packet_columns());
        columns.extend([
            maybe_int!("queue", u16, l, v => {
                l.record.location = v.map(|queue| PacketLocation { queue, ..PacketLocation::default() });
            }),
            maybe_long!("position", Noise, l, v => {
                if let (Some(at), Some(v)) = (&mut l.record.location, v) {
                    at.first = v;
                }
            }),
            maybe_long!("position_span", Noise, l, v => {
                if let (Some(at), Some(v)) = (&mut l.record.location, v) {
                    at.last = at.first.wrapping_add(v);
                }
            }),
        ]);
        columns
    }

    fn extras(is_given: bool) -> Vec<Column<RecordLine>> {
        let community = Column {
            path: "community_id".into(),
            declared: "required binary community_id (STRING);".into(),
            repetition: Repetition::One,
            ..interface()
        };
        let mut extras = vec![interface()];
        extras.extend(is_given.then_some(community));
        extras
    }

    fn extra(&self, path: &str, out: &mut Vec<u8>) {
        if path == "community_id" {
            out.extend_from_slice(community_id(&self.key.of_packet()).as_bytes());
        }
    }

    fn interface(&self) -> u16 {
        self.interface
    }

    fn blank() -> RecordLine {
        RecordLine { record: blank(), first: Timestamp::ZERO }
    }

    #[inline]
    fn put(&self, tile: &mut Tile) {
        put(self, tile);
    }

    fn unline(line: RecordLine) -> Self {
        line.record
    }
}
