//! Anonymisation is compared with independent results: recomputed checksums, the addresses that tshark finds, a search
//! for the original addresses in the output, and another implementation of CryptoPAn.

use crate::support;

use base::Prng;
use netgrain_convert::anonymise::{AnonymisationCounts, CryptoPan, Key, Macs};
use netgrain_convert::{Anonymiser, Format, Input, Memory, Plan, convert};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use support::{Packet, captures, one, output, packets, pcap};
use wire::build::Frame;
use wire::{Checksum, EtherType, Headers, checksum, link};

fn key() -> Key {
    Key::new(std::array::from_fn(|i| i as u8 * 7 + 1))
}

fn plan(keep_payload: bool) -> Plan {
    Plan { anonymise: Some(Anonymiser { keep_payload, ..Anonymiser::new(key()) }), ..Plan::default() }
}

/// Rewrites one Ethernet frame; returns the kept bytes and the counters.
fn rewritten(frame: &[u8], settings: &Anonymiser) -> (Vec<u8>, AnonymisationCounts) {
    let (mut bytes, mut counts) = (frame.to_vec(), AnonymisationCounts::default());
    let kept = settings.rewriter().rewrite(&mut bytes, link::ETHERNET, &mut counts);
    bytes.truncate(kept);
    (bytes, counts)
}

fn ip(version: u8, next: u8, source: &[u8], target: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = match version {
        4 => {
            let mut head = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, next, 0, 0];
            head[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
            [head.as_slice(), source, target].concat()
        }
        _ => {
            let mut head = vec![0x60, 0, 0, 0, 0, 0, next, 64];
            head[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            [head.as_slice(), source, target].concat()
        }
    };
    if version == 4 {
        let sum = checksum(&out);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    [out, payload.to_vec()].concat()
}

fn ethernet(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ethertype.0.to_be_bytes(), payload].concat()
}

fn message(kind: u8, pseudo: Checksum, rest: &[u8]) -> Vec<u8> {
    let mut out = [&[kind, 0, 0, 0][..], rest].concat();
    let sum = pseudo.bytes(&out).finish();
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    out
}

#[test]
fn packets_are_truncated_where_an_unsupported_part_begins() {
    let settings = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) };
    let addresses = ([10, 1, 2, 3], [10, 4, 5, 6]);
    let gre = ip(4, 47, &addresses.0, &addresses.1, &[0, 0, 8, 0, 0x45, 10, 1, 2, 3]);
    for (frame, kept) in [
        (ethernet(EtherType::EXPERIMENTAL, &[10, 1, 2, 3]), 14),
        (ethernet(EtherType(60), &[0xaa; 60]), 14),
        (ethernet(EtherType::IPV4, &gre), 34),
        (ethernet(EtherType::IPV4, &gre[..15]), 14),
        (ethernet(EtherType::IPV6, &gre[..15]), 14),
        (ethernet(EtherType::MPLS, &[0, 1, 0x31, 64, 0, 0, 0, 0, 10, 1, 2, 3]), 18),
        (ethernet(EtherType::ARP, &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0]), 14),
        (vec![1, 2, 3, 4, 5], 0),
    ] {
        let (out, counts) = rewritten(&frame, &settings);
        assert_eq!((out.len(), counts.unknown), (kept, 1), "{frame:02x?}");
    }
    let mut unknown_link = [10, 1, 2, 3];
    assert_eq!(settings.rewriter().rewrite(&mut unknown_link, 147, &mut AnonymisationCounts::default()), 0);
}

#[test]
fn payload_is_kept_only_with_keep_payload_and_padding_never() {
    let mut bytes = [0; 90];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).payload(b"10.0.0.1").fill(&mut bytes);
    let whole: Vec<u8> = [&frame[..50], b"padding"].concat();
    let mut inner = whole.clone();
    // The total length of the IP packet excludes the padding.
    inner[16..18].copy_from_slice(&36u16.to_be_bytes());
    let (out, counts) = rewritten(&inner, &Anonymiser::new(key()));
    assert_eq!((out.len(), counts.payload), (42, 1));
    let keep = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) };
    let (out, _) = rewritten(&inner, &keep);
    assert_eq!((out.len(), &out[42..]), (50, &whole[42..50]));
}

