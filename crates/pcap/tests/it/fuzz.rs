//! Passes arbitrary bytes to every reader, and checks that no reader panics, that memory is limited, and that reading
//! ends.
//!
//! `NETGRAIN_FUZZ_ITERS=100` multiplies the number of rounds; `NETGRAIN_SEED` repeats a failed run.

use base::{Prng, Timestamp};
use netgrain_pcap::{Direction, ETHERNET, Error, Format, MAX_BLOCK, MAX_PACKET, Packet, Reader, classic, ng, raw};
use std::io::{self, ErrorKind, Read};
use std::time::Duration;

/// The fuzz target: reads `bytes` in the recognised format, and in each format by name.
fn any_bytes(bytes: &[u8]) {
    exhaust(bytes.len(), Reader::open(bytes));
    for format in [Format::Pcap, Format::PcapNg, Format::Raw] {
        exhaust(bytes.len(), Reader::open_as(bytes, format));
    }
}

fn exhaust<R: Read>(len: usize, reader: Result<Reader<R>, Error>) {
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(e) => return explain(&e, len),
    };
    let (mut packets, mut before) = (0, 0);
    loop {
        match reader.next() {
            Ok(Some(p)) => {
                assert!(p.data.len() <= MAX_PACKET as usize && p.wire_len as usize >= p.data.len());
                assert!(packets == 0 || p.offset > before, "reading does not advance at {before}");
                before = p.offset;
                packets += 1;
            }
            Ok(None) => break,
            Err(e) => {
                explain(&e, len);
                assert!(reader.next().unwrap().is_none(), "the reader is at its end after an error");
                break;
            }
        }
    }
    assert_eq!(reader.records(), packets);
    assert!(reader.memory() <= 3 * MAX_BLOCK as usize, "{} bytes held", reader.memory());
}

/// Checks that an error has an offset inside the file and a text.
fn explain(e: &Error, len: usize) {
    assert!(e.offset() <= len as u64, "{e}");
    assert!(e.to_string().starts_with("byte "), "{e}");
}

fn rounds(normal: u64) -> u64 {
    let times = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    normal * times
}

/// One small valid file of each format.
fn valid_files() -> Vec<(Format, Vec<u8>)> {
    let at = |i| Timestamp::from_secs_nanos(1_700_000_000, 0).after(Duration::from_millis(i));
    let mut prng = Prng::new(9);
    let mut packets = || {
        let mut data = vec![0; prng.below(90) as usize];
        prng.fill(&mut data);
        data
    };
    let mut files = Vec::new();
    for resolution in [classic::Resolution::Micros, classic::Resolution::Nanos] {
        let mut w = classic::Writer::new(Vec::new(), resolution, ETHERNET).unwrap();
        (0..8).for_each(|i| w.write(at(i), 1500, &packets()).unwrap());
        files.push((Format::Pcap, w.finish().unwrap()));
    }
    let mut kuznetzov = files[0].1.clone();
    kuznetzov[..4].copy_from_slice(&0xa1b2_cd34u32.to_le_bytes());
    files.push((Format::Pcap, kuznetzov));
    let mut w = ng::Writer::new(Vec::new(), "netgrain", "Linux").unwrap();
    let interfaces = [w.interface("eth0", ETHERNET).unwrap(), w.interface("eth1", 113).unwrap()];
    for i in 0..8 {
        let options = ng::PacketOptions { drops: Some(i), queue: Some(1), ..ng::PacketOptions::default() };
        w.packet(interfaces[i as usize % 2], at(i), 1500, &packets(), options).unwrap();
    }
    w.statistics(0, at(9), &ng::Statistics { start: Some(at(0)), received: Some(8), ..Default::default() }).unwrap();
    files.push((Format::PcapNg, w.finish().unwrap()));
    let mut w: Vec<u8> = raw::padding_header(5).to_vec();
    w.extend([0; 5]);
    for i in 0..8 {
        let data = packets();
        w.extend(raw::record_header(at(i), data.len() as u16, 1500));
        w.extend(data);
    }
    w.extend(raw::padding_header(0));
    files.push((Format::Raw, w));
    files
}

#[test]
fn random_bytes_cause_no_panic() {
    let seed = testkit::seed("random_bytes_cause_no_panic");
    for round in 0..rounds(4000) {
        let mut prng = Prng::new(seed ^ round << 20);
        let mut junk = vec![0; prng.below(600) as usize];
        prng.fill(&mut junk);
        // With a magic number at the beginning, more of the random bytes are parsed.
        let magics: [&[u8]; 6] = [
            &[],
            &0xa1b2_c3d4u32.to_le_bytes(),
            &0xa1b2_3c4du32.to_be_bytes(),
            &0xa1b2_cd34u32.to_le_bytes(),
            &[0x0a, 0x0d, 0x0d, 0x0a, 32, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
            &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 32, 0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0],
        ];
        any_bytes(&[magics[prng.below(6) as usize], &junk].concat());
    }
}

#[test]
fn a_truncated_file_gives_its_complete_packets_and_then_an_error() {
    for (format, file) in valid_files() {
        let whole = count(&file, format);
        assert!(whole > 0);
        let mut last = 0;
        for cut in 0..=file.len() {
            any_bytes(&file[..cut]);
            let packets = count(&file[..cut], format);
            assert!(packets >= last && packets <= whole, "{format} cut at {cut}");
            last = packets;
        }
        assert_eq!(last, whole);
    }
}

