//! Filters against tcpdump on every link that is read, and the words for what few captures have: tunnels of Geneve, headers of 802.2,
//! IS-IS, DECnet. Frames of other links than Ethernet are the real ones with another head, and the real captures of such links.

use crate::common;

use base::Prng;
use common::filters::{Values, agree, chosen, cut_some};
use common::{Packet, collect, collect_of};
use netgrain_lang::interp::{Interpreter, Memory};
use netgrain_lang::ir::Kind;
use netgrain_lang::tcpdump::Filter;
use netgrain_lang::{Facts, compile_for};
use wire::build::{Frame, tunnel};
use wire::{EtherType, link};

/// Most frames of one capture.
const MOST: usize = 100;

/// How the family of an ethertype is numbered by BSD, first that of OpenBSD.
fn family(ethertype: [u8; 2], n: u64) -> Option<u32> {
    match ethertype {
        [8, 0] => Some(2),
        [0x86, 0xdd] => Some([24, 28, 30][n as usize % 3]),
        _ => None,
    }
}

/// The frame of Ethernet as another link would have it; `None` where that link cannot carry it.
fn as_of(link_type: u16, frame: &[u8], n: u64) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_at_checked(14)?;
    let ethertype = [head[12], head[13]];
    let is_ip = matches!((link_type, ethertype), (_, [8, 0] | [0x86, 0xdd]));
    let sent = if n.is_multiple_of(3) { 4 } else { (n % 4) as u8 };
    // Linux says 4 of a frame with a header of 802.2, and 1 of one of Novell's.
    let linux = match ethertype {
        [a, b] if u16::from_be_bytes([a, b]) > 1500 => ethertype,
        _ if payload.starts_with(&[0xff, 0xff]) => [0, 1],
        _ => [0, 4],
    };
    let head = match link_type {
        link::RAW_IP if is_ip => vec![],
        link::RAW_IPV4 if ethertype == [8, 0] => vec![],
        link::RAW_IPV6 if ethertype == [0x86, 0xdd] => vec![],
        link::NULL => family(ethertype, n)?.to_le_bytes().to_vec(),
        link::LOOP => family(ethertype, n)?.to_be_bytes().to_vec(),
        link::LINUX_SLL => [&[0, sent, 0, 1, 0, 6][..], &head[6..12], &[0, 0], &linux].concat(),
        link::LINUX_SLL2 => {
            [&linux[..], &[0, 0, 0, 0, 0, (n % 5) as u8, 0, 1, sent, 6], &head[6..12], &[0, 0]].concat()
        }
        _ => return None,
    };
    Some([&head, payload].concat())
}

fn packets_of(link_type: u16, ethernet: &[Packet], traces: &std::path::Path) -> Vec<Packet> {
    let turned = ethernet.iter().enumerate().filter_map(|(i, p)| {
        let bytes = as_of(link_type, &p.bytes, i as u64)?;
        Some(Packet { wire_len: p.wire_len - p.bytes.len() as u32 + bytes.len() as u32, bytes })
    });
    turned.chain(collect_of(traces, link_type, MOST)).filter(|p| !p.bytes.is_empty()).collect()
}

/// Of words that every link has.
const EVERYWHERE: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "tcp port 80",
    "udp or icmp6",
    "not ip",
    "port 53 or 443",
    "host 10.0.0.1 or net 192.168.0.0/16",
    "host ff02::1",
    "ip multicast or ip6 multicast",
    "ether proto \\ip",
    "link proto 0x86dd",
    "ether proto 0x88cc",
    "ether proto 0x42 or stp",
    "ipx or atalk or aarp or netbeui or iso",
    "isis or esis or clnp",
    "isis proto 18",
    "iih or lsp",
    "decnet host 1.1",
    "lat",
    "ether[0] & 1 = 0",
    "link[0:4] > 0x08000000",
    "ip[8] < 64",
    "tcp[13] & 2 != 0",
    "ip6[6] = 58",
    "icmp6[0] = 135",
    "ip[2:2] = len",
    "pppoed",
    "pppoes and ip",
    "pppoes and ip6 and icmp6",
    "geneve and ip",
    "ip proto 47 or ip6 proto 58",
    "arp host 192.168.1.1",
    "rarp or moprc",
    // Those that some links do not have, and say so.
    "vlan",
    "vlan and ip",
    "mpls",
    "llc",
    "ether host 0:0:0:0:0:0",
    "broadcast",
    "ether multicast",
    "ifindex 3",
    "pppoes and vlan",
    "geneve and ether host 1:2:3:4:5:6",
];