#[test]
fn correct_checksums_stay_correct() {
    let seed = testkit::seed("correct_checksums_stay_correct");
    let mut prng = Prng::new(seed);
    let settings = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) };
    for round in 0..2000 {
        let (a, b) = (prng.next_u64() as u32, prng.next_u64() as u32);
        let wide = |prng: &mut Prng| -> [u16; 8] { std::array::from_fn(|_| prng.next_u64() as u16) };
        let (ports, mut payload) = ((prng.next_u64() as u16, prng.next_u64() as u16), vec![0; prng.below(60) as usize]);
        prng.fill(&mut payload);
        let frame = match prng.below(4) {
            0 => Frame::udp4(a.to_be_bytes(), ports.0, b.to_be_bytes(), ports.1),
            1 => Frame::tcp4(a.to_be_bytes(), ports.0, b.to_be_bytes(), ports.1),
            2 => Frame::udp6(wide(&mut prng), ports.0, wide(&mut prng), ports.1),
            _ => Frame::tcp6(wide(&mut prng), ports.0, wide(&mut prng), ports.1),
        };
        let frame = if prng.below(3) == 0 { frame.tag(EtherType::VLAN, 9) } else { frame };
        let frame = frame.payload(&payload);
        let mut bytes = [0; 200];
        let before = frame.fill(&mut bytes).to_vec();
        let (after, _) = rewritten(&before, &settings);
        assert_eq!(after.len(), before.len(), "seed {seed}, round {round}");
        assert_ne!(after, before);
        assert_eq!(sums(&after), sums(&before), "seed {seed}, round {round}");
        assert!(sums(&after).iter().all(|s| *s == 0), "seed {seed}, round {round}: {:?}", sums(&after));
    }
}

/// The checksums over the IPv4 header and over the segment with its pseudo header: 0 if the checksum field is correct.
fn sums(frame: &[u8]) -> Vec<u16> {
    let headers = Headers::of(frame, frame.len() as u32, link::ETHERNET);
    let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
    let protocol = u16::from(headers.protocol().expect("IP").0);
    let (addresses, own) = if frame[l3] >> 4 == 4 {
        (&frame[l3 + 12..l3 + 20], vec![checksum(&frame[l3..l4])])
    } else {
        (&frame[l3 + 8..l3 + 40], vec![])
    };
    let len = (frame.len() - l4) as u16;
    let pseudo = Checksum::new().bytes(addresses).word(protocol).word(len);
    [own, vec![pseudo.bytes(&frame[l4..]).finish()]].concat()
}