fn count(file: &[u8], format: Format) -> u64 {
    let Ok(mut reader) = Reader::open_as(file, format) else { return 0 };
    while let Ok(true) = reader.advance() {}
    reader.records()
}

#[test]
fn damaged_files_cause_no_panic() {
    let seed = testkit::seed("damaged_files_cause_no_panic");
    let files = valid_files();
    let tempting =
        [0, 1, 3, 4, 11, 12, 0x7fff_ffff, 0x8000_0000, u32::MAX, MAX_PACKET, MAX_PACKET + 1, MAX_BLOCK, 65_535];
    for round in 0..rounds(6000) {
        let mut prng = Prng::new(seed ^ round << 20);
        let mut file = files[prng.below(files.len() as u64) as usize].1.clone();
        for _ in 0..=prng.below(4) {
            let at = prng.below(file.len() as u64 - 8) as usize;
            match prng.below(5) {
                0 => file[at] ^= 1 << prng.below(8),
                1 => file[at] = prng.next_u64() as u8,
                2 => {
                    let value = tempting[prng.below(tempting.len() as u64) as usize];
                    let at = at & !3;
                    let bytes = if prng.below(2) == 0 { value.to_le_bytes() } else { value.to_be_bytes() };
                    file[at..at + 4].copy_from_slice(&bytes);
                }
                3 => {
                    let end = (at + prng.below(40) as usize).min(file.len() - 8);
                    file.drain(at..end.max(at));
                }
                _ => {
                    let piece = file[at..].to_vec();
                    file.extend(piece);
                }
            }
            if file.len() < 16 {
                break;
            }
        }
        any_bytes(&file);
    }
}

/// A source that returns 1 to 90 bytes, or `WouldBlock`.
struct IncrementalSource<'a>(&'a [u8], Prng);

impl Read for IncrementalSource<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.1.below(3) == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = (1 + self.1.below(90) as usize).min(into.len()).min(self.0.len());
        into[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

#[test]
fn a_source_that_blocks_at_any_byte_gives_the_same_packets() {
    for (format, file) in valid_files() {
        // The headers come from memory, because opening cannot be resumed after `WouldBlock`; the other bytes come in
        // small pieces.
        for seed in 0..50 {
            let (head, tail) = file.split_at(120.min(file.len()));
            let mut halting = Reader::open_as(head.chain(IncrementalSource(tail, Prng::new(seed))), format).unwrap();
            let mut plain = Reader::open_as(&file[..], format).unwrap();
            loop {
                let moved = match halting.advance() {
                    Err(e) if e.is_pause() => continue,
                    moved => moved.map_err(|e| e.to_string()),
                };
                assert_eq!(moved, plain.advance().map_err(|e| e.to_string()), "seed {seed}");
                assert_eq!(halting.current(), plain.current(), "seed {seed}");
                if moved != Ok(true) {
                    break;
                }
            }
        }
    }
}

/// All fields of a packet.
type PacketCopy = (Option<Timestamp>, u32, Vec<u8>, u32, u16, Direction, u64, u8, u64);

fn whole(p: &Packet<'_>) -> PacketCopy {
    (p.ts, p.wire_len, p.data.to_vec(), p.interface, p.link_type, p.direction, p.drops, p.fcs, p.offset)
}

/// Reads all packets one by one; returns them, and the error at the end if there is one.
fn one_by_one(file: &[u8], format: Format) -> (Vec<PacketCopy>, Option<String>) {
    let mut packets = Vec::new();
    let mut reader = match Reader::open_as(file, format) {
        Ok(reader) => reader,
        Err(e) => return (packets, Some(e.to_string())),
    };
    loop {
        match reader.next() {
            Ok(Some(p)) => packets.push(whole(&p)),
            Ok(None) => return (packets, None),
            Err(e) => return (packets, Some(e.to_string())),
        }
    }
}

#[test]
fn packets_lent_in_bursts_equal_packets_lent_one_by_one() {
    let seed = testkit::seed("packets_lent_in_bursts_equal_packets_lent_one_by_one");
    let files = valid_files();
    let mut bursts = 0;
    for round in 0..rounds(3000) {
        let mut prng = Prng::new(seed ^ round << 20);
        let (format, mut file) = files[prng.below(files.len() as u64) as usize].clone();
        match prng.below(3) {
            0 => file.truncate(24.max(prng.below(file.len() as u64) as usize)),
            1 => {
                let at = 24 + prng.below(file.len() as u64 - 24) as usize;
                file[at] = prng.next_u64() as u8;
            }
            _ => {}
        }
        let model = one_by_one(&file, format);
        let (head, tail) = file.split_at(120.min(file.len()));
        let Ok(mut reader) = Reader::open_as(head.chain(IncrementalSource(tail, Prng::new(round))), format) else {
            assert!(model.0.is_empty(), "seed {seed} round {round}");
            continue;
        };
        let mut found = Vec::new();
        let end = loop {
            let lent = reader.burst(prng.below(4) as usize, |p| found.push(whole(p)));
            bursts += u64::from(lent > 1);
            match reader.next() {
                Ok(Some(p)) => found.push(whole(&p)),
                Ok(None) => break None,
                Err(e) if e.is_pause() => {}
                Err(e) => break Some(e.to_string()),
            }
        };
        assert_eq!(reader.records(), found.len() as u64, "seed {seed} round {round}");
        assert_eq!(reader.burst(9, |_| panic!("a packet after the end")), 0, "seed {seed} round {round}");
        assert_eq!((found, end), model, "seed {seed} round {round}");
    }
    assert!(bursts > 100, "{bursts} bursts of several packets");
}
