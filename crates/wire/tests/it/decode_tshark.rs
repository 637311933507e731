//! Compares the decoder with tshark for every packet of the real captures: the innermost IP packet, its ports, and its
//! encapsulation.
//!
//! A few captures are excluded from the comparison, because tshark and the decoder support different tunnels; each is
//! listed with the reason. Every other difference fails the test.

use crate::captures;

use captures::Packet;
use netgrain_wire::{DecodeError, Decoded, Family, Fragment, IpProtocol, TunnelKind, link};
use pcap::classic;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// The largest number of packets that are compared for each file, because further packets of a flood test nothing new.
const MOST: usize = 3000;

/// Captures with a tunnel that only one of tshark and the decoder enters.
const DIFFERENT: [(&str, &str); 7] = [
    ("ayiya-large-identity.pcap", "the decoder does not support AYIYA"),
    ("ayiya3.pcap", "the same"),
    ("gre-aruba.pcap", "the decoder does not support wireless frames in GRE"),
    ("gre-aruba-amsdu.pcap", "the same"),
    ("gtp_control_prime.pcap", "GTP' is no tunnel, but one frame of the file looks like a GTP-U packet"),
    ("pdp_ctx_messages.pcapng", "the same"),
    (
        "gtp9_unknown_or_too_short_payload.pcap",
        "the decoder does not accept an inner packet longer than the tunnel packet",
    ),
];

const FIELDS: [&str; 24] = [
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "ip.len",
    "ipv6.plen",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "sctp.srcport",
    "sctp.dstport",
    "icmp.type",
    "icmp.code",
    "icmpv6.type",
    "icmpv6.code",
    "tcp.len",
    "vxlan.vni",
    "geneve.vni",
    "gtp.teid",
    "gre.key",
    "erspan.spanid",
    "mpls.label",
];

/// The fields of one packet from tshark, each with its values from the outermost to the innermost header.
struct Theirs<'a>(Vec<Vec<&'a str>>);

impl<'a> Theirs<'a> {
    fn of(line: &'a str) -> Self {
        Self(line.split('\t').map(|field| field.split(',').filter(|value| !value.is_empty()).collect()).collect())
    }

    fn field(&self, name: &str) -> &[&'a str] {
        let index = FIELDS.iter().position(|field| *field == name).expect("the field is in FIELDS");
        self.0.get(index).map_or(&[], Vec::as_slice)
    }

    /// The layers down to the first ICMP, because ICMP messages quote other packets.
    fn layers(&self) -> Vec<&'a str> {
        let all: Vec<&str> = self.field("frame.protocols").first().map_or(vec![], |text| text.split(':').collect());
        let end = all.iter().position(|layer| layer.starts_with("icmp")).map_or(all.len(), |icmp| icmp + 1);
        all[..end].to_vec()
    }

    /// The expected result of the decoder as text.
    fn described(&self) -> String {
        let layers = self.layers();
        let Some(last) = layers.iter().rposition(|layer| matches!(*layer, "ip" | "ipv6")) else {
            return "not IP".to_owned();
        };
        let nth = |name: &str, upto: usize| layers[..upto].iter().filter(|layer| **layer == name).count();
        let (family, index) = (layers[last], nth(layers[last], last));
        let address = |end| self.field(&format!("{family}.{end}")).get(index).copied().unwrap_or("?");
        let mut text = format!("{} > {}", address("src"), address("dst"));
        let above = layers[last + 1..].iter().find(|layer| !layer.starts_with("ipv6.") && **layer != "ah");
        let names: [&str; 2] = match above {
            Some(&"tcp") => ["tcp.srcport", "tcp.dstport"],
            Some(&"udp") => ["udp.srcport", "udp.dstport"],
            Some(&"sctp") => ["sctp.srcport", "sctp.dstport"],
            Some(&"icmp") => ["icmp.type", "icmp.code"],
            Some(&"icmpv6") => ["icmpv6.type", "icmpv6.code"],
            _ => return text,
        };
        let name = above.copied().unwrap_or_default();
        let [src, dst] = names.map(|field| self.field(field).get(nth(name, last)).copied());
        if let (Some(src), Some(dst)) = (src, dst) {
            text += &format!(" {name} {src} {dst}");
        }
        text
    }

    /// The ID of the innermost tunnel, if its kind has one.
    fn tunnel_id(&self, kind: TunnelKind) -> Option<u32> {
        let name = match kind {
            TunnelKind::Vxlan => "vxlan.vni",
            TunnelKind::Geneve => "geneve.vni",
            TunnelKind::GtpU => "gtp.teid",
            TunnelKind::Erspan2 | TunnelKind::Erspan3 => "erspan.spanid",
            TunnelKind::Gre => "gre.key",
            _ => return None,
        };
        let text = self.field(name).last()?;
        match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }
}

