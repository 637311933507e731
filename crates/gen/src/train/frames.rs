//! Makes the frames of a train: Ethernet, IPv4 (RFC 791) or IPv6 (RFC 8200), UDP (RFC 768), payload, filling.
//!
//! One template frame is made for each frame length, together with the sum of all its bytes that the UDP checksum
//! covers, except the payload. For each packet, the bytes of the payload are added to this sum, which gives the UDP
//! checksum.

use super::layout::{at, udp_offset};
use super::payload::PAYLOAD_LEN;
use super::spec::DEFAULT_SOURCE_MAC;
use super::{Departure, DeparturePlace, Payload, TrainSpec};
use crate::internet_checksum::{fold, sum};
use base::{ErrorEstimate, Prng, Timestamp};
use std::net::IpAddr;

/// The number of the session if the specification has none.
const DEFAULT_SESSION: u32 = 1;

const UDP: u8 = 17;
const HOPS: u8 = 64;

/// Frames of the sizes, addresses and ports of a [`TrainSpec`].
#[derive(Clone, Debug)]
pub struct TrainFrames {
    shapes: Vec<Shape>,
    udp: usize,
    session: u32,
    burst_size: u16,
}

#[derive(Clone, Debug)]
struct Shape {
    /// The frame with zeros in the payload and in the UDP checksum.
    template: Vec<u8>,
    /// The sum of the pseudo header and of the template from the UDP header on.
    sum: u64,
}

impl TrainFrames {
    /// The frames of this specification.
    pub fn new(spec: &TrainSpec) -> Self {
        let udp = udp_offset(&spec.source);
        let shapes = spec.sizes.iter().map(|len| Shape::new(spec, usize::from(*len), udp)).collect();
        Self { shapes, udp, session: spec.session.unwrap_or(DEFAULT_SESSION), burst_size: spec.per_burst }
    }

    /// The number of the session in the frames.
    pub const fn session(&self) -> u32 {
        self.session
    }

    /// Length of the longest frame in bytes.
    pub fn max_len(&self) -> usize {
        self.shapes.iter().map(|shape| shape.template.len()).max().unwrap_or(0)
    }

    /// Writes the frame of a departure with its departure time to the beginning of `buf`, and returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than the frame; [`TrainFrames::max_len`] always suffices.
    pub fn fill(
        &self,
        buf: &mut [u8],
        departure: &Departure,
        time: Timestamp,
        place: DeparturePlace,
        error: ErrorEstimate,
    ) -> usize {
        let len = self.prepare(buf, departure);
        self.stamp(buf, departure, time, place, error);
        len
    }

    /// Writes the frame of a departure without the payload that [`TrainFrames::stamp`] adds, and returns its length. A
    /// sender prepares a frame while it waits for the departure, so that little work is left at the departure.
    ///
    /// # Panics
    /// If `buf` is shorter than the frame.
    pub fn prepare(&self, buf: &mut [u8], departure: &Departure) -> usize {
        let template = &self.shapes[departure.size].template;
        buf[..template.len()].copy_from_slice(template);
        template.len()
    }

    /// Writes the payload and the UDP checksum to the prepared frame in `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter than the frame.
    #[inline]
    pub fn stamp(
        &self,
        buf: &mut [u8],
        departure: &Departure,
        time: Timestamp,
        place: DeparturePlace,
        error: ErrorEstimate,
    ) {
        let payload = Payload {
            place,
            error,
            session: self.session,
            train: departure.train,
            burst: departure.burst,
            index: departure.index,
            burst_size: self.burst_size,
            sequence: departure.sequence,
            departure: time,
            planned: departure.at,
        };
        let bytes = payload.bytes();
        let checksum = match fold(self.shapes[departure.size].sum + sum(&bytes)) {
            // The complement of 0xffff is 0, which means that there is no checksum (RFC 768). So 0xffff is written.
            0xffff => 0xffff,
            folded => !folded,
        };
        buf[self.udp..][at::udp::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        buf[self.udp + at::udp::END..][..PAYLOAD_LEN].copy_from_slice(&bytes);
    }
}

impl Shape {
    fn new(spec: &TrainSpec, len: usize, udp: usize) -> Self {
        let mut frame = vec![0; len];
        Prng::new(u64::from(spec.session.unwrap_or(DEFAULT_SESSION)) ^ (len as u64) << 32)
            .fill(&mut frame[udp + at::udp::END + PAYLOAD_LEN..]);
        frame[at::DST_MAC].copy_from_slice(&spec.destination_mac);
        frame[at::SRC_MAC].copy_from_slice(&spec.source_mac.unwrap_or(DEFAULT_SOURCE_MAC));
        let addresses = match (spec.source.ip(), spec.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame[at::ETHERTYPE].copy_from_slice(&0x0800u16.to_be_bytes());
                frame[at::IP] = 0x45;
                frame[at::v4::LEN].copy_from_slice(&((len - at::IP) as u16).to_be_bytes());
                frame[at::v4::FLAGS] = 0x40; // do not fragment, so that an identification of 0 is right (RFC 6864)
                frame[at::v4::TTL] = HOPS;
                frame[at::v4::PROTOCOL] = UDP;
                let addresses = [source.octets(), destination.octets()].concat();
                frame[at::v4::ADDRESSES].copy_from_slice(&addresses);
                let checksum = !fold(sum(&frame[at::v4::HEADER]));
                frame[at::v4::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
                addresses
            }
            (source, destination) => {
                let v6 = |address| match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                };
                frame[at::ETHERTYPE].copy_from_slice(&0x86ddu16.to_be_bytes());
                frame[at::IP] = 0x60;
                frame[at::v6::LEN].copy_from_slice(&((len - udp) as u16).to_be_bytes());
                frame[at::v6::NEXT_HEADER] = UDP;
                frame[at::v6::HOP_LIMIT] = HOPS;
                let addresses = [v6(source), v6(destination)].concat();
                frame[at::v6::ADDRESSES].copy_from_slice(&addresses);
                addresses
            }
        };
        let header = &mut frame[udp..];
        header[at::udp::SRC].copy_from_slice(&spec.source.port().to_be_bytes());
        header[at::udp::DST].copy_from_slice(&spec.destination.port().to_be_bytes());
        header[at::udp::LEN].copy_from_slice(&((len - udp) as u16).to_be_bytes());
        let pseudo_header = sum(&addresses) + u64::from(UDP) + (len - udp) as u64;
        Self { sum: pseudo_header + sum(&frame[udp..]), template: frame }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Departures;
    use super::*;
    use std::time::Duration;