#[test]
fn on_each_link_the_filters_choose_what_tcpdump_chooses() {
    let name = "on_each_link_the_filters_choose_what_tcpdump_chooses";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let seed = testkit::seed(name);
    let mut prng = Prng::new(seed);
    let mut ethernet = collect(&traces, MOST);
    ethernet.extend(odd_frames());
    cut_some(&mut ethernet, &mut prng);
    for link_type in
        [link::RAW_IP, link::RAW_IPV4, link::RAW_IPV6, link::NULL, link::LOOP, link::LINUX_SLL, link::LINUX_SLL2]
    {
        let packets = packets_of(link_type, &ethernet, &traces);
        assert!(packets.len() > 200, "only {} packets of link type {link_type}", packets.len());
        let values = Values::of(&packets, link_type);
        let sent = ["inbound", "outbound and tcp"].iter().filter(|_| link_type == 113 || link_type == 276);
        let fixed: Vec<_> = EVERYWHERE.iter().chain(sent).map(|f| ((*f).to_owned(), false)).collect();
        let random: Vec<_> = (0..60).map(|_| (values.filter(&mut prng, 2), false)).collect();
        let sums = agree(seed, &packets, link_type, fixed.into_iter().chain(random), |_| false);
        assert!(sums.telling > 20 && sums.refused > 2, "link type {link_type}: {sums:?}");
        eprintln!("link type {link_type}: {} packets; {sums:?}", packets.len());
    }
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn framed(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, payload].concat()
}

/// Frames of 802.3 with this behind their length.
fn with_length(payload: &[u8]) -> Vec<u8> {
    framed((payload.len() as u16).to_be_bytes(), payload)
}

/// What few captures have.
fn odd_frames() -> Vec<Packet> {
    let mut frames = Vec::new();
    for control in [0x00, 0x02, 0x01, 0x05, 0x09, 0x03, 0x13, 0x63, 0x73, 0x43, 0x0f, 0x6f, 0xe3, 0xaf, 0x87, 0xff] {
        frames.push(with_length(&[0x42, 0x42, control, 0, 0, 0, 0, 0, 0, 0]));
        frames.push(with_length(&[0xf0, 0xf0, control, 0, 0, 0, 0, 0, 0, 0]));
    }
    frames.push(with_length(&[0xff, 0xff, 0x03, 0, 0, 0, 0, 0]));
    frames.push(with_length(&[0xe0, 0xe0, 0x03, 0, 0, 0, 0, 0]));
    frames.push(with_length(&[0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37, 0, 0, 0]));
    frames.push(with_length(&[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b, 0, 0, 0]));
    frames.push(with_length(&[0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3, 0, 0, 0]));
    for pdu in 14..29 {
        frames.push(with_length(&[0xfe, 0xfe, 3, 0x83, 0x1b, 1, 0, pdu, 1, 0]));
        // Where other links than Ethernet are asked for it.
        frames.push(with_length(&[0xfe, 0xfe, 3, 0x83, pdu, 1, 0, 0, 1, 0]));
    }
    frames.push(with_length(&[0xfe, 0xfe, 3, 0x81, 0, 0, 0, 0, 0, 0]));
    for (format, places) in
        [(&[0x02_u8][..], [3, 1]), (&[0x81, 0x02], [4, 2]), (&[0x06], [15, 7]), (&[0x81, 0x06], [16, 8])]
    {
        for place in places {
            let mut routed = vec![0; 40];
            routed[2..2 + format.len()].copy_from_slice(format);
            for node in [1, 2] {
                routed[place + 2..place + 4].copy_from_slice(&[node, 4]);
                frames.push(framed([0x60, 3], &routed));
            }
        }
    }
    frames.extend(tunnels());
    frames.into_iter().map(|bytes| Packet { wire_len: bytes.len() as u32, bytes }).collect()
}

