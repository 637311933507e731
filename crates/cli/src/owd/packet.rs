//! Parses packets of trains.

use delay::Arrival;
use r#gen::train::{Payload, PayloadError};
use wire::{Checksum, FlowKey, Fragment, Headers, IpProtocol, Udp};

/// A packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPacket {
    /// Addresses and ports.
    pub flow: FlowKey,
    /// The payload.
    pub payload: Payload,
    /// Length on the wire in bytes, without FCS.
    pub bytes: u32,
}

impl TrainPacket {
    /// The input of the analysis for this packet. `time` is the time of arrival.
    pub fn arrival(&self, time: base::Timestamp) -> Arrival {
        Arrival {
            sequence: self.payload.sequence,
            train: self.payload.train,
            burst: self.payload.burst,
            index: self.payload.index,
            burst_size: self.payload.burst_size,
            departure: self.payload.departure,
            arrival: time,
            bytes: self.bytes,
        }
    }
}

/// The reason why a packet is not analysed as a packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTrain {
    /// The packet belongs to other traffic, or its payload was not captured.
    Other,
    /// The payload has an invalid field.
    Malformed(PayloadError),
    /// The UDP checksum or the UDP length is wrong.
    Damaged,
}

/// Parses the captured bytes of a frame as a packet of a train.
pub fn parse(data: &[u8], wire_len: u32, link_type: u16) -> Result<TrainPacket, NoTrain> {
    let headers = Headers::of(data, wire_len, link_type);
    let is_udp = headers.protocol() == Some(IpProtocol::UDP) && headers.fragment() == Fragment::default();
    let flow = FlowKey::of(data, &headers).filter(|_| is_udp).ok_or(NoTrain::Other)?;
    let at = usize::from(headers.l4());
    let udp = Udp::parse(data, at).map_err(|_| NoTrain::Other)?;
    let payload = match Payload::parse(udp.payload()) {
        Err(PayloadError::Foreign) => return Err(NoTrain::Other),
        other => other,
    };
    if at + usize::from(udp.len()) > wire_len as usize {
        return Err(NoTrain::Damaged);
    }
    // The checksum of a packet that was not captured completely cannot be verified.
    if let Some(datagram) = data.get(at..at + usize::from(udp.len()))
        && udp.checksum() != 0
        && udp_checksum(&flow, datagram) != 0
    {
        return Err(NoTrain::Damaged);
    }
    Ok(TrainPacket { flow, payload: payload.map_err(NoTrain::Malformed)?, bytes: wire_len })
}

/// The checksum over pseudo header and datagram (RFC 768, RFC 8200 §8.1); 0 if the field of the datagram is right.
fn udp_checksum(flow: &FlowKey, datagram: &[u8]) -> u16 {
    use std::net::IpAddr::{V4, V6};
    let sum = Checksum::new().word(17).word(datagram.len() as u16);
    let sum = match (flow.src, flow.dst) {
        (V4(src), V4(dst)) => sum.bytes(&src.octets()).bytes(&dst.octets()),
        (V6(src), V6(dst)) => sum.bytes(&src.octets()).bytes(&dst.octets()),
        // The two addresses of a flow key are of one family.
        _ => sum,
    };
    sum.bytes(datagram).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ErrorEstimate, Prng, Timestamp};
    use r#gen::train::{DeparturePlace, Departures, TrainFrames, TrainSpec};
    use std::time::Duration;

    fn frame(spec: &str) -> Vec<u8> {
        let spec: TrainSpec = spec.parse().expect("a specification");
        let frames = TrainFrames::new(&spec);
        let mut frame = vec![0; frames.max_len()];
        let first = Departures::new(&spec).next().expect("a departure");
        let error = ErrorEstimate::of(Duration::from_micros(1), true);
        frames.fill(&mut frame, &first, Timestamp::from_nanos(77), DeparturePlace::BeforeSend, error);
        frame
    }

    fn of(frame: &[u8]) -> Result<TrainPacket, NoTrain> {
        parse(frame, frame.len() as u32, wire::link::ETHERNET)
    }

    #[test]
    fn a_changed_bit_after_the_ip_header_is_damage_or_other_traffic() {
        let mut prng = Prng::new(3);
        for spec in ["train,size=201", "train,size=200,from=[2001:db8::1]:7,to=[2001:db8::2]:9"] {
            let good = frame(spec);
            let udp = if good[12] == 8 { 34 } else { 54 };
            for _ in 0..2000 {
                let mut bad = good.clone();
                let at = udp + prng.below((good.len() - udp) as u64) as usize;
                bad[at] ^= 1 << prng.below(8);
                assert!(of(&bad).is_err(), "byte {at}, seed 3");
            }
        }
    }

    #[test]
    fn a_packet_that_was_not_captured_completely_is_still_a_packet_of_a_train() {
        let whole = frame("train,size=1000");
        let cut = parse(&whole[..90], 1000, wire::link::ETHERNET);
        assert_eq!(cut, of(&whole));
        assert_eq!(parse(&whole[..89], 1000, wire::link::ETHERNET), Err(NoTrain::Other));
    }

    #[test]
    fn the_packet_has_its_addresses_length_and_payload() {
        let packet = of(&frame("train,size=300,from=10.1.1.1:5,to=10.2.2.2:6,session=9")).expect("a packet");
        assert_eq!(packet.flow.to_string(), "10.1.1.1:5 > 10.2.2.2:6 udp");
        assert_eq!((packet.bytes, packet.payload.session, packet.payload.departure.nanos()), (300, 9, 77));
        let other = r#gen::Traffic::new(&"60,truth".parse().expect("a specification"));
        let mut buf = vec![0; other.max_len()];
        let mut other = other;
        other.fill(&mut buf, Timestamp::ZERO);
        assert_eq!(of(&buf), Err(NoTrain::Other));
    }
}