#[test]
fn a_packet_quoted_by_icmp_is_mapped_and_the_checksum_is_correct() {
    let (client, server, router) = ([192, 0, 2, 1], [198, 51, 100, 7], [203, 0, 113, 1]);
    let original = ip(4, 17, &client, &server, &[0, 7, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    let redirect = message(5, Checksum::new(), &[&server[..], &original].concat());
    let frame = ethernet(EtherType::IPV4, &ip(4, 1, &router, &client, &redirect));
    let (out, _) = rewritten(&frame, &Anonymiser::new(key()));
    let mut pan = CryptoPan::new(&key());
    let mut mapped = |a: [u8; 4]| pan.v4(a.into()).octets();
    let (client, server, router) = (mapped(client), mapped(server), mapped(router));
    assert_eq!(out[26..34], [router, client].concat());
    assert_eq!(out[38..42], server, "the gateway");
    assert_eq!(out[54..62], [client, server].concat(), "the quoted packet");
    // The payload of the quoted packet is removed. If it is appended again, all checksums are correct.
    assert_eq!(out.len(), 14 + 20 + 8 + 20 + 8);
    assert_eq!((checksum(&out[14..34]), checksum(&out[42..62])), (0, 0));
    assert_eq!(checksum(&[&out[34..], &[1, 2, 3, 4][..]].concat()), 0);
}

#[test]
fn neighbour_discovery_maps_targets_prefixes_and_link_addresses() {
    let (source, target) = ([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0x20; 16]);
    let pseudo = |len: u16| Checksum::new().bytes(&source).bytes(&target).word(58).word(len);
    let mac = [0, 0x1b, 0x21, 1, 2, 3];
    let solicitation = message(135, pseudo(32), &[&[0; 4][..], &target, &[1, 1], &mac].concat());
    let frame = ethernet(EtherType::IPV6, &ip(6, 58, &source, &target, &solicitation));
    let (out, counts) = rewritten(&frame, &Anonymiser::new(key()));
    assert_eq!((out.len(), counts.options), (frame.len(), 0));
    let mut pan = CryptoPan::new(&key());
    assert_eq!(out[62..78], pan.v6(target.into()).octets());
    assert_ne!(out[80..86], mac);
    assert!(sums(&out).iter().all(|s| *s == 0));

    // A prefix of 48 bits: these bits are mapped as in every address, the other bits stay 0.
    let prefix = [0x20, 1, 0xd, 0xb8, 0xaa, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let option = [&[3, 4, 48, 0xc0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], &prefix].concat();
    let rdnss = [&[25, 3, 0, 0, 0, 0, 1, 0][..], &target].concat();
    let body = [&[0; 12][..], &option, &rdnss].concat();
    let advertisement = message(134, pseudo(16 + 32 + 24), &body);
    let frame = ethernet(EtherType::IPV6, &ip(6, 58, &source, &target, &advertisement));
    let (out, counts) = rewritten(&frame, &Anonymiser::new(key()));
    let mapped = &out[14 + 40 + 16 + 16..][..16];
    assert_eq!(mapped[..6], pan.v6(prefix.into()).octets()[..6]);
    assert_eq!((&mapped[6..], counts.options), (&[0; 10][..], 1));
    assert_eq!(out[out.len() - 22..], [0; 22], "the name server is blanked");
    assert!(sums(&out).iter().all(|s| *s == 0));
}

#[test]
fn the_checksum_after_a_routing_header_covers_the_final_destination() {
    let (source, first, last) = ([0x20; 16], [0x21; 16], [0x22; 16]);
    let udp = |stop: &[u8]| {
        let mut udp = vec![0, 1, 0, 2, 0, 12, 0, 0, b'd', b'a', b't', b'a'];
        let sum = Checksum::new().bytes(&source).bytes(stop).word(17).word(12).bytes(&udp).finish();
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        udp
    };
    // A source route with one address left to visit, and a segment list of two addresses, of which the first is the
    // final destination.
    let route = [&[17, 2, 0, 1, 0, 0, 0, 0][..], &last].concat();
    let segments = [&[17, 4, 4, 1, 1, 0, 0, 0][..], &last, &first].concat();
    for header in [route, segments] {
        let packet = ip(6, 43, &source, &first, &[header.clone(), udp(&last)].concat());
        let settings = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) };
        let (out, _) = rewritten(&ethernet(EtherType::IPV6, &packet), &settings);
        let mut pan = CryptoPan::new(&key());
        let last = pan.v6(last.into()).octets();
        assert_eq!(out[14 + 40 + 8..][..16], last);
        let udp = &out[14 + 40 + header.len()..];
        let source = &out[14 + 8..][..16];
        assert_eq!(Checksum::new().bytes(source).bytes(&last).word(17).word(12).bytes(udp).finish(), 0);
    }
}

#[test]
fn mac_addresses_are_mapped_by_the_macs_setting_and_keep_their_flags() {
    let macs = |rule, frame: &[u8]| {
        let (out, _) = rewritten(frame, &Anonymiser { macs: rule, ..Anonymiser::new(key()) });
        (<[u8; 6]>::try_from(&out[..6]).unwrap(), <[u8; 6]>::try_from(&out[6..12]).unwrap())
    };
    let frame = |a: [u8; 6], b: [u8; 6]| [&a[..], &b, &[0x88, 0xb5]].concat();
    let (group, intel) = ([1, 0, 0x5e, 1, 2, 3], [0, 0x1b, 0x21, 1, 2, 3]);
    assert_eq!(macs(Macs::Keep, &frame(group, intel)), (group, intel));
    let (a, b) = macs(Macs::Vendor, &frame(group, intel));
    assert!(a[..3] == group[..3] && b[..3] == intel[..3] && a[3..] != group[3..] && b[3..] != intel[3..]);
    let (a, b) = macs(Macs::All, &frame(group, intel));
    assert!(a[0] & 3 == 1 && b[0] & 3 == 0 && a != group && b != intel);
    let (_, other) = macs(Macs::All, &frame(group, [0, 0x1b, 0x21, 0xff, 2, 3]));
    assert_eq!(other[..3], b[..3], "equal vendor prefixes stay equal");
    assert_eq!(macs(Macs::All, &frame([0xff; 6], [0; 6])), ([0xff; 6], [0; 6]));
}

#[test]
fn arbitrary_bytes_never_panic_and_never_keep_more_than_the_frame() {
    let test = "arbitrary_bytes_never_panic_and_never_keep_more_than_the_frame";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let mut frames: Vec<(u16, Vec<u8>)> = Vec::new();
    if let Some(files) = captures(test) {
        for file in files {
            let all = packets(&std::fs::read(file).expect("a file"));
            frames.extend(all.into_iter().take(40).map(|p| (p.link_type, p.data)));
        }
    } else {
        frames.push((link::ETHERNET, ethernet(EtherType::IPV6, &ip(6, 43, &[1; 16], &[2; 16], &[0; 60]))));
    }
    let mut rewriter = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) }.rewriter();
    for round in 0..60_000 {
        let (link_type, frame) = &frames[prng.below(frames.len() as u64) as usize];
        let mut frame = frame.clone();
        for _ in 0..prng.below(6) {
            let at = prng.below(frame.len().clamp(1, 120) as u64) as usize;
            if let Some(byte) = frame.get_mut(at) {
                *byte = prng.next_u64() as u8;
            }
        }
        frame.truncate(if prng.below(3) == 0 { prng.below(frame.len() as u64 + 1) as usize } else { frame.len() });
        let len = frame.len();
        let kept = rewriter.rewrite(&mut frame, *link_type, &mut AnonymisationCounts::default());
        assert!(kept <= len && frame.len() == len, "seed {seed}, round {round}");
    }
}

