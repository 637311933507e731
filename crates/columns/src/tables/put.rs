//! Writes a record's numbers into a tile, in the order of the packed columns ([`super::flows`]).

use super::initial_packets;
use crate::schema::MICRO;
use crate::table_row::NANOS_PER_SEC;
use crate::text::mac_number;
use crate::tile::{Row, Tile};
use base::Timestamp;
use flow::{DirectionStats, Record};
use std::net::IpAddr;

/// Number of packed columns with a number in every row: 18 of the record, 19 of each direction, and the number of
/// initial packets.
const EVERY: usize = 18 + 2 * 19 + 1;

/// Number of nullable packed columns: 13 of the record, and 18 of each direction.
const MAYBE: usize = 13 + 2 * 18;

/// Writes a record into the next row.
#[inline]
pub fn put(record: &Record, tile: &mut Tile) {
    let (first, last) = (record.first(), record.last());
    // The round-trip tests compare `EVERY` and `MAYBE` with the schema.
    let mismatch = "the tile has another number of packed columns than the table";
    let Some(leaves) = tile.entries.first_chunk_mut() else { return debug_assert!(false, "{mismatch}") };
    initial_packets::put(record, leaves);
    for (raw, payload) in tile.raw.iter_mut().zip(&record.payload) {
        raw.extend_from_slice(payload);
    }
    let Record { key, encapsulation: around, directions, .. } = record;
    let Some(mut row) = tile.row::<EVERY, MAYBE>() else { return debug_assert!(false, "{mismatch}") };
    row.put(first.nanos());
    row.put(first.nanos() % MICRO as u64);
    row.put(last.nanos());
    row.put(last.nanos().wrapping_sub(first.nanos()));
    row.put(first.nanos() / NANOS_PER_SEC);
    row.put(first.nanos().wrapping_sub(record.flow_start.nanos()));
    row.put(record.id);
    row.put(record.record_index.into());
    row.put(record.interface.into());
    address(&mut row, key.src);
    address(&mut row, key.dst);
    row.put(key.src_port.into());
    row.put(key.dst_port.into());
    row.put(key.protocol.0.into());
    around.vlans.iter().for_each(|vlan| row.maybe(vlan.unwrap_or(0).into(), vlan.is_some()));
    row.maybe(around.mpls.unwrap_or(0).into(), around.mpls.is_some());
    row.maybe(around.tunnel.map_or(0, |(kind, _)| kind as u64), around.tunnel.is_some());
    row.maybe(around.tunnel.map_or(0, |(_, id)| id.into()), around.tunnel.is_some());
    row.put(record.end_reason as u64);
    row.maybe(record.tcp_state as u64, record.tcp_state as u64 > 0);
    row.put(record.lost);
    row.maybe(record.syn_rtt.unwrap_or(0), record.syn_rtt.is_some());
    row.maybe(record.ack_rtt.unwrap_or(0), record.ack_rtt.is_some());
    row.put(directions[0].packets.wrapping_add(directions[1].packets));
    row.put(directions[0].bytes.wrapping_add(directions[1].bytes));
    for (direction, payload) in directions.iter().zip(&record.payload) {
        put_direction(&mut row, direction, payload, first);
    }
    row.put(record.initial_packets.len() as u64);
    let at = record.location.unwrap_or_default();
    row.maybe(at.queue.into(), record.location.is_some());
    row.maybe(at.first, record.location.is_some());
    row.maybe(at.last.wrapping_sub(at.first), record.location.is_some());
}

#[inline(always)]
fn address(row: &mut Row<'_, EVERY, MAYBE>, address: IpAddr) {
    let bits = match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits(),
    };
    row.put(bits as u64);
    row.maybe((bits >> 64) as u64, address.is_ipv6());
}

/// A number of a direction without packets, or without inter-arrival times, has no meaning and is written as null if it
/// is zero; any other value is kept.
#[inline(always)]
fn put_direction(row: &mut Row<'_, EVERY, MAYBE>, direction: &DirectionStats, payload: &[u8], first: Timestamp) {
    let DirectionStats { length, iat, .. } = direction;
    let (is_seen, is_timed) = (direction.packets > 0, direction.iat_count > 0);
    row.put(direction.packets);
    row.put(direction.bytes);
    row.put(direction.bytes.wrapping_sub(direction.ip_bytes));
    row.put(direction.ip_bytes.wrapping_sub(direction.payload_bytes));
    row.put(direction.payload_packets);
    row.maybe(direction.first.nanos().wrapping_sub(first.nanos()), is_seen || direction.first > Timestamp::ZERO);
    row.maybe(length.min, is_seen || length.min > 0);
    row.maybe(length.max, is_seen || length.max > 0);
    row.maybe_wide(length.squares, is_seen || length.squares > 0);
    row.put(direction.iat_count);
    row.maybe(iat.min, is_timed || iat.min > 0);
    row.maybe(iat.max, is_timed || iat.max > 0);
    row.maybe(iat.sum, is_timed || iat.sum > 0);
    row.maybe_wide(iat.squares, is_timed || iat.squares > 0);
    row.put(iat.sum.wrapping_sub(direction.last.nanos().wrapping_sub(direction.first.nanos())));
    direction.flags.iter().for_each(|packets| row.put(*packets));
    row.put(direction.zero_window);
    row.put(direction.retransmitted);
    row.put(direction.retransmitted_bytes);
    row.put(direction.out_of_order);
    for (least, most) in [direction.ttl, direction.dscp] {
        row.maybe(least.into(), is_seen || least > 0);
        row.maybe(most.into(), is_seen || most > 0);
    }
    row.maybe(direction.mac.map_or(0, |mac| mac_number(mac) as u64), direction.mac.is_some());
    row.maybe(payload.len() as u64, !payload.is_empty());
    let (first, last) = direction.tunnel_sequence.unwrap_or_default();
    row.maybe(first.into(), direction.tunnel_sequence.is_some());
    row.maybe(last.into(), direction.tunnel_sequence.is_some());
}
