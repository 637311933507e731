//! The target reads capture files in the formats pcap, pcapng and RAW. Reading must end, must use little memory, and
//! must report errors with their offset in the file. The packets that were read are written as pcapng; when this pcapng
//! file is read, the packets must be the same.

use crate::Target;
use base::{Prng, Timestamp};
use pcap::{Direction, ETHERNET, Error, Format, MAX_BLOCK, Packet, Reader, classic, ng, raw};
use std::time::Duration;

pub const TARGET: Target = Target { name: "capture_file", run, seeds, rounds: 4000, memory: 8 << 20 };

/// The fields of a packet that pcapng can hold: timestamp, wire length, data, link type, direction, drops.
type PacketFields = (Timestamp, u32, Vec<u8>, u16, Direction, u64);

fn run(bytes: &[u8]) {
    let mut packets_read = Vec::new();
    read(bytes, Reader::open(bytes), |packet| packets_read.extend(packet_fields(packet)));
    for format in [Format::Pcap, Format::PcapNg, Format::Raw] {
        read(bytes, Reader::open_as(bytes, format), |_| {});
    }
    let written = write(&packets_read);
    let mut again = Vec::new();
    read(&written, Reader::open(&written[..]), |packet| again.extend(packet_fields(packet)));
    assert_eq!(again, packets_read);
}

/// Reads a capture file to its end and calls `each` for each packet.
fn read<R: std::io::Read>(bytes: &[u8], opened: Result<Reader<R>, Error>, mut each: impl FnMut(&Packet<'_>)) {
    let check_error =
        |e: &Error| assert!(e.offset() <= bytes.len() as u64 && e.to_string().starts_with("byte "), "{e}");
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(e) => return check_error(&e),
    };
    let (mut packets, mut before) = (0, 0);
    loop {
        match reader.next() {
            Ok(Some(packet)) => {
                assert!(packet.wire_len as usize >= packet.data.len());
                assert!(packets == 0 || packet.offset > before, "the reader makes no progress at byte {before}");
                (packets, before) = (packets + 1, packet.offset);
                each(&packet);
            }
            Ok(None) => break,
            Err(e) => {
                check_error(&e);
                assert!(matches!(reader.next(), Ok(None)), "the reader continues after an error");
                break;
            }
        }
    }
    assert_eq!(reader.records(), packets);
    assert!(reader.memory() <= 3 * MAX_BLOCK as usize, "the reader uses {} bytes of memory", reader.memory());
}

fn packet_fields(packet: &Packet<'_>) -> Option<PacketFields> {
    let Packet { wire_len, link_type, direction, drops, .. } = *packet;
    Some((packet.ts?, wire_len, packet.data.to_vec(), link_type, direction, drops))
}

fn write(packets: &[PacketFields]) -> Vec<u8> {
    let mut writer = ng::Writer::new(Vec::new(), "netgrain", "").expect("memory");
    let mut links = Vec::new();
    for (ts, wire_len, data, link_type, direction, drops) in packets {
        let interface = links.iter().position(|link| link == link_type).unwrap_or_else(|| {
            links.push(*link_type);
            writer.interface("", *link_type).expect("memory") as usize
        });
        let drops = Some(*drops).filter(|n| *n > 0);
        let options = ng::PacketOptions { direction: *direction, drops, queue: None };
        writer.packet(interface as u32, *ts, *wire_len, data, options).expect("the packet can be written");
    }
    writer.finish().expect("memory")
}

fn seeds() -> Vec<Vec<u8>> {
    let mut prng = Prng::new(9);
    let at = |i| Timestamp::from_secs_nanos(1_700_000_000, 0).after(Duration::from_millis(i));
    let mut files = Vec::new();
    for resolution in [classic::Resolution::Micros, classic::Resolution::Nanos] {
        let mut writer = classic::Writer::new(Vec::new(), resolution, ETHERNET).expect("memory");
        (0..4).for_each(|i| writer.write(at(i), 1500, &testkit::random_frame(&mut prng)).expect("memory"));
        files.push(writer.finish().expect("memory"));
    }
    let mut modified = files[0].clone();
    modified[..4].copy_from_slice(&0xa1b2_cd34u32.to_le_bytes());
    files.push(modified);
    let mut writer = ng::Writer::new(Vec::new(), "netgrain", "Linux").expect("memory");
    let interfaces =
        [("eth0", ETHERNET), ("eth1", 113)].map(|(name, link)| writer.interface(name, link).expect("memory"));
    for i in 0..4 {
        let options = ng::PacketOptions { drops: Some(i), queue: Some(1), direction: Direction::Inbound };
        let frame = testkit::random_frame(&mut prng);
        writer.packet(interfaces[i as usize % 2], at(i), 1500, &frame, options).expect("memory");
    }
    let statistics = ng::Statistics { start: Some(at(0)), received: Some(4), ..ng::Statistics::default() };
    writer.statistics(0, at(9), &statistics).expect("memory");
    files.push(writer.finish().expect("memory"));
    let mut file = raw::padding_header(5).to_vec();
    file.extend([0; 5]);
    for i in 0..4 {
        let frame = testkit::random_frame(&mut prng);
        file.extend(raw::record_header(at(i), frame.len() as u16, 1500));
        file.extend(frame);
    }
    file.extend(raw::padding_header(0));
    files.push(file);
    files
}