/// All capture files merged into one file, so that tshark starts only once.
fn all_as_one(files: &[PathBuf], settings: Option<Anonymiser>) -> Vec<u8> {
    let open = |path: &PathBuf| Input::open("a capture", File::open(path).expect("a file")).expect("a capture");
    let plan = Plan { format: Format::PcapNg, anonymise: settings, ..Plan::default() };
    let mut memory = Memory::default();
    convert(files.iter().map(open).collect(), &plan, &mut memory).expect("converted");
    memory.files.remove(0)
}

/// Returns all values that tshark finds for the fields `names`, for each packet and each field.
fn fields(mut tshark: Command, capture: &[u8], names: &[&str]) -> Vec<Vec<Vec<String>>> {
    let directory = testkit::TempDir::new("fields");
    let path = directory.join("all.pcapng");
    std::fs::write(&path, capture).expect("a file");
    for sum in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{sum}.check_checksum:TRUE")]);
    }
    // tshark decodes each packet without the packets before it.
    tshark.args(["-o", "tcp.desegment_tcp_streams:FALSE", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    tshark.args(["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-r"]).arg(&path);
    for name in names {
        tshark.args(["-e", name]);
    }
    let split = |line: &str| -> Vec<Vec<String>> {
        line.split('|').map(|f| f.split(',').filter(|v| !v.is_empty()).map(str::to_owned).collect()).collect()
    };
    output(tshark).lines().map(split).collect()
}

#[test]
fn no_original_address_is_left_in_any_packet_of_the_captures() {
    let test = "no_original_address_is_left_in_any_packet_of_the_captures";
    let (Some(files), Some(tshark)) = (captures(test), testkit::tool(test, "tshark")) else { return };
    let names = ["ip.addr", "ipv6.addr", "arp.src.proto_ipv4", "arp.dst.proto_ipv4", "eth.addr"];
    let before = fields(tshark, &all_as_one(&files, None), &names);
    let after = packets(&all_as_one(&files, Some(Anonymiser::new(key()))));
    assert_eq!(before.len(), after.len());
    let mut searched = 0;
    for (number, (values, packet)) in before.iter().zip(&after).enumerate() {
        for value in values.iter().flatten() {
            let address = match (value.parse::<IpAddr>(), value.parse::<wire::MacAddr>()) {
                (Ok(IpAddr::V4(a)), _) => a.octets().to_vec(),
                (Ok(IpAddr::V6(a)), _) => a.octets().to_vec(),
                (_, Ok(mac)) => mac.0.to_vec(),
                _ => continue,
            };
            // Addresses with few different byte values also occur by chance in other fields.
            if address.iter().collect::<BTreeSet<_>>().len() < 4 {
                continue;
            }
            let found = packet.data.windows(address.len()).position(|w| w == address);
            assert_eq!(found, None, "packet {}: {value} remains in {:02x?}", number + 1, packet.data);
            searched += 1;
        }
    }
    assert!(searched > 100_000, "only {searched} addresses");
}

#[test]
fn tshark_finds_the_mapped_addresses() {
    let test = "tshark_finds_the_mapped_addresses";
    let (Some(files), Some(tshark)) = (captures(test), testkit::tool(test, "tshark")) else { return };
    let names = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst"];
    let before = fields(tshark, &all_as_one(&files, None), &names);
    let Some(tshark) = testkit::tool(test, "tshark") else { return };
    let after = fields(tshark, &all_as_one(&files, Some(Anonymiser::new(key()))), &names);
    assert_eq!(before.len(), after.len());
    let mut pan = CryptoPan::new(&key());
    let (mut compared, mut cut) = (0, 0);
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        for field in 0..names.len() {
            // Unsupported parts are truncated (tunnels, PPPoE, incomplete headers), so addresses may be missing.
            cut += usize::from(after[field].is_empty() && !before[field].is_empty());
            for (raw, mapped) in before[field].iter().zip(&after[field]) {
                let expected = match raw.parse::<IpAddr>().expect("an address") {
                    IpAddr::V4(a) => IpAddr::V4(pan.v4(a)),
                    IpAddr::V6(a) => IpAddr::V6(pan.v6(a)),
                };
                assert_eq!(*mapped, expected.to_string(), "packet {}, {}", number + 1, names[field]);
                compared += 1;
            }
        }
    }
    assert!(compared > 100_000, "only {compared} addresses");
    assert!(cut * 100 < compared, "{cut} packets have no address left");
}