fn described(d: &Decoded, frame: &[u8]) -> String {
    let l3 = usize::from(d.l3);
    let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&frame[l3 + at..][..16]).unwrap());
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&frame[l3 + at..][..4]).unwrap());
    let (src, dst) = match d.family {
        Family::Other => return "not IP".to_owned(),
        Family::V4 => (v4(12), v4(16)),
        Family::V6 => (v6(8), v6(24)),
    };
    let name = match d.protocol {
        IpProtocol::TCP => "tcp",
        IpProtocol::UDP => "udp",
        IpProtocol::SCTP => "sctp",
        IpProtocol::ICMP => "icmp",
        IpProtocol::ICMPV6 => "icmpv6",
        _ => "",
    };
    if name.is_empty() || d.fragment == Fragment::Later || d.l4 == 0 {
        return format!("{src} > {dst}");
    }
    format!("{src} > {dst} {name} {} {}", d.src_port, d.dst_port)
}

#[test]
fn the_innermost_packet_is_that_of_tshark() {
    let name = "the_innermost_packet_is_that_of_tshark";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tshark").is_none() {
        return;
    }
    let directory = testkit::TempDir::new(name);
    let (mut compared, mut tunnelled, mut identified, mut left) = (0, 0, 0, 0);
    let mut differences = Vec::new();
    for link_type in [link::ETHERNET, link::RAW_IP] {
        let packets: Vec<(String, Packet)> = captures::files(&traces)
            .into_iter()
            .flat_map(|file| {
                let short = file.strip_prefix(&traces).unwrap().display().to_string();
                captures::packets(&file, MOST).into_iter().map(move |packet| (short.clone(), packet))
            })
            .filter(|(_, p)| {
                let raw = matches!(p.link_type, link::RAW_IPV4 | link::RAW_IPV6);
                p.link_type == link_type || raw && link_type == link::RAW_IP
            })
            .filter(|(file, p)| p.bytes.len() < 65_536 && !DIFFERENT.iter().any(|(name, _)| file.ends_with(name)))
            .collect();
        let file = directory.join("joined.pcap");
        std::fs::write(&file, joined(packets.iter().map(|(_, p)| p), link_type)).unwrap();
        let text = tshark(&file);
        assert_eq!(text.lines().count(), packets.len(), "tshark reports every packet");
        for (number, ((file, p), line)) in packets.iter().zip(text.lines()).enumerate() {
            let (ours, theirs) = (Decoded::of(&p.bytes, p.wire_len, p.link_type), Theirs::of(line));
            // Three kinds of packets are not compared: packets whose decoding ends at a fragment of a tunnel packet or
            // at a label stack without a bottom, malformed packets below MPLS labels, and packets for which tshark
            // prints no addresses.
            let theirs_text = theirs.described();
            let ours_ends = matches!(ours.error, Some(DecodeError::TunnelFragment | DecodeError::LabelsTooMany));
            if ours_ends || ours.malformed && ours.mpls.is_some() || theirs_text.contains('?') {
                left += 1;
                continue;
            }
            compared += 1;
            let mut texts = [described(&ours, &p.bytes), theirs_text];
            if texts[0] == texts[1]
                && let Some(tunnel) = ours.tunnel
            {
                tunnelled += 1;
                if let Some(id) = theirs.tunnel_id(tunnel.kind) {
                    identified += 1;
                    texts = [format!("{:?} {}", tunnel.kind, tunnel.id), format!("{:?} {id}", tunnel.kind)];
                }
            }
            if texts[0] != texts[1] {
                let [ours_text, tshark_text] = texts;
                let layers = theirs.field("frame.protocols").join("");
                differences.push(format!(
                    "{file}: packet {number}: decoder {ours_text}, tshark {tshark_text} ({layers}); {:?}",
                    ours.error
                ));
            }
        }
    }
    eprintln!(
        "{compared} packets agree ({left} were not compared), {tunnelled} in tunnels, {identified} with a tunnel ID"
    );
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert!(compared > 10_000 && tunnelled > 200 && identified > 50, "too few packets were compared");
}

fn joined<'a>(packets: impl Iterator<Item = &'a Packet>, link_type: u16) -> Vec<u8> {
    let mut file = classic::Writer::new(Vec::new(), classic::Resolution::Nanos, link_type).unwrap();
    for (i, p) in packets.enumerate() {
        // The test puts one second between packets, so that tshark does not combine them.
        let ts = base::Timestamp::from_secs_nanos(1_000_000_000 + i as u64, 0);
        file.write(ts, p.wire_len, &p.bytes).unwrap();
    }
    file.finish().unwrap()
}

/// One line per packet, with the fields separated by tabs.
fn tshark(file: &Path) -> String {
    let mut command = Command::new("tshark");
    command.arg("-nr").arg(file).args(["-T", "fields", "-E", "occurrence=a"]);
    for option in ["ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE"] {
        command.args(["-o", option]);
    }
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
