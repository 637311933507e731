//! Tests that filters have the same results after translation to the IR as in the filter's own interpreter, which other
//! tests compare with tcpdump.

use base::Prng;
use filter::{Filter, LinkFilter};
use ir::Facts;
use ir::VerdictKind;
use ir::interp::{Interpreter, ProgramState};
use netgrain_lang::{compile_for, packet_filter};
use wire::build::Frame;
use wire::{Headers, link};

const CORPUS: &str = include_str!("../../../filter/tests/corpus.txt");

/// Filters with `anylink`, which tcpdump does not support.
const OWN: &[&str] = &[
    "anylink tcp",
    "anylink udp port 53",
    "anylink port 1",
    "anylink src portrange 2-70",
    "anylink host 10.0.0.1",
    "anylink arp host 10.0.0.1 or anylink rarp host 10.0.0.1",
    "anylink src and dst net 10.0.0.0/24",
    "anylink src net 2001:db8::/32",
    "anylink dst host 2001:db8::1",
    "anylink net ::/0",
    "anylink net 0.0.0.0/0",
    "anylink vlan 5",
    "anylink vlan",
    "not anylink vlan and not anylink tcp",
    "anylink tcp[13] & 2 != 0",
    "anylink ip[8] > 10",
    "anylink udp[udp[5]] = 0",
    "anylink arp[7] = 1",
    "anylink ip6 and anylink proto 17",
    "anylink ip multicast or anylink ip broadcast or anylink ip6 multicast",
    "anylink icmp6 and not anylink ether proto 0x800",
];

#[test]
fn a_translated_filter_has_the_results_of_the_filter() {
    let seed = testkit::seed("a_translated_filter_has_the_results_of_the_filter");
    let mut prng = Prng::new(seed);
    let mut frames: Vec<Vec<u8>> = (0..300).map(|_| testkit::random_frame(&mut prng)).collect();
    for frame in frames.iter_mut().step_by(5) {
        let len = prng.below(frame.len() as u64 + 1) as usize;
        frame.truncate(len.max(1));
    }
    let (mut filters, mut telling) = (0, 0);
    for link_type in [link::ETHERNET, link::RAW_IP, link::LINUX_SLL] {
        let facts: Vec<_> = frames
            .iter()
            .map(|f| (Facts::of(f, f.len() as u32, link_type), Headers::of(f, f.len() as u32, link_type)))
            .collect();
        for text in CORPUS.lines().chain(OWN.iter().copied()) {
            let Ok(of_link) = LinkFilter::parse(text, link_type) else { continue };
            let filter = Filter::parse(text).expect(text);
            let program = match packet_filter::program(&of_link) {
                Ok(program) => program,
                Err(e) => {
                    assert!(["protochain", "anylink vlan "].iter().any(|word| text.contains(word)), "{text}: {e}");
                    continue;
                }
            };
            assert_eq!(program.verify(), Ok(()), "{text}\n{program}");
            let (mut interpreter, mut memory) = (Interpreter::new(&program), ProgramState::of(&program, 0));
            let mut found = 0;
            for (frame, (facts, headers)) in frames.iter().zip(&facts) {
                let theirs = interpreter.run(frame, facts, &mut memory).kind != VerdictKind::Drop;
                let ours = filter.matches(frame, frame.len() as u32, headers);
                assert_eq!(theirs, ours, "seed {seed}, link type {link_type}: {text}: {frame:02x?}\n{program}");
                found += usize::from(ours);
            }
            filters += 1;
            telling += usize::from(found > 0 && found < frames.len());
        }
    }
    assert!(filters > 1400 && telling > 300, "{filters} filters, of which {telling} match some but not all frames");
}

#[test]
fn a_program_is_compiled_for_a_link_type() {
    let text = "main = when (matches \"tcp port 80\") (mark 1) >-> bpf \"tcp\"";
    let cooked = compile_for(text, link::LINUX_SLL).unwrap().program;
    let mut bytes = [0; 60];
    let frame = Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 80).fill(&mut bytes);
    let bytes = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0], &frame[14..]].concat();
    let facts = Facts::of(&bytes, 62, link::LINUX_SLL);
    let out = Interpreter::new(&cooked).run(&bytes, &facts, &mut ProgramState::of(&cooked, 0));
    assert_eq!((out.kind, out.mark), (VerdictKind::Copy, 1));
    assert_eq!(cooked.fits_link(link::LINUX_SLL), Ok(()));
    let message = cooked.fits_link(link::ETHERNET).unwrap_err().to_string();
    assert!(message.contains("of type Linux cooked") && message.contains("are Ethernet"), "{message}");
    for (text, link_type, message) in [
        ("main = bpf \"vlan 5\"", link::LINUX_SLL, "VLAN tags are not supported"),
        ("main = bpf \"ether host 1:2:3:4:5:6\"", link::RAW_IP, "link addresses are not supported"),
        ("main = bpf \"inbound\"", link::NULL, "do not contain their direction"),
        ("main = bpf \"tcp\"", 147, "this link type are not decoded"),
        ("main = bpf \"ip6 protochain 6\"", link::ETHERNET, "in a loop"),
        ("main = bpf \"bytes > 5\"", link::ETHERNET, "`netgrain flows`"),
    ] {
        let error = compile_for(text, link_type).unwrap_err().show(text, "x");
        assert!(error.contains(message), "{error}");
    }
}
