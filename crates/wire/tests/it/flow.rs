//! The flow key and its hash: symmetric, keyed, uniform, and equal for all fragments of a datagram.

use crate::common;

use base::Prng;
use base::hash::mix64;
use netgrain_wire::build::Frame;
use netgrain_wire::{EtherType, FlowHasher, FlowKey, Headers, IpProtocol, MacAddr, Port, link};

const HASHER: FlowHasher = FlowHasher::new(0x0123_4567_89ab_cdef);

fn parsed(frame: Frame<'_>) -> (Vec<u8>, Headers) {
    let mut buffer = [0; 256];
    let bytes = frame.write(&mut buffer).unwrap().to_vec();
    let headers = Headers::of(&bytes, bytes.len() as u32, link::ETHERNET);
    (bytes, headers)
}

fn hash(frame: Frame<'_>) -> u32 {
    let (bytes, headers) = parsed(frame);
    HASHER.hash(&bytes, &headers)
}

#[test]
fn only_packets_without_a_flow_have_the_hash_zero() {
    assert_eq!(HASHER.hash(&[], &Headers::default()), 0);
    assert_eq!(HASHER.hash(&[0; 13], &Headers::of(&[0; 13], 60, link::ETHERNET)), 0);
    let cooked_arp = [0; 44];
    assert_eq!(HASHER.hash(&cooked_arp, &Headers::of(&cooked_arp, 44, link::LINUX_SLL)), 0);

    let seed = testkit::seed("only_packets_without_a_flow_have_the_hash_zero");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(20_000) {
        let made = common::frame(&mut prng);
        let headers = Headers::of(&made.bytes, made.bytes.len() as u32, made.link_type);
        assert_ne!(HASHER.hash(&made.bytes, &headers), 0, "seed {seed}, round {round}");
    }
}

#[test]
fn a_hash_of_zero_becomes_one() {
    // One key in 2^32 hashes this flow to zero. Every step of the hash is invertible, so the test computes the key from
    // a state whose upper half is zero.
    let key = FlowKey {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: Port(1),
        dst_port: Port(2),
        protocol: IpProtocol::UDP,
    };
    let (low, high) = (0x0a00_0001_0001u64, 0x0a00_0002_0002u64 | 17 << 48);
    let secret = key_for(0x1234_5678, low, high);
    assert_eq!(mix64(mix64(secret ^ low).wrapping_add(high)) >> 32, 0);
    assert_eq!(FlowHasher::new(secret).hash_key(&key), 1);
}

/// Returns the secret for which the hash state is `state` after `low` and then `high` were mixed in.
fn key_for(state: u64, low: u64, high: u64) -> u64 {
    unmix(unmix(state).wrapping_sub(high)) ^ low
}

