//! Makes the frames that a [`Spec`] describes, in order.

use crate::backbone::Backbone;
use crate::crc::{Carry, Window, crc32c};
use crate::layout::{self, Flow, at};
use crate::spec::{Order, Spec};
use base::{Prng, Timestamp};

/// An endless stream of frames; equal specifications give equal streams.
pub struct Traffic {
    shapes: Vec<Shape>,
    /// Indexes of `shapes`, each repeated according to the weight of its frame length; a random element is the shape of
    /// a frame.
    weighted_shapes: Vec<u8>,
    flows: Flows,
    prng: Prng,
    window: Box<Window>,
    signature: bool,
    sequence: u64,
}

/// The parts that all frames of one length have in common.
struct Shape {
    /// A frame of this length, whose variable fields are overwritten in each copy.
    template: Vec<u8>,
    /// CRC of all bytes of the template except the last four.
    crc: u32,
    header_sum: u32,
    carry: Box<Carry>,
}

enum Flows {
    Even { next: u64, flows: u64 },
    Heavy(Box<Backbone>),
}

/// A frame without its sequence number, departure time and CRC; see [`Traffic::stamp`].
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    shape: u8,
    len: u16,
    crc: u32,
}

impl Prepared {
    /// Length of the frame in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame has at least 60 bytes")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }
}

impl Traffic {
    /// The traffic that `spec` describes. The caller applies the rate, the number of packets and the duration.
    pub fn new(spec: &Spec) -> Self {
        let weights = spec.sizes.weights();
        let shapes = weights.iter().map(|(len, _)| Shape::new(usize::from(*len), spec.signature, spec.seed)).collect();
        let mut prng = Prng::new(spec.seed);
        let flows = match spec.order {
            Order::Even => Flows::Even { next: 0, flows: u64::from(spec.flows) },
            Order::Heavy => Flows::Heavy(Box::new(Backbone::new(spec.flows, Prng::new(prng.next_u64())))),
        };
        let tickets = |(shape, (_, weight)): (usize, &(u16, u16))| vec![shape as u8; usize::from(*weight)];
        let weighted_shapes = weights.iter().enumerate().flat_map(tickets).collect();
        Self { shapes, weighted_shapes, flows, prng, window: Window::new(), signature: spec.signature, sequence: 0 }
    }

    /// Length of the longest frame in bytes.
    pub fn max_len(&self) -> usize {
        self.shapes.iter().map(|s| s.template.len()).max().unwrap_or(0)
    }

    /// Mean length of the frames in bytes.
    pub fn mean_len(&self) -> f64 {
        let sum: usize = self.weighted_shapes.iter().map(|s| self.shapes[usize::from(*s)].template.len()).sum();
        sum as f64 / self.weighted_shapes.len() as f64
    }

    /// The sequence number of the next frame, which is also the number of frames sent. Stays 0 if the frames have no
    /// signature.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes the next frame with the departure time `now` to the beginning of `buf`, and returns its length.
    ///
    /// # Panics
    /// When `buf` is shorter than the frame; [`Traffic::max_len`] always suffices.
    #[inline]
    pub fn fill(&mut self, buf: &mut [u8], now: Timestamp) -> usize {
        let prepared = self.prepare(buf);
        self.stamp(buf, &prepared, now);
        prepared.len()
    }

    /// Writes the next frame without the fields that [`Traffic::stamp`] adds. A prepared frame can be stamped and sent
    /// many times, so the other fields are written only once.
    ///
    /// # Panics
    /// When `buf` is shorter than the frame.
    #[inline]
    pub fn prepare(&mut self, buf: &mut [u8]) -> Prepared {
        let number = match self.weighted_shapes.len() {
            1 => 0,
            tickets => self.weighted_shapes[self.prng.below(tickets as u64) as usize],
        };
        let shape = &self.shapes[usize::from(number)];
        let len = shape.template.len();
        let frame = &mut buf[..len];
        frame.copy_from_slice(&shape.template);
        let flow = Flow::of(self.flows.next()).bytes(shape.header_sum);
        frame[at::FLOW].copy_from_slice(&flow);
        let crc = if self.signature { self.window.flow(&flow) } else { 0 };
        Prepared { shape: number, len: len as u16, crc }
    }

    /// Completes the prepared frame in `buf` as the next frame: writes the sequence number, the departure time `now`
    /// and the CRC. A frame without signature remains unchanged.
    #[inline]
    pub fn stamp(&mut self, buf: &mut [u8], prepared: &Prepared, now: Timestamp) {
        if !self.signature {
            return;
        }
        let word = u128::from(self.sequence & LOW_48) << 48 | u128::from(now.nanos() & LOW_48);
        let mut stamp = [0; 12];
        stamp.copy_from_slice(&word.to_be_bytes()[4..]);
        self.sequence += 1;
        let shape = &self.shapes[usize::from(prepared.shape)];
        let crc = shape.crc ^ shape.carry.apply(prepared.crc ^ self.window.stamp(&stamp));
        let frame = &mut buf[..prepared.len()];
        frame[at::STAMP].copy_from_slice(&stamp);
        frame[prepared.len() - 4..].copy_from_slice(&crc.to_be_bytes());
    }
}

const LOW_48: u64 = (1 << 48) - 1;

impl Shape {
    fn new(len: usize, truth: bool, seed: u64) -> Self {
        let template = layout::template(len, truth, seed);
        Self {
            crc: crc32c(&template[..len - 4]),
            header_sum: layout::header_sum(&template),
            carry: Carry::over(len - 4 - at::STAMP.end),
            template,
        }
    }
}

