//! Community IDs, compared with values from an independent program (Python's hashlib and base64) and from tshark.

use crate::captures;

use netgrain_wire::{Decoded, FlowKey, IpProtocol, Port, community_id};

fn key(src: &str, dst: &str, protocol: IpProtocol, src_port: u16, dst_port: u16) -> FlowKey {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    FlowKey { src, dst, src_port: Port(src_port), dst_port: Port(dst_port), protocol }
}

#[test]
fn icmp_types_without_a_reply_have_an_id_per_direction() {
    let unreachable = key("10.0.0.2", "10.0.0.1", IpProtocol::ICMP, 3, 1);
    assert_eq!(community_id(&unreachable), "1:JHjlyD5IJJjl3wHWOMj46lLWZag=");
    let other_way = key("10.0.0.1", "10.0.0.2", IpProtocol::ICMP, 3, 1);
    assert_eq!(community_id(&other_way), "1:gkoOC4ouXvyYq0Ek/WqwbLoqcxM=");
    let report = key("fe80::2", "ff02::16", IpProtocol::ICMPV6, 143, 0);
    assert_eq!(community_id(&report), "1:htwEr2PUJtYRpnuI/j3h+vU2Jjc=");
}

#[test]
fn both_directions_have_the_id_of_other_implementations() {
    for (src, dst, protocol, src_port, dst_port, id) in [
        ("128.232.110.120", "66.35.250.204", IpProtocol::TCP, 34855, 80, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
        ("192.168.1.52", "8.8.8.8", IpProtocol::UDP, 54585, 53, "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
        ("192.168.170.8", "192.168.170.20", IpProtocol::SCTP, 7, 7, "1:4iaaC6nqe32ttyihwMRjNOw7be4="),
        ("2001:db8::2", "2001:db8::1", IpProtocol::TCP, 443, 50000, "1:YXqXufkGr4i6TbJJYF83fvyDLZ8="),
        ("10.0.0.9", "10.0.0.9", IpProtocol::UDP, 9, 7, "1:LJqnwak+yhHV6xhjpqqxzPUbxZ0="),
        ("10.0.0.9", "10.0.0.1", IpProtocol::GRE, 0, 0, "1:SapCeQDx496z5gW0IxiML5v2lEE="),
    ] {
        let key = key(src, dst, protocol, src_port, dst_port);
        assert_eq!(community_id(&key), id, "{key}");
        assert_eq!(community_id(&key.reversed()), id, "{key}, reversed");
    }
    for (request, reply, id) in [
        (
            key("10.0.0.1", "10.0.0.2", IpProtocol::ICMP, 8, 0),
            key("10.0.0.2", "10.0.0.1", IpProtocol::ICMP, 0, 0),
            "1:YcMyyWJfhc95EW1GfXt6jlZ3DiQ=",
        ),
        (
            key("fe80::1", "fe80::2", IpProtocol::ICMPV6, 135, 0),
            key("fe80::2", "fe80::1", IpProtocol::ICMPV6, 136, 0),
            "1:7IIPGNVAHI2udmsuJVpA3RMOAqc=",
        ),
    ] {
        assert_eq!((community_id(&request), community_id(&reply)), (id.to_owned(), id.to_owned()));
    }
}

#[test]
fn real_packets_have_the_ids_of_tshark() {
    let name = "real_packets_have_the_ids_of_tshark";
    let Some(traces) = testkit::traces(name) else { return };
    let mut compared = 0;
    for file in captures::files(&traces.join("zeek/communityid")) {
        let Some(mut tshark) = testkit::tool(name, "tshark") else { return };
        tshark.arg("-nr").arg(&file).args(["--enable-protocol", "communityid", "-T", "fields", "-e", "communityid"]);
        let output = tshark.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let theirs = String::from_utf8(output.stdout).unwrap();
        let packets = captures::packets(&file, usize::MAX);
        assert_eq!(theirs.lines().count(), packets.len());
        for (number, (p, theirs)) in packets.iter().zip(theirs.lines()).enumerate() {
            let key = Decoded::of(&p.bytes, p.wire_len, p.link_type).key(&p.bytes);
            let ours = key.map_or(String::new(), |key| community_id(&key));
            assert_eq!(ours, theirs, "{}, packet {number}: {key:?}", file.display());
            compared += usize::from(!theirs.is_empty());
        }
    }
    assert!(compared > 100, "only {compared} packets were compared");
}