/// The inverse of `base::hash::mix64`.
fn unmix(mut x: u64) -> u64 {
    let inverse = |m: u64| {
        // Newton's iteration doubles the correct low bits; an odd number is its own inverse modulo 8.
        (0..5).fold(m, |i, _| i.wrapping_mul(2u64.wrapping_sub(m.wrapping_mul(i))))
    };
    let unshift = |mut x: u64, by: u32| {
        let y = x;
        for _ in 0..3 {
            x = y ^ (x >> by);
        }
        x
    };
    x = unshift(x, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    x = unshift(x, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(x, 30)
}

#[test]
fn both_directions_and_the_key_have_the_same_hash() {
    let seed = testkit::seed("both_directions_and_the_key_have_the_same_hash");
    let mut prng = Prng::new(seed);
    let mut keys = 0;
    for round in 0..common::rounds(20_000) {
        let made = common::frame(&mut prng);
        let headers = Headers::of(&made.bytes, made.bytes.len() as u32, made.link_type);
        let Some(key) = FlowKey::of(&made.bytes, &headers) else { continue };
        keys += 1;
        let hash = HASHER.hash(&made.bytes, &headers);
        assert_eq!(HASHER.hash_key(&key), hash, "seed {seed}, round {round}: {key}");
        assert_eq!(HASHER.hash_key(&key.reversed()), hash, "seed {seed}, round {round}: {key}");
        assert_eq!(key.canonical().0, key.reversed().canonical().0);
        assert_eq!(key.reversed().reversed(), key);
        if headers.protocol().is_some_and(IpProtocol::has_ports) && headers.l4() > 0 {
            assert_eq!((key.src_port, key.dst_port), (Port(made.src_port), Port(made.dst_port)));
        }
    }
    assert!(keys > 1000);
}

#[test]
fn a_reply_has_the_hash_of_its_request() {
    let there = hash(Frame::tcp4([10, 0, 0, 1], 40_000, [10, 9, 9, 9], 443));
    assert_eq!(there, hash(Frame::tcp4([10, 9, 9, 9], 443, [10, 0, 0, 1], 40_000)));
    assert_ne!(
        there,
        hash(Frame::tcp4([10, 0, 0, 1], 443, [10, 9, 9, 9], 40_000)),
        "exchanged ports give another hash"
    );
    assert_ne!(
        there,
        hash(Frame::udp4([10, 0, 0, 1], 40_000, [10, 9, 9, 9], 443)),
        "another protocol gives another hash"
    );
    let tagged = Frame::tcp4([10, 0, 0, 1], 40_000, [10, 9, 9, 9], 443).tag(EtherType::VLAN, 7).hops(3);
    assert_eq!(there, hash(tagged), "tags and hop limit are no part of the flow key");

    let (a, b) = (MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([2, 0, 0, 0, 0, 8]));
    let arp = Frame::ethernet(EtherType::ARP);
    assert_eq!(hash(arp.macs(a, b)), hash(arp.macs(b, a)));
    assert_ne!(hash(arp.macs(a, b)), hash(Frame::ethernet(EtherType(0x88cc)).macs(a, b)));
}

#[test]
fn all_fragments_of_a_datagram_have_one_key_and_one_hash() {
    let (datagram, _) = parsed(Frame::udp4([10, 0, 0, 1], 1000, [10, 0, 0, 2], 53).payload(&[7; 64]));
    let part = |offset: usize, end: usize| {
        let more = end < datagram.len();
        let ip = Frame::ip4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol::UDP);
        parsed(ip.fragment(1, offset as u16, more).payload(&datagram[34 + offset..end]))
    };
    let parts = [part(0, 58), part(24, 82), part(48, datagram.len())];
    let keys: Vec<_> = parts.iter().map(|(bytes, headers)| FlowKey::of(bytes, headers).unwrap()).collect();
    assert_eq!(keys[0].to_string(), "10.0.0.1 > 10.0.0.2 udp");
    assert!(keys.iter().all(|k| *k == keys[0]), "{keys:?}");
    let hashes: Vec<_> = parts.iter().map(|(bytes, headers)| HASHER.hash(bytes, headers)).collect();
    assert!(hashes.iter().all(|h| *h == hashes[0]), "{hashes:?}");

    // In IPv6 a further extension may follow the fragment header, and only the first fragment has it.
    let part6 = |field: u8, bytes: &[u8]| {
        let body = [0, field, 0, 0, 0, 1];
        let fragment: [(IpProtocol, &[u8]); 1] = [(IpProtocol::FRAGMENT, &body)];
        let (bytes, headers) =
            parsed(Frame::ip6([1; 8], [2; 8], IpProtocol::DEST_OPTIONS).extensions(&fragment).payload(bytes));
        (FlowKey::of(&bytes, &headers).unwrap(), HASHER.hash(&bytes, &headers))
    };
    assert_eq!(part6(1, &[17, 0, 1, 4, 0, 0, 0, 0, 3, 232, 0, 53, 0, 72, 0, 0]), part6(16, &[9; 56]));
}

/// The chi-squared statistic of `counts` for a uniform distribution (Pearson).
fn chi_square(counts: &[u32]) -> f64 {
    let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    counts.iter().map(|c| (f64::from(*c) - mean).powi(2) / mean).sum()
}

#[test]
fn hashes_of_ordinary_traffic_are_uniform_in_low_and_high_bits() {
    // One server and many clients with consecutive addresses and ports, more regular than real traffic. For 255 degrees
    // of freedom the chi-squared statistic has the mean 255 and the standard deviation 22.6; a value six standard
    // deviations above the mean does not occur by chance.
    let most = 255.0 + 6.0 * (2.0f64 * 255.0).sqrt();
    type Flow = fn(u32) -> FlowKey;
    let v4: Flow = |i| FlowKey {
        src: (0x0a00_0000u32 + i / 64).to_be_bytes().into(),
        dst: [192, 168, 0, 1].into(),
        src_port: Port(40_000 + (i % 64) as u16),
        dst_port: Port(443),
        protocol: IpProtocol::TCP,
    };
    let v6: Flow = |i| FlowKey {
        src: (0x2001_0db8u128 << 96 | u128::from(i / 64)).to_be_bytes().into(),
        dst: (0x2001_0db8u128 << 96 | 1 << 64).to_be_bytes().into(),
        src_port: Port(40_000 + (i % 64) as u16),
        dst_port: Port(443),
        protocol: IpProtocol::TCP,
    };
    for (name, flow) in [("IPv4", v4), ("IPv6", v6)] {
        let (mut low, mut high) = ([0; 256], [0; 256]);
        for i in 0..1 << 18 {
            let hash = HASHER.hash_key(&flow(i));
            low[(hash & 255) as usize] += 1;
            high[(hash >> 24) as usize] += 1;
        }
        assert!(chi_square(&low) < most, "{name}, low bits: {}", chi_square(&low));
        assert!(chi_square(&high) < most, "{name}, high bits: {}", chi_square(&high));
    }
}

#[test]
fn flows_that_collide_under_one_key_differ_under_another() {
    let seed = 43;
    let mut prng = Prng::new(seed);
    let keys: Vec<FlowKey> = (0..200_000)
        .map(|_| FlowKey {
            src: (prng.next_u64() as u32).to_be_bytes().into(),
            dst: (prng.next_u64() as u32).to_be_bytes().into(),
            src_port: Port(prng.next_u64() as u16),
            dst_port: Port(53),
            protocol: IpProtocol::UDP,
        })
        .collect();
    let other = FlowHasher::new(0x0123_4567_89ab_cdee);
    let mut hashed: Vec<(u32, u32)> = keys.iter().map(|k| (HASHER.hash_key(k), other.hash_key(k))).collect();
    hashed.sort_unstable();
    let collisions: Vec<_> = hashed.windows(2).filter(|w| w[0].0 == w[1].0).collect();
    // Among 200,000 hashes of 32 bits, about 4.7 pairs are equal. Without any equal pair the test would show nothing.
    assert!((1..20).contains(&collisions.len()), "seed {seed}: {}", collisions.len());
    assert!(
        collisions.iter().all(|w| w[0].1 != w[1].1),
        "seed {seed}: a collision remained after the change of one key bit"
    );
    assert!(hashed.iter().filter(|(a, b)| a == b).count() < 3, "seed {seed}: the key has too little influence");
}

#[test]
fn debug_output_does_not_contain_the_key() {
    assert_eq!(format!("{HASHER:?}"), "FlowHasher");
}

#[test]
fn a_flow_key_is_displayed_as_source_and_destination() {
    let text = |frame| {
        let (bytes, headers) = parsed(frame);
        FlowKey::of(&bytes, &headers).unwrap().to_string()
    };
    let v6: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
    assert_eq!(text(Frame::tcp6(v6, 1234, v6, 80)), "[2001:db8::1]:1234 > [2001:db8::1]:80 tcp");
    assert_eq!(text(Frame::icmp4([10, 0, 0, 1], [10, 0, 0, 2], 8, 0, [0; 4])), "10.0.0.1 > 10.0.0.2 icmp");
}
