//! The frame builder, checked with the header views and the checksum.

use base::Prng;
use netgrain_wire::build::{BufferTooSmall, Frame};
use netgrain_wire::{
    Arp, Checksum, EtherType, Ethernet, Icmp, IpProtocol, Ipv4, Ipv6, MacAddr, Sctp, Tcp, Udp, VlanTag, checksum, mpls,
    tcp_flags,
};

#[test]
fn a_buffer_that_is_too_small_is_not_changed() {
    let mut buffer = [0xee; 43];
    let error = Frame::udp4(1, 1, 2, 2).payload(b"ab").write(&mut buffer).unwrap_err();
    assert_eq!(error, BufferTooSmall { need: 44, have: 43 });
    assert_eq!(error.to_string(), "the frame needs 44 bytes, the buffer has 43");
    assert_eq!(buffer, [0xee; 43]);
}

#[test]
#[should_panic = "41 bytes of options"]
fn options_beyond_forty_bytes_are_refused() {
    _ = Frame::tcp4(1, 1, 2, 2).tcp_options(&[1; 41]);
}

#[test]
#[should_panic = "at most 4 tags"]
fn a_fifth_tag_is_refused() {
    _ = (0..5).fold(Frame::tcp4(1, 1, 2, 2), |f, i| f.tag(EtherType::VLAN, i));
}

#[test]
fn fill_writes_payloads_of_every_length() {
    let mut buffer = [0; 1600];
    for len in 0..buffer.len() {
        let frame = Frame::udp4([10, 0, 0, 1], 7, [10, 0, 0, 2], 9).payload(b"mark").fill(&mut buffer[..len]);
        assert_eq!(frame.len(), len);
        match len {
            0..14 => assert!([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88].starts_with(frame)),
            14..42 => assert_eq!(Ethernet::parse(frame, 0).unwrap().ethertype(), EtherType::EXPERIMENTAL),
            _ => {
                let udp = Udp::parse(frame, 34).unwrap();
                assert_eq!(usize::from(udp.len()), len - 34);
                assert!(udp.payload().starts_with(&b"mark"[..udp.payload().len().min(4)]));
            }
        }
    }
}

/// The sum over a transport segment and its pseudo header; 0 if the checksum is correct.
fn segment_sum(addresses: [&[u8]; 2], protocol: IpProtocol, segment: &[u8]) -> u16 {
    let pseudo = Checksum::new().bytes(addresses[0]).bytes(addresses[1]).word(protocol.0.into());
    pseudo.bytes(&(segment.len() as u32).to_be_bytes()).bytes(segment).finish()
}

#[test]
fn checksums_are_valid_for_every_kind_and_payload() {
    let seed = testkit::seed("checksums_are_valid_for_every_kind_and_payload");
    let mut prng = Prng::new(seed);
    for round in 0..5000 {
        let mut payload = vec![0; prng.below(100) as usize];
        prng.fill(&mut payload);
        let options = vec![1; prng.below(41) as usize];
        let (a, b) = (prng.next_u64() as u32, prng.next_u64() as u32);
        let wide = u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
        let frame = match prng.below(6) {
            0 => Frame::udp4(a, 1, b, 2),
            1 => Frame::tcp4(a, 1, b, 2).tcp_options(&options),
            2 => Frame::icmp4(a, b, 8, 0, [1, 2, 3, 4]),
            3 => Frame::udp6(wide, 1, !wide, 2),
            4 => Frame::tcp6(wide, 1, !wide, 2).tcp_options(&options),
            _ => Frame::icmp6(wide, !wide, 128, 0, [1, 2, 3, 4]),
        };
        let mut buffer = [0; 300];
        let bytes = frame.raw().ip_options(&options).payload(&payload).write(&mut buffer).unwrap();
        let context = format!("seed {seed}, round {round}: {bytes:02x?}");
        if bytes[0] >> 4 == 4 {
            let ip = Ipv4::parse(bytes, 0).unwrap();
            assert_eq!(checksum(&bytes[..ip.header_len()]), 0, "{context}");
            assert_eq!(usize::from(ip.total_len()), bytes.len(), "{context}");
            let addresses: [&[u8]; 2] = [&ip.src().octets(), &ip.dst().octets()];
            match ip.protocol() {
                IpProtocol::ICMP => assert_eq!(checksum(ip.payload()), 0, "{context}"),
                protocol => assert_eq!(segment_sum(addresses, protocol, ip.payload()), 0, "{context}"),
            }
        } else {
            let ip = Ipv6::parse(bytes, 0).unwrap();
            assert_eq!(usize::from(ip.payload_len()), bytes.len() - 40, "{context}");
            let addresses: [&[u8]; 2] = [&ip.src().octets(), &ip.dst().octets()];
            assert_eq!(segment_sum(addresses, ip.next_header(), ip.payload()), 0, "{context}");
        }
    }
}

#[test]
fn a_computed_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut buffer = [0; 44];
    // Exactly one of the 65,536 payload words makes the computed checksum zero.
    let hit = (0..=u16::MAX).find(|word| {
        let bytes = Frame::udp4(1, 1, 2, 2).payload(&word.to_be_bytes()).write(&mut buffer).unwrap();
        Udp::parse(bytes, 34).unwrap().checksum() == 0xffff
    });
    assert!(hit.is_some());
    for word in 0..=u16::MAX {
        let bytes = Frame::udp4(1, 1, 2, 2).payload(&word.to_be_bytes()).write(&mut buffer).unwrap();
        assert_ne!(Udp::parse(bytes, 34).unwrap().checksum(), 0);
    }
}