/// Geneve with and without options, over both versions of IP, with Ethernet and with IP in it, and in one another.
fn tunnels() -> Vec<Vec<u8>> {
    let written = |frame: Frame<'_>| {
        let mut bytes = [0; 400];
        frame.write(&mut bytes).unwrap().to_vec()
    };
    let web = written(Frame::tcp4(A, 4000, B, 80).payload(&[7; 10]));
    let tagged = written(Frame::udp4(A, 4000, B, 53).tag(EtherType::VLAN, 5));
    let six = written(Frame::tcp6([1; 8], 80, [2; 8], 4000));
    let mut out = Vec::new();
    for (vni, options) in [(10, &[][..]), (11, &[0, 1, 2, 1, 9, 9, 9, 9]), (10, &[0; 4])] {
        let bridged = EtherType(0x6558);
        let carried = [(bridged, &web[..]), (bridged, &tagged), (bridged, &six), (EtherType::IPV4, &web[14..])];
        for (kind, inside) in carried.into_iter().chain([(EtherType::IPV6, &six[14..])]) {
            let payload = [&tunnel::geneve(kind, vni, options)[..], inside].concat();
            let once = written(Frame::udp4(A, 50_000, B, 6081).payload(&payload));
            out.push(written(Frame::udp6([3; 8], 50_000, [4; 8], 6081).payload(&payload)));
            let twice = [&tunnel::geneve(bridged, 12, &[])[..], &once].concat();
            out.push(written(Frame::udp4(A, 50_000, B, 6081).payload(&twice)));
            // Another version, and another port: no tunnels.
            let mut other = once.clone();
            other[42] |= 0x40;
            out.extend([other, written(Frame::udp4(A, 50_000, B, 6082).payload(&payload)), once]);
        }
    }
    out
}

/// Filters with words for what few captures have; each tells the odd frames apart.
const RARE: &[&str] = &[
    "geneve",
    "geneve 10",
    "geneve 11",
    "geneve and ip",
    "geneve and ip6",
    "geneve and tcp port 80",
    "geneve and host 10.0.0.2",
    "geneve and vlan",
    "geneve and vlan 5 and udp port 53",
    "geneve and ether host 02:00:00:00:00:01",
    "geneve and ether[12:2] = 0x800",
    "geneve and ip[8] > 10",
    "geneve and tcp[2:2] = 80",
    "geneve and tcp[tcp[12] >> 2] = 7",
    "geneve and ip6[40:2] = 80",
    "geneve and geneve",
    "geneve 12 and geneve 10 and tcp",
    "geneve and geneve and tcp port 80",
    "geneve and not tcp",
    "udp and geneve and tcp",
    "geneve and portrange 70-90",
    "geneve and not multicast",
    "llc",
    "llc i",
    "llc s",
    "llc u",
    "llc rr",
    "llc rnr",
    "llc rej",
    "llc ui",
    "llc ua",
    "llc disc",
    "llc dm",
    "llc sabme",
    "llc test",
    "llc xid",
    "llc frmr",
    "not llc",
    "llc u and stp",
    "l1",
    "l2",
    "iih",
    "lsp",
    "snp",
    "csnp",
    "psnp",
    "isis proto 18",
    "not l1 and isis",
    "decnet host 1.1",
    "decnet src 1.1",
    "decnet dst 1.1",
    "decnet src host 1.1 or decnet dst 2.1",
    "decnet and not decnet host 1.1",
    "ip proto 256 or stp",
    "not ip6 proto 1000 and ip6",
    "not ether proto 65536 and ip",
    "not proto 300 and tcp",
];

