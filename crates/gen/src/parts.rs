//! Provides frames as separate parts, for programs that assemble frames elsewhere. An eBPF program in the kernel cannot
//! run [`Traffic`], but it can copy the bytes of a flow, write a sequence number and departure time, and compute a CRC
//! from tables.
//!
//! ```text
//! frame               = template
//! frame[FLOW_AT..+14] = flow.bytes                          flow = flows in turn, from 0
//! frame[STAMP_AT..+12]= sequence (48 bit), departure (48 bit), big-endian
//! frame[n-4..n]       = flow.crc ^ tables[0][stamp[0]] ^ … ^ tables[11][stamp[11]], big-endian
//! ```
//! A frame assembled in this way equals the frame of [`Traffic`] byte for byte.
//!
//! [`Traffic`]: crate::Traffic

use crate::crc::{Carry, Window, crc32c};
use crate::layout::{self, Flow, at};
use crate::spec::{Order, Sizes, Spec};

/// The parts of frames of one size, for traffic whose flows each send one frame in turn.
pub struct Parts {
    template: Vec<u8>,
    flows: u32,
    /// CRC of the template without its last four bytes.
    crc: u32,
    header_sum: u32,
    window: Box<Window>,
    carry: Box<Carry>,
}

/// The part of a frame that depends on its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPart {
    /// IPv4 checksum, addresses and ports: the bytes at [`Parts::FLOW_AT`].
    pub bytes: [u8; 14],
    /// CRC of the flow's frame with zeros in the fields for sequence number and departure time.
    pub crc: u32,
}

/// For each of the twelve bytes of sequence number and departure time, what each of the 256 values of the byte
/// contributes to the CRC of the frame.
pub type StampTables = [[u32; 256]; at::STAMP.end - at::STAMP.start];

impl Parts {
    /// Offset of a flow's bytes in the frame.
    pub const FLOW_AT: usize = at::FLOW.start;
    /// Offset of the sequence number and departure time in the frame.
    pub const STAMP_AT: usize = at::STAMP.start;

    /// The parts from which the frames of `spec` are assembled; `None` if the frames differ in size, their flows do not
    /// take turns, or they carry no signature.
    pub fn new(spec: &Spec) -> Option<Self> {
        let Sizes::Fixed(len) = spec.sizes else { return None };
        if spec.order != Order::Even || !spec.signature {
            return None;
        }
        let template = layout::template(usize::from(len), true, spec.seed);
        let body = template.len() - 4;
        Some(Self {
            flows: spec.flows,
            crc: crc32c(&template[..body]),
            header_sum: layout::header_sum(&template),
            window: Window::new(),
            carry: Carry::over(body - at::STAMP.end),
            template,
        })
    }

    /// A frame with zeros in the bytes that depend on its flow, in its sequence number and departure time, and in its
    /// CRC.
    pub fn template(&self) -> &[u8] {
        &self.template
    }

    /// Number of flows.
    pub const fn flows(&self) -> u32 {
        self.flows
    }

    /// The part of a frame that depends on its flow, for the flow with this id.
    pub fn flow(&self, id: u32) -> FlowPart {
        let bytes = Flow::of(u64::from(id)).bytes(self.header_sum);
        FlowPart { bytes, crc: self.crc ^ self.carry.apply(self.window.flow(&bytes)) }
    }

    /// The tables, 12 KiB.
    pub fn stamp_tables(&self) -> Box<StampTables> {
        let mut tables = Box::new([[0; 256]; _]);
        for (position, table) in tables.iter_mut().enumerate() {
            for (value, sum) in table.iter_mut().enumerate() {
                let mut stamp = [0; 12];
                stamp[position] = value as u8;
                *sum = self.carry.apply(self.window.stamp(&stamp));
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Traffic;
    use base::Timestamp;

    #[test]
    fn traffic_with_mixed_sizes_or_random_flows_has_no_parts() {
        for spec in ["imix,truth", "backbone,truth", "60,order=heavy,truth", "60"] {
            assert!(Parts::new(&spec.parse().unwrap()).is_none(), "{spec}");
        }
    }

    #[test]
    fn frames_assembled_from_parts_equal_the_frames_of_the_traffic() {
        for text in ["60,flows=1,truth", "61,flows=7,truth", "1514,flows=1000,seed=9,truth", "9014,flows=3,truth"] {
            let spec: Spec = text.parse().unwrap();
            let (parts, mut traffic) = (Parts::new(&spec).unwrap(), Traffic::new(&spec));
            let (tables, mut frame) = (parts.stamp_tables(), parts.template().to_vec());
            let mut expected = vec![0; traffic.max_len()];
            for sequence in 0..2500u64 {
                let now = Timestamp::from_nanos(1_700_000_000_000_000_000 + sequence * 77_777_777);
                traffic.fill(&mut expected, now);
                let word = u128::from(sequence) << 48 | u128::from(now.nanos() & ((1 << 48) - 1));
                let stamp = &word.to_be_bytes()[4..];
                let flow = parts.flow((sequence % u64::from(parts.flows())) as u32);
                let crc = stamp.iter().zip(tables.iter()).fold(flow.crc, |crc, (b, t)| crc ^ t[usize::from(*b)]);
                frame[Parts::FLOW_AT..][..14].copy_from_slice(&flow.bytes);
                frame[Parts::STAMP_AT..][..12].copy_from_slice(stamp);
                let body = frame.len() - 4;
                frame[body..].copy_from_slice(&crc.to_be_bytes());
                assert_eq!(frame, expected, "{text}, frame {sequence}");
            }
        }
    }
}