#[test]
fn the_views_read_the_values_given_to_the_builder() {
    let mut buffer = [0; 256];
    let (src, dst) = (MacAddr([2, 1, 1, 1, 1, 1]), MacAddr::BROADCAST);
    let frame = Frame::tcp4([10, 0, 0, 1], 443, [10, 0, 0, 2], 50_000)
        .macs(src, dst)
        .tag(EtherType::QINQ, 0x6064)
        .tag(EtherType::VLAN, 7)
        .label(3)
        .label(0xf_ffff)
        .hops(9)
        .ip_options(&[0x94, 4, 0, 0])
        .tcp(tcp_flags::SYN | tcp_flags::ECE, 0xdead_beef, 77)
        .tcp_options(&[2, 4, 5, 0xb4, 1])
        .payload(b"hello");
    let bytes = frame.write(&mut buffer).unwrap();
    assert_eq!(bytes.len(), frame.header_len() + 5);

    let ethernet = Ethernet::parse(bytes, 0).unwrap();
    assert_eq!((ethernet.src(), ethernet.dst(), ethernet.ethertype()), (src, dst, EtherType::QINQ));
    let outer = VlanTag::parse(bytes, 14).unwrap();
    assert_eq!((outer.id(), outer.priority(), outer.ethertype()), (100, 3, EtherType::VLAN));
    let inner = VlanTag::parse(bytes, 18).unwrap();
    assert_eq!((inner.tci(), inner.ethertype(), inner.payload()[0]), (7, EtherType::MPLS, 0));
    assert_eq!(mpls::Label::parse(bytes, 22).unwrap(), mpls::Label { label: 3, bottom: false, ttl: 9 });
    assert_eq!(mpls::Label::parse(bytes, 26).unwrap(), mpls::Label { label: 0xf_ffff, bottom: true, ttl: 9 });
    let ip = Ipv4::parse(bytes, 30).unwrap();
    assert_eq!((ip.header_len(), ip.ttl(), ip.options()), (24, 9, &[0x94, 4, 0, 0][..]));
    let tcp = Tcp::parse(bytes, 54).unwrap();
    assert_eq!((tcp.src().0, tcp.dst().0, tcp.seq(), tcp.ack()), (443, 50_000, 0xdead_beef, 77));
    assert_eq!(tcp.flags(), tcp_flags::SYN | tcp_flags::ECE);
    assert_eq!((tcp.options(), tcp.payload()), (&[2, 4, 5, 0xb4, 1, 0, 0, 0][..], &b"hello"[..]));
}

#[test]
fn each_view_reports_the_offset_at_which_the_bytes_ended() {
    let frame = [0x55; 10];
    let errors = [
        Ethernet::parse(&frame, 4).unwrap_err().to_string(),
        VlanTag::parse(&frame, 8).unwrap_err().to_string(),
        mpls::Label::parse(&frame, 7).unwrap_err().to_string(),
        Arp::parse(&frame, 0).unwrap_err().to_string(),
        Ipv6::parse(&frame, 0).unwrap_err().to_string(),
        Tcp::parse(&frame, 0).unwrap_err().to_string(),
        Udp::parse(&frame, 7).unwrap_err().to_string(),
        Sctp::parse(&frame, 1).unwrap_err().to_string(),
        Icmp::parse(&frame, 9).unwrap_err().to_string(),
    ];
    let expected = [
        "Ethernet header at byte 4 needs 14 bytes, frame has 6",
        "VLAN header at byte 8 needs 4 bytes, frame has 2",
        "MPLS header at byte 7 needs 4 bytes, frame has 3",
        "ARP header at byte 0 needs 28 bytes, frame has 10",
        "IPv6 header at byte 0 needs 40 bytes, frame has 10",
        "TCP header at byte 0 needs 20 bytes, frame has 10",
        "UDP header at byte 7 needs 8 bytes, frame has 3",
        "SCTP header at byte 1 needs 12 bytes, frame has 9",
        "ICMP header at byte 9 needs 8 bytes, frame has 1",
    ];
    assert_eq!(errors, expected);
    let four = [0; 40];
    assert_eq!(
        Tcp::parse(&four, 0).unwrap_err().to_string(),
        "TCP header at byte 0: data offset is 0, must be at least 5"
    );
    assert_eq!(Udp::parse(&four, 0).unwrap_err().to_string(), "UDP header at byte 0: length is 0, must be at least 8");
    assert_eq!(Ipv6::parse(&four, 0).unwrap_err().to_string(), "IPv6 header at byte 0: version is 0, must be 6");
}

#[test]
fn arp_requests_have_sender_and_target() {
    let mut message = [0; 28];
    message[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    message[8..14].fill(0xaa);
    message[14..18].copy_from_slice(&[10, 0, 0, 1]);
    message[24..].copy_from_slice(&[10, 0, 0, 2]);
    let arp = Arp::parse(&message, 0).unwrap();
    assert_eq!((arp.operation(), arp.sender_mac(), arp.target_mac()), (1, MacAddr([0xaa; 6]), MacAddr([0; 6])));
    assert_eq!((arp.sender_ip().octets(), arp.target_ip().octets()), ([10, 0, 0, 1], [10, 0, 0, 2]));
}