#[test]
fn checksums_stay_as_correct_or_wrong_as_tshark_found_them() {
    let test = "checksums_stay_as_correct_or_wrong_as_tshark_found_them";
    let (Some(files), Some(tshark)) = (captures(test), testkit::tool(test, "tshark")) else { return };
    let names = ["ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"];
    let before = fields(tshark, &all_as_one(&files, None), &names);
    let Some(tshark) = testkit::tool(test, "tshark") else { return };
    let keep = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) };
    let after = fields(tshark, &all_as_one(&files, Some(keep)), &names);
    assert_eq!(before.len(), after.len());
    let mut right = 0;
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        for field in 0..names.len() {
            for (was, is) in before[field].iter().zip(&after[field]) {
                // In tshark, checksum status 0 means bad, 1 good, and 2 and 3 not verified, as for truncated segments.
                let unknown = |status: &str| matches!(status, "2" | "3");
                assert!(was == is || unknown(is) || unknown(was), "packet {}: {was} became {is}", number + 1);
                right += u64::from(is == "1");
            }
        }
    }
    assert!(right > 50_000, "only {right} checksums");
}

#[test]
fn another_implementation_computes_the_same_mapping() {
    let test = "another_implementation_computes_the_same_mapping";
    const PROGRAM: &str = "import sys, yacryptopan\n\
        pan = yacryptopan.CryptoPAn(bytes.fromhex(sys.argv[1]))\n\
        print('\\n'.join(pan.anonymize(a) for a in sys.argv[2:]))";
    let Some(mut python) = testkit::python_with(test, "yacryptopan") else { return };
    let mut prng = Prng::new(testkit::seed(test));
    let addresses: Vec<IpAddr> = (0..300)
        .map(|i| match i % 2 {
            0 => IpAddr::from((prng.next_u64() as u32).to_be_bytes()),
            _ => IpAddr::from((u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64())).to_be_bytes()),
        })
        .collect();
    python.args(["-c", PROGRAM, key().to_file().trim()]).args(addresses.iter().map(ToString::to_string));
    let mut pan = CryptoPan::new(&key());
    for (theirs, address) in output(python).lines().zip(addresses) {
        let ours = match address {
            IpAddr::V4(a) => IpAddr::V4(pan.v4(a)),
            IpAddr::V6(a) => IpAddr::V6(pan.v6(a)),
        };
        assert_eq!(theirs.parse::<IpAddr>().expect("an address"), ours, "{address}");
    }
}