impl Flows {
    #[inline]
    fn next(&mut self) -> u64 {
        match self {
            Self::Even { next, flows } => {
                let flow = *next;
                *next = if flow + 1 == *flows { 0 } else { flow + 1 };
                flow
            }
            Self::Heavy(backbone) => backbone.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn frames(spec: &str, count: u64) -> Vec<Vec<u8>> {
        let mut traffic = Traffic::new(&spec.parse().unwrap());
        let mut buf = vec![0xee; traffic.max_len()];
        (0..count)
            .map(|i| {
                let len = traffic.fill(&mut buf, Timestamp::from_nanos((1 << 60) + i * 1000));
                buf[..len].to_vec()
            })
            .collect()
    }

    fn low48(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    #[test]
    #[should_panic(expected = "range end index 60")]
    fn a_buffer_that_is_too_short_panics() {
        Traffic::new(&"60".parse().unwrap()).fill(&mut [0; 59], Timestamp::ZERO);
    }

    #[test]
    fn every_frame_has_the_documented_fields_and_crc() {
        for spec in ["60,truth", "61,truth", "imix,truth,flows=7", "backbone,truth,flows=1k,seed=3", "9014,truth"] {
            for (i, f) in frames(spec, 2000).iter().enumerate() {
                let body = f.len() - 4;
                assert_eq!(f[42..44], [0x6e, 0x67], "{spec}");
                assert_eq!(low48(&f[44..50]), i as u64, "{spec}");
                assert_eq!(low48(&f[50..56]), i as u64 * 1000, "{spec}");
                assert_eq!(f[body..], crc32c(&f[..body]).to_be_bytes(), "{spec}, frame {i}");
                assert_eq!(usize::from(u16::from_be_bytes([f[16], f[17]])), f.len() - 14);
                assert_eq!(usize::from(u16::from_be_bytes([f[38], f[39]])), f.len() - 34);
            }
        }
    }

    #[test]
    fn a_prepared_frame_can_be_stamped_repeatedly() {
        let mut traffic = Traffic::new(&"imix,truth".parse().unwrap());
        let mut buf = vec![0; traffic.max_len()];
        let prepared = traffic.prepare(&mut buf);
        for i in 0..300u64 {
            traffic.stamp(&mut buf, &prepared, Timestamp::from_nanos(i << 32));
            let (body, crc) = buf[..prepared.len()].split_last_chunk().unwrap();
            assert_eq!(low48(&body[44..50]), i);
            assert_eq!(*crc, crc32c(body).to_be_bytes());
        }
        assert_eq!(traffic.sequence(), 300);
    }

    #[test]
    fn frames_without_signature_have_no_magic_and_no_departure() {
        let (a, b) = (frames("100", 10), frames("100", 10));
        assert_eq!(a, b);
        assert!(a.iter().all(|f| f[42..44] == [0, 0] && f[..3] == [2, 0, 0]));
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_different_seeds_do_not() {
        assert_eq!(frames("backbone,seed=4,truth", 1000), frames("backbone,seed=4,truth", 1000));
        assert_ne!(frames("backbone,seed=4,truth", 1000), frames("backbone,seed=5,truth", 1000));
    }

    #[test]
    fn the_even_order_takes_all_flows_in_turn() {
        let frames = frames("60,flows=37", 37 * 4);
        let tuple = |f: &Vec<u8>| f[26..38].to_vec();
        let first: HashSet<_> = frames[..37].iter().map(tuple).collect();
        assert_eq!(first.len(), 37);
        assert!(frames.iter().zip(&frames[37..]).all(|(a, b)| tuple(a) == tuple(b)));
    }

    #[test]
    fn mixes_of_sizes_have_their_proportions() {
        const FRAMES: u64 = 200_000;
        let mut sizes = HashMap::new();
        for f in frames("imix", FRAMES) {
            *sizes.entry(f.len()).or_insert(0u64) += 1;
        }
        for (len, twelfths) in [(60, 7.0), (590, 4.0), (1514, 1.0)] {
            let share = sizes[&len] as f64 * 12.0 / FRAMES as f64;
            assert!((share - twelfths).abs() < 0.05, "{share} of 12 frames have {len} bytes");
        }
        assert_eq!(sizes.len(), 3);
        let traffic = Traffic::new(&"backbone".parse().unwrap());
        let bytes: usize = frames("backbone", FRAMES).iter().map(Vec::len).sum();
        let mean = bytes as f64 / FRAMES as f64;
        assert!((mean - 871.0).abs() < 8.0, "{mean} bytes per packet, published 871");
        assert!((mean - traffic.mean_len()).abs() < 8.0);
    }

    #[test]
    fn the_heavy_order_has_its_long_flows_from_the_start() {
        // Seven in ten packets belong to flows of more than 10 000 packets. This test sends 200 packets per active
        // flow, so the long flows of the start are still active at the end, with about 200 packets each. All other
        // flows began during the test.
        let mut packets = HashMap::new();
        for f in frames("60,order=heavy,flows=1000,seed=6", 200_000) {
            *packets.entry(f[26..38].to_vec()).or_insert(0u64) += 1;
        }
        let heavy = packets.values().filter(|n| **n > 140).sum::<u64>() as f64 / 200_000.0;
        let single = packets.values().filter(|n| **n == 1).count() as f64 / (packets.len() - 1000) as f64;
        assert!((0.62..0.95).contains(&heavy), "share of packets in long flows: {heavy}, seed 6");
        assert!((0.44..0.56).contains(&single), "share of new flows with one packet: {single}, seed 6");
    }
}
