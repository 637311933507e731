//! Measures the time to decode a frame: `cargo bench -p netgrain-wire`. The measured functions are `Headers`,
//! `Decoded`, and the sequence of calls in the meter (`Decoded`, fragment tracking, tunnel sequence numbers). The
//! result is in nanoseconds per frame: the minimum of many runs over frames in the cache. Run it on an idle machine.

use base::{Prng, Timestamp};
use netgrain_wire::build::{Frame, tunnel};
use netgrain_wire::{Decoded, EtherType, Fragments, Headers, IpProtocol, Sessions, community_id, link};
use std::hint::black_box;
use std::time::Instant;

/// Number of frames per run. They are few enough to fit into the caches of level 1 and 2.
const FRAMES: usize = 1024;
const RUNS: usize = 400;

fn main() {
    println!("{:<34} headers ns  decoded ns             meter ns", "frames");
    let mut prng = Prng::new(1);
    for (name, make) in KINDS {
        let frames: Vec<Vec<u8>> = (0..FRAMES).map(|_| make(&mut prng)).collect();
        let headers = least(&frames, |frame| {
            black_box(Headers::of(frame, frame.len() as u32, link::ETHERNET));
        });
        let decoded = least(&frames, |frame| {
            black_box(Decoded::of(frame, frame.len() as u32, link::ETHERNET));
        });
        let (mut fragments, mut sessions) = (Fragments::new(1), Sessions::new(1));
        let metered = least(&frames, |frame| {
            let mut d = Decoded::of(frame, frame.len() as u32, link::ETHERNET);
            fragments.resolve(&mut d, frame, Timestamp::ZERO);
            if d.may_have_sequence() {
                sessions.observe(frame, frame.len() as u32, link::ETHERNET);
            }
            black_box(d);
        });
        println!("{name:<34} {headers:>10.1} {decoded:>11.1} {metered:>21.1}");
    }
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|_| tcp4(&mut prng)).collect();
    let id = least(&frames, |frame| {
        let key = Decoded::of(frame, frame.len() as u32, link::ETHERNET).key(frame);
        black_box(key.map(|key| community_id(&key)));
    });
    println!("{:<34} {id:>22.1}", "community id of TCP over IPv4");
}

/// The name of a kind of frames, and a function that makes one frame.
type Kind = (&'static str, fn(&mut Prng) -> Vec<u8>);

const KINDS: [Kind; 11] = [
    ("TCP over IPv4", tcp4),
    ("UDP over IPv4, one tag", |prng| {
        built(
            Frame::udp4(prng.next_u64() as u32, 1, prng.next_u64() as u32, 2).tag(EtherType::VLAN, 5).payload(&[0; 20]),
        )
    }),
    ("TCP over IPv6", |prng| {
        let (src, dst) = (u128::from(prng.next_u64()), u128::from(prng.next_u64()));
        built(Frame::tcp6(src, 1, dst, 2).payload(&[0; 20]))
    }),
    ("the frames above mixed with ICMP", |prng| match prng.below(4) {
        0 => tcp4(prng),
        1 => (KINDS[1].1)(prng),
        2 => (KINDS[2].1)(prng),
        _ => built(Frame::icmp4(prng.next_u64() as u32, 2, 8, 0, [0; 4]).payload(&[0; 20])),
    }),
    ("two tags", |prng| {
        built(Frame::udp4(prng.next_u64() as u32, 1, 2, 2).tag(EtherType::QINQ, 5).tag(EtherType::VLAN, 6))
    }),
    ("two labels", |prng| built(Frame::udp4(prng.next_u64() as u32, 1, 2, 2).label(16).label(17))),
    ("a later fragment", |prng| {
        let id = prng.next_u64() as u16;
        built(Frame::ip4(1, 2, IpProtocol::UDP).fragment(id, 1480, false).payload(&[0; 20]))
    }),
    ("GRE", |prng| {
        let inner = tcp4(prng);
        let payload = [&tunnel::gre(EtherType::IPV4, None, Some(1), None)[..], &inner[14..]].concat();
        built(Frame::ip4(1, 2, IpProtocol::GRE).payload(&payload))
    }),
    ("VXLAN", |prng| {
        let payload = [&tunnel::vxlan(1)[..], &tcp4(prng)].concat();
        built(Frame::udp4(1, 50_000, 2, 4789).payload(&payload))
    }),
    ("ERSPAN II", |prng| {
        let gre = tunnel::gre(EtherType::ERSPAN, None, None, Some(prng.below(100) as u32));
        let payload = [&gre[..], &tunnel::erspan2(1), &tcp4(prng)].concat();
        built(Frame::ip4(1, 2, IpProtocol::GRE).payload(&payload))
    }),
    ("GTP-U with an extension", |prng| {
        let inner = tcp4(prng);
        let header = tunnel::gtp_u(1, None, &[(0x85, &[1, 2])], inner.len() - 14);
        built(Frame::udp4(1, 2152, 2, 2152).payload(&[&header[..], &inner[14..]].concat()))
    }),
];

fn tcp4(prng: &mut Prng) -> Vec<u8> {
    built(Frame::tcp4(prng.next_u64() as u32, 1, prng.next_u64() as u32, 2).payload(&[0; 20]))
}

fn built(frame: Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; 500];
    frame.write(&mut buffer).expect("500 bytes are enough").to_vec()
}

/// Nanoseconds per frame in the fastest run.
fn least(frames: &[Vec<u8>], mut look: impl FnMut(&[u8])) -> f64 {
    let runs = (0..RUNS).map(|_| {
        let begin = Instant::now();
        frames.iter().for_each(|frame| look(black_box(frame)));
        begin.elapsed().as_nanos() as f64 / frames.len() as f64
    });
    runs.fold(f64::MAX, f64::min)
}
