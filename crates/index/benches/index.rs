//! quick
use base::Prng;
use netgrain_index::{Keys, Kind, Set};
use std::time::Instant;
use wire::build::Frame;

fn block(make: impl Fn(&mut Prng, u64) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(1);
    (0..1032u64).map(|i| make(&mut prng, i)).collect()
}

fn main() {
    let v4 = |a: u32, p: u16, b: u32, q: u16| {
        let mut f = vec![0; 200];
        Frame::udp4(a.to_be_bytes(), p, b.to_be_bytes(), q).fill(&mut f);
        f
    };
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("one flow", block(|_, _| v4(0x0a000001, 1, 0x0a000002, 2))),
        (
            "200 hosts, 300 flows",
            block(|p, _| {
                let n = p.below(300) as u32;
                v4(0x0a000000 | n % 200, (1024 + n * 7) as u16, 0x0a010000 | n % 20, 443)
            }),
        ),
        ("every packet another flow of two hosts", block(|p, _| v4(0x0a000001, p.next_u64() as u16, 0x0a000002, 443))),
        ("every packet another client", block(|p, _| v4(p.next_u64() as u32, p.next_u64() as u16, 0x0a000002, 443))),
        (
            "every packet two other hosts and ports",
            block(|p, _| v4(p.next_u64() as u32, p.next_u64() as u16, p.next_u64() as u32, p.next_u64() as u16)),
        ),
        (
            "the same in v6",
            block(|p, _| {
                let mut a = || std::array::from_fn::<u16, 8, _>(|_| p.next_u64() as u16);
                let (x, y) = (a(), a());
                let mut f = vec![0; 200];
                Frame::udp6(x, x[0], y, y[0]).fill(&mut f);
                f
            }),
        ),
    ];
    for (name, frames) in &cases {
        let mut keys = Keys::default();
        let (mut add, mut end) = (f64::MAX, f64::MAX);
        let mut sets = keys.sets();
        for _ in 0..300 {
            let t = Instant::now();
            for f in frames {
                keys.add(f, 1000, 1);
            }
            let a = t.elapsed().as_nanos() as f64 / frames.len() as f64;
            let t = Instant::now();
            sets = keys.sets();
            keys.clear();
            let e = t.elapsed().as_nanos() as f64 / frames.len() as f64;
            add = add.min(a);
            end = end.min(e);
        }
        let sizes: Vec<String> = [Kind::Hosts, Kind::Flows, Kind::Ports, Kind::Nets, Kind::Links]
            .iter()
            .map(|k| match sets.of(*k) {
                Set::All => "all".into(),
                Set::Groups(g) => format!("{}", g.len()),
            })
            .collect();
        println!("{name:42} add {add:6.1} ns  sets+clear {end:6.1} ns/packet   {} bytes {sizes:?}", sets.bytes());
    }
}