#[test]
fn one_key_yields_the_same_mapping_in_two_files() {
    let mut bytes = [0; 60];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
    let (first, second) = (Packet::new(1, frame), Packet::new(2, frame));
    let (_, a) = one(&pcap(std::slice::from_ref(&first)), &plan(false));
    let (_, b) = one(&pcap(&[Packet::new(1, &[0; 60]), second]), &plan(false));
    assert_eq!(packets(&a)[0].data, packets(&b)[1].data);
    let other = Plan { anonymise: Some(Anonymiser::new(Key::new([9; 32]))), ..Plan::default() };
    assert_ne!(packets(&a)[0].data, packets(&one(&pcap(&[first]), &other).1)[0].data);
}

#[test]
fn bsd_loopback_is_anonymised_and_packets_other_than_ip_are_removed() {
    let settings = Anonymiser { keep_payload: true, ..Anonymiser::new(key()) };
    let mut mapped = CryptoPan::new(&key());
    let (source, target) = ([10, 1, 2, 3], [10, 4, 5, 6]);
    let packet = ip(4, 17, &source, &target, &[0, 53, 0, 53, 0, 8, 0, 0]);
    let rewrite = |frame: &[u8], link_type| {
        let (mut bytes, mut counts) = (frame.to_vec(), AnonymisationCounts::default());
        let kept = settings.rewriter().rewrite(&mut bytes, link_type, &mut counts);
        bytes.truncate(kept);
        bytes
    };
    for (link_type, head) in [(link::NULL, [2, 0, 0, 0]), (link::NULL, [0, 0, 0, 2]), (link::LOOP, [0, 0, 0, 2])] {
        let out = rewrite(&[&head[..], &packet].concat(), link_type);
        assert_eq!((out.len(), &out[..4]), (4 + packet.len(), &head[..]));
        assert_eq!(out[16..20], mapped.v4(source.into()).octets());
        assert_eq!(out[20..24], mapped.v4(target.into()).octets());
        // Packets whose address family is not IP are removed, even if their bytes look like IP.
        assert_eq!(rewrite(&[&[7, 0, 0, 0], &packet[..]].concat(), link_type), [7, 0, 0, 0]);
    }
    // Frames of an unsupported link type are removed.
    assert!(rewrite(&packet, 105).is_empty());
}