    fn frames(spec: &str) -> Vec<Vec<u8>> {
        let spec: TrainSpec = spec.parse().unwrap();
        let made = TrainFrames::new(&spec);
        let error = ErrorEstimate::of(Duration::from_micros(3), false);
        let frame = |departure: Departure| {
            let mut buf = vec![0xee; made.max_len()];
            let time = Timestamp::from_nanos(1 << 60).after(departure.at);
            let len = made.fill(&mut buf, &departure, time, DeparturePlace::BeforeSend, error);
            buf[..len].to_vec()
        };
        Departures::new(&spec).map(frame).collect()
    }

    /// The sum of a pseudo header and a UDP datagram, without the code of this module: all ones if the checksum is
    /// right.
    fn udp_sum(addresses: &[u8], datagram: &[u8]) -> u32 {
        let mut bytes = [addresses, &[0, 17], &(datagram.len() as u16).to_be_bytes(), datagram].concat();
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        let mut sum = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) * 256 + u32::from(pair[1]);
            sum = sum % 65_536 + sum / 65_536;
        }
        sum
    }

    #[test]
    fn ipv4_frames_have_the_requested_sizes_addresses_and_valid_checksums() {
        let all = frames(
            "train,bursts=40,per-burst=25,size=90:91:1514,from=10.1.2.3:4000,to=10.9.8.7:5000,\
             from-mac=02:00:00:00:00:0a,to-mac=02:00:00:00:00:0b",
        );
        for (i, frame) in all.iter().enumerate() {
            assert_eq!(frame.len(), [90, 91, 1514][i % 3]);
            assert_eq!(frame[..14], [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 8, 0]);
            assert_eq!(frame[26..38], [10, 1, 2, 3, 10, 9, 8, 7, 0x0f, 0xa0, 0x13, 0x88]);
            assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
            assert_eq!(fold(sum(&frame[14..34])), 0xffff);
            assert_eq!(udp_sum(&frame[26..34], &frame[34..]), 0xffff, "frame {i}");
            let payload = Payload::parse(&frame[42..]).unwrap();
            assert_eq!((payload.sequence, payload.burst_size), (i as u64, 25));
            assert_eq!((payload.burst, payload.index), (i as u32 / 25, (i % 25) as u16));
        }
        assert_eq!(all.len(), 1000);
    }

    #[test]
    fn ipv6_frames_have_valid_checksums() {
        for (i, frame) in frames("train,per-burst=1000,size=110:1514:333,from=[2001:db8::1]:1,to=[2001:db8::2]:65535")
            .iter()
            .enumerate()
        {
            assert_eq!(frame[12..15], [0x86, 0xdd, 0x60]);
            assert_eq!(usize::from(u16::from_be_bytes([frame[18], frame[19]])), frame.len() - 54);
            assert_eq!(udp_sum(&frame[22..54], &frame[54..]), 0xffff, "frame {i}");
            assert_eq!(Payload::parse(&frame[62..]).unwrap().sequence, i as u64);
        }
    }

    #[test]
    fn equal_sessions_have_equal_filling() {
        assert_eq!(frames("train,size=300,session=3"), frames("train,size=300,session=3"));
        assert_ne!(frames("train,size=300,session=3")[0][100..], frames("train,size=300,session=4")[0][100..]);
    }
}
