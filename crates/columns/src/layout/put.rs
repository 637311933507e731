//! A record's numbers into a tile, strip by strip in the order of the columns ([`super::flows`]).

use super::early;
use super::guess::{Guess, Listed, guess_from};
use super::text::mac_number;
use crate::builder::{Row, Tile};
use flow::{Record, Side};
use std::net::IpAddr;

/// Strips with a number of every row: of the whole, of each side, and how many packets are listed.
const EVERY: usize = 13 + 2 * 21 + 1;

/// Strips of numbers that may be missing: of the whole, of each side, and of what is guessed of each.
const MAYBE: usize = 13 + 2 * 4 + 2 * GUESSED;

/// Those of a side that are null where they are as guessed.
const GUESSED: usize = 13;

/// Puts a record into the next row.
#[inline]
pub fn put(record: &Record, tile: &mut Tile) {
    let (first, last) = (record.first(), record.last());
    // The tests of every field that comes back hold the numbers of strips against the table.
    let none = "as many strips as the table has";
    let Some(leaves) = tile.entries.first_chunk_mut() else { return debug_assert!(false, "{none}") };
    let mut listed = [Listed::NONE; 2];
    early::put(record, last, leaves, &mut listed);
    let guess = guess_from(record, first, last, &listed);
    for (raw, payload) in tile.raw.iter_mut().zip(&record.payload) {
        raw.extend_from_slice(payload);
    }
    let Record { key, around, sides, .. } = record;
    let Some(mut row) = tile.row::<EVERY, MAYBE>() else { return debug_assert!(false, "{none}") };
    row.put(first.nanos());
    row.put(last.nanos());
    row.maybe(record.began.nanos(), record.began != first);
    row.put(record.id);
    row.put(record.part.into());
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
    row.put(record.end as u64);
    row.put(record.tcp as u64);
    row.put(record.lost);
    row.maybe(record.syn_rtt.unwrap_or(0), record.syn_rtt.is_some());
    row.maybe(record.ack_rtt.unwrap_or(0), record.ack_rtt.is_some());
    for (side, payload) in sides.iter().zip(&record.payload) {
        plain(&mut row, side, payload);
    }
    row.put(record.early.len() as u64);
    for (side, guess) in sides.iter().zip(&guess) {
        guessed(&mut row, side, guess);
    }
    let at = record.locator.unwrap_or_default();
    row.maybe(at.queue.into(), record.locator.is_some());
    row.maybe(at.first, record.locator.is_some());
    row.maybe(at.last.wrapping_sub(at.first), record.locator.is_some());
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

#[inline(always)]
fn plain(row: &mut Row<'_, EVERY, MAYBE>, side: &Side, payload: &[u8]) {
    row.put(side.packets);
    row.put(side.bytes);
    row.put(side.bytes.wrapping_sub(side.ip_bytes));
    row.put(side.ip_bytes.wrapping_sub(side.payload_bytes));
    row.put(side.payload_packets);
    side.flags.iter().for_each(|packets| row.put(*packets));
    row.put(side.zero_window);
    row.put(side.retransmitted);
    row.put(side.retransmitted_bytes);
    row.put(side.out_of_order);
    row.put(side.ttl.0.into());
    row.put(side.ttl.1.into());
    row.put(side.dscp.0.into());
    row.put(side.dscp.1.into());
    row.maybe(side.mac.map_or(0, |mac| mac_number(mac) as u64), side.mac.is_some());
    row.maybe(payload.len() as u64, !payload.is_empty());
    let (first, last) = side.tunnel_sequence.unwrap_or_default();
    row.maybe(first.into(), side.tunnel_sequence.is_some());
    row.maybe(last.into(), side.tunnel_sequence.is_some());
}

#[inline(always)]
fn guessed(row: &mut Row<'_, EVERY, MAYBE>, side: &Side, guess: &Guess) {
    let has_bytes = side.length.sum == side.ip_bytes;
    let Side { first, last, length, gap, gaps, .. } = *side;
    // PERF: a side of few packets is in the list whole, which is to say, mostly.
    if has_bytes && guess.is(side) {
        return row.skip(GUESSED);
    }
    row.maybe(first.nanos(), first != guess.first);
    row.maybe(last.nanos(), last != guess.last);
    row.maybe(length.min, length.min != guess.length.min);
    row.maybe(length.max, length.max != guess.length.max);
    row.maybe(length.sum, !has_bytes);
    row.maybe_wide(length.squares, length.squares != guess.length.squares);
    row.maybe(gaps, gaps != guess.gaps);
    row.maybe(gap.min, gap.min != guess.gap.min);
    row.maybe(gap.max, gap.max != guess.gap.max);
    row.maybe(gap.sum, gap.sum != guess.gap.sum);
    row.maybe_wide(gap.squares, gap.squares != guess.gap.squares);
}
