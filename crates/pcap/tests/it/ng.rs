//! Tests with pcapng files as other programs write them. The tests assemble the blocks in both byte orders.

use base::Timestamp;
use netgrain_pcap::ng::{PacketOptions, Statistics, Writer};
use netgrain_pcap::{Direction, ETHERNET, Error, MAX_BLOCK, MAX_PACKET, Reader};

/// Writes the words of a block in one byte order.
#[derive(Clone, Copy)]
struct ByteOrder {
    big: bool,
}

const ORDERS: [ByteOrder; 2] = [ByteOrder { big: false }, ByteOrder { big: true }];

impl ByteOrder {
    fn u16(self, v: u16) -> Vec<u8> {
        if self.big { v.to_be_bytes().to_vec() } else { v.to_le_bytes().to_vec() }
    }
    fn u32(self, v: u32) -> Vec<u8> {
        if self.big { v.to_be_bytes().to_vec() } else { v.to_le_bytes().to_vec() }
    }
    fn u64(self, v: u64) -> Vec<u8> {
        if self.big { v.to_be_bytes().to_vec() } else { v.to_le_bytes().to_vec() }
    }
    fn block(self, kind: u32, body: &[&[u8]]) -> Vec<u8> {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = self.u32(body.len() as u32 + 12);
        [self.u32(kind), len.clone(), body, len].concat()
    }
    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut out = [self.u16(code), self.u16(value.len() as u16), value.to_vec()].concat();
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }
    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(0x0a0d_0d0a, &[&self.u32(0x1a2b_3c4d), &version, &self.u64(u64::MAX)])
    }
    fn interface(self, link_type: u16, snaplen: u32, options: &[u8]) -> Vec<u8> {
        self.block(1, &[&self.u16(link_type), &[0, 0], &self.u32(snaplen), options])
    }
    fn time(self, count: u64) -> Vec<u8> {
        [self.u32((count >> 32) as u32), self.u32(count as u32)].concat()
    }
    fn enhanced(self, interface: u32, count: u64, data: &[u8], wire_len: u32, options: &[u8]) -> Vec<u8> {
        let caplen = self.u32(data.len() as u32);
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(4), 0);
        self.block(6, &[&self.u32(interface), &self.time(count), &caplen, &self.u32(wire_len), &data, options])
    }
}

/// Timestamp in nanoseconds, interface, link type, bytes.
type Seen = (Option<u64>, u32, u16, Vec<u8>);

fn all(file: &[u8]) -> Result<Vec<Seen>, Error> {
    let mut reader = Reader::open(file)?;
    let mut out = Vec::new();
    while let Some(p) = reader.next()? {
        out.push((p.ts.map(Timestamp::nanos), p.interface, p.link_type, p.data.to_vec()));
    }
    Ok(out)
}

#[test]
fn inconsistent_blocks_are_errors_with_type_and_offset() {
    for by in ORDERS {
        let head = [by.section(), by.interface(1, 0, &[])].concat();
        let at = head.len() as u64;
        let fails = |block: &[u8]| all(&[&head[..], block].concat()).unwrap_err();

        let e = fails(&by.enhanced(7, 0, b"x", 1, &[]));
        assert!(matches!(e, Error::UnknownInterface { offset, interface: 7, known: 1 } if offset == at), "{e}");

        let mut ends_differ = by.enhanced(0, 0, b"x", 1, &[]);
        let last = ends_differ.len() - 4;
        ends_differ[last..].copy_from_slice(&by.u32(99));
        let e = fails(&ends_differ);
        assert!(matches!(e, Error::BadBlock { offset, block: 6, .. } if offset == at), "{e}");

        let too_long = by.block(6, &[&by.u32(0), &by.time(0), &by.u32(9), &by.u32(9), b"12345678"]);
        let e = fails(&too_long);
        assert!(matches!(e, Error::BadBlock { offset, block: 6, .. } if offset == at), "{e}");

        let absurd = by.block(6, &[&by.u32(0), &by.time(0), &by.u32(MAX_PACKET + 1), &by.u32(9), b"12345678"]);
        let e = fails(&absurd);
        assert!(matches!(e, Error::LengthTooLarge { offset, len: 262_145, .. } if offset == at), "{e}");

        let e = fails(&[by.u32(6), by.u32(MAX_BLOCK + 4), vec![0; 64]].concat());
        assert!(matches!(e, Error::LengthTooLarge { offset, limit: 1_048_576, .. } if offset == at), "{e}");

        for bad in [0, 8, 13] {
            let e = fails(&[by.u32(6), by.u32(bad), vec![0; 64]].concat());
            assert!(matches!(e, Error::BadBlock { offset, block: 6, .. } if offset == at), "{bad}: {e}");
        }
        for kind in [1, 2, 3, 6] {
            let e = fails(&by.block(kind, &[]));
            assert!(matches!(e, Error::BadBlock { block, .. } if block == kind), "{kind}: {e}");
        }
        let e = fails(&[by.u32(77), by.u32(4000), vec![0; 64]].concat());
        assert!(matches!(e, Error::Truncated { offset, need: 4000, have: 72, .. } if offset == at), "{e}");
    }
    let mut version = ORDERS[0].section();
    version[12] = 2;
    assert!(matches!(all(&version).unwrap_err(), Error::Version { offset: 12, major: 2, minor: 0 }));
    let mut magic = ORDERS[0].section();
    magic[8] = 0;
    assert!(matches!(all(&magic).unwrap_err(), Error::BadBlock { offset: 0, .. }));
}