#[test]
fn rare_words_choose_what_tcpdump_chooses() {
    let name = "rare_words_choose_what_tcpdump_chooses";
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let seed = testkit::seed(name);
    let mut packets: Vec<_> = odd_frames();
    if let Some(traces) = testkit::extra_traces(name) {
        packets.extend(collect(&traces, MOST));
    }
    let told = |packets: &[Packet]| {
        let filters = RARE.iter().map(|f| ((*f).to_owned(), false));
        agree(seed, packets, link::ETHERNET, filters, |_| false)
    };
    let whole = told(&packets);
    assert_eq!((whole.filters, whole.refused), (RARE.len(), 0));
    assert_eq!(whole.silent, [""; 0], "each tells some apart");
    cut_some(&mut packets, &mut Prng::new(seed));
    let cut = told(&packets);
    eprintln!("{} packets; whole {whole:?}; cut {cut:?}", packets.len());
}

#[test]
fn which_way_a_frame_of_ethernet_went_is_asked_of_the_capture() {
    let frame = Frame::tcp4(A, 1, B, 80);
    let mut bytes = [0; 60];
    let bytes = frame.fill(&mut bytes);
    let (outbound, inbound) = (Filter::parse("outbound and tcp").unwrap(), Filter::parse("inbound").unwrap());
    for outgoing in [0, 1] {
        let takes = |filter: &Filter| {
            let program = filter.program();
            let facts = Facts { outgoing, ..Facts::of(bytes, 60, link::ETHERNET) };
            Interpreter::new(&program).run(bytes, &facts, &mut Memory::of(&program, 0)).kind != Kind::Drop
        };
        assert_eq!((takes(&outbound), takes(&inbound)), (outgoing == 1, outgoing == 0));
    }
}

#[test]
fn a_family_of_either_order_is_read_on_loopback() {
    let filter = Filter::of_link("ip", link::NULL).unwrap();
    let packets = [[2, 0, 0, 0], [0, 0, 0, 2], [24, 0, 0, 0]].map(|b| Packet { bytes: b.to_vec(), wire_len: 4 });
    assert_eq!(chosen(&filter, &packets, link::NULL), [0, 1]);
}

#[test]
fn a_program_is_made_for_the_link_of_its_frames() {
    let text = "main = when (matches \"tcp port 80\") (mark 1) >-> bpf \"tcp\"";
    let cooked = compile_for(text, link::LINUX_SLL).unwrap().program;
    let frame = Frame::tcp4(A, 1, B, 80);
    let mut bytes = [0; 60];
    let bytes = as_of(link::LINUX_SLL, frame.fill(&mut bytes), 0).unwrap();
    let facts = Facts::of(&bytes, 62, link::LINUX_SLL);
    let out = Interpreter::new(&cooked).run(&bytes, &facts, &mut Memory::of(&cooked, 0));
    assert_eq!((out.kind, out.mark), (Kind::Copy, 1));
    assert_eq!(cooked.fits_link(link::LINUX_SLL), Ok(()));
    let said = cooked.fits_link(link::ETHERNET).unwrap_err().to_string();
    assert!(said.contains("where Linux cooked has") && said.contains("are Ethernet"), "{said}");
    for (text, link_type, says) in [
        ("main = bpf \"vlan 5\"", link::LINUX_SLL, "no VLAN tag"),
        ("main = bpf \"ether host 1:2:3:4:5:6\"", link::RAW_IP, "no link addresses"),
        ("main = bpf \"inbound\"", link::NULL, "which way"),
        ("main = bpf \"tcp\"", 147, "link type 147 are not read"),
    ] {
        let error = compile_for(text, link_type).unwrap_err().show(text, "x");
        assert!(error.contains(says), "{error}");
    }
}