#[test]
fn the_number_of_interfaces_is_limited() {
    let by = ORDERS[0];
    let mut file = by.section();
    for _ in 0..70_000 {
        file.extend(by.interface(1, 0, &[]));
    }
    let mut reader = Reader::open(&file[..]).unwrap();
    let e = reader.next().unwrap_err();
    assert!(matches!(e, Error::LengthTooLarge { what: "number of interfaces", limit: 65_536, .. }), "{e}");
    assert!(reader.memory() <= 3 * MAX_BLOCK as usize, "{}", reader.memory());
}

#[test]
fn each_section_has_its_byte_order_and_its_interface_numbers() {
    let section = |by: ByteOrder, link_type, name: &[u8]| {
        [by.section(), by.interface(link_type, 0, &[]), by.enhanced(0, 1_000_000, name, 60, &[])].concat()
    };
    let file =
        [section(ORDERS[0], 1, b"one"), section(ORDERS[1], 113, b"two"), section(ORDERS[0], 1, b"three")].concat();
    let second = Some(1_000_000_000);
    let expect =
        [(second, 0, 1, b"one".to_vec()), (second, 0, 113, b"two".to_vec()), (second, 0, 1, b"three".to_vec())];
    assert_eq!(all(&file).unwrap(), expect);
    let lost = [section(ORDERS[0], 1, b"one"), ORDERS[1].section(), ORDERS[1].enhanced(0, 0, b"", 0, &[])].concat();
    assert!(matches!(all(&lost).unwrap_err(), Error::UnknownInterface { known: 0, .. }));
}

#[test]
fn every_interface_has_its_time_resolution_and_link_type() {
    for by in ORDERS {
        let offset = by.option(14, &by.u64(100));
        let file = [
            by.section(),
            by.interface(1, 0, &by.option(9, &[9])),
            by.interface(113, 0, &[by.option(9, &[0x80 | 10]), offset].concat()),
            by.interface(101, 0, &by.option(2, b"eth0")),
            by.enhanced(0, 1_500_000_000, b"ns", 2, &[]),
            by.enhanced(1, 1024 + 512, b"2^-10", 5, &[]),
            by.enhanced(2, 1_500_000, b"us", 2, &[]),
        ]
        .concat();
        let expect = [
            (Some(1_500_000_000), 0, 1, b"ns".to_vec()),
            (Some(101_500_000_000), 1, 113, b"2^-10".to_vec()),
            (Some(1_500_000_000), 2, 101, b"us".to_vec()),
        ];
        assert_eq!(all(&file).unwrap(), expect);
        assert_eq!(Reader::open(&file[..]).unwrap().link_type(), 1);
    }
}

#[test]
fn simple_and_obsolete_packets_are_read_and_other_blocks_are_skipped() {
    for by in ORDERS {
        let obsolete = [by.u16(0), by.u16(3)].concat();
        let file = [
            by.section(),
            by.block(4, &[b"names of hosts"]),
            by.interface(1, 4, &[]),
            by.block(3, &[&by.u32(1500), b"1234"]),
            by.block(5, &[&by.u32(0), &by.time(9), &by.option(5, &by.u64(7))]),
            by.block(0x0bad, &[&vec![1; 3_000_000]]),
            by.block(2, &[&obsolete, &by.time(1_000_000), &by.u32(3), &by.u32(60), b"old"]),
            by.block(3, &[&by.u32(2), b"ab"]),
        ]
        .concat();
        let mut reader = Reader::open(&file[..]).unwrap();
        let p = reader.next().unwrap().unwrap();
        assert_eq!((p.ts, p.wire_len, p.data), (None, 1500, &b"1234"[..]));
        let p = reader.next().unwrap().unwrap();
        assert_eq!((p.ts.map(Timestamp::secs), p.wire_len, p.data, p.drops), (Some(1), 60, &b"old"[..], 3));
        let p = reader.next().unwrap().unwrap();
        assert_eq!((p.wire_len, p.data), (2, &b"ab"[..]));
        assert!(reader.next().unwrap().is_none());
        assert!(reader.memory() < 3 * MAX_BLOCK as usize);
    }
}

#[test]
fn direction_losses_and_check_sequence_are_read_from_options() {
    for by in ORDERS {
        let flags = by.option(2, &by.u32(2 | 4 << 5));
        let drops = by.option(4, &by.u64(1 << 40));
        let damaged = [by.u16(4), by.u16(60_000)].concat();
        let file = [
            by.section(),
            by.interface(1, 0, &by.option(13, &[32])),
            by.enhanced(0, 0, b"abc", 3, &[by.option(1, b"a comment"), flags, drops].concat()),
            by.enhanced(0, 0, b"abcd", 4, &damaged),
        ]
        .concat();
        let mut reader = Reader::open(&file[..]).unwrap();
        let p = reader.next().unwrap().unwrap();
        assert_eq!((p.direction, p.drops, p.fcs, p.data), (Direction::Outbound, 1 << 40, 4, &b"abc"[..]));
        let p = reader.next().unwrap().unwrap();
        assert_eq!((p.direction, p.drops, p.fcs, p.data), (Direction::Unknown, 0, 4, &b"abcd"[..]));
    }
}

#[test]
fn packets_of_our_writer_round_trip() {
    let mut w = Writer::new(Vec::new(), "netgrain", "").unwrap();
    assert!(w.packet(0, Timestamp::ZERO, 0, b"", PacketOptions::default()).is_err(), "no interface is described yet");
    let (a, b) = (w.interface("eth0", ETHERNET).unwrap(), w.interface("", 113).unwrap());
    let mut prng = base::Prng::new(2);
    let mut written = Vec::new();
    for i in 0..500u32 {
        let mut data = vec![0; prng.below(100) as usize];
        prng.fill(&mut data);
        let ts = Timestamp::from_nanos(prng.next_u64());
        let interface = if prng.below(2) == 0 { a } else { b };
        let direction = [Direction::Unknown, Direction::Inbound, Direction::Outbound][prng.below(3) as usize];
        let drops = (prng.below(2) == 0).then(|| prng.next_u64());
        let queue = (prng.below(2) == 0).then_some(i);
        w.packet(interface, ts, 1500, &data, PacketOptions { direction, drops, queue }).unwrap();
        written.push((ts, interface, data, direction, drops.unwrap_or(0)));
    }
    w.statistics(a, Timestamp::ZERO, &Statistics { received: Some(500), dropped: Some(1), ..Statistics::default() })
        .unwrap();
    let file = w.finish().unwrap();
    let mut reader = Reader::open(&file[..]).unwrap();
    for expect in written {
        let p = reader.next().unwrap().unwrap();
        assert_eq!((p.ts.unwrap(), p.interface, p.data.to_vec(), p.direction, p.drops), expect);
        assert_eq!((p.wire_len, p.link_type), (1500, if p.interface == a { 1 } else { 113 }));
    }
    assert!(reader.next().unwrap().is_none());
}
