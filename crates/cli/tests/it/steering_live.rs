//! Steering on a live port: packets of many shapes, and member processes that join, leave and are killed between two
//! swaps.
//!
//! A flow here is plain, in fragments, in a tunnel, or now in one and now not; of some, packets are now cut and now
//! whole, in their tunnels too; their packets go both ways in turn. Each frame ends with the number of its flow and its
//! own. What the members wrote into files says who had what; of a killed one the file may lack the end.

use crate::common;
use crate::workspace;

use base::Prng;
use common::{Running, signal};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use testkit::RawSender;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol};
use workspace::{Ground, frames};

const FLOWS: u32 = 140;
/// What a flow sends at a time, by its last digit.
const AT_A_TIME: [u32; 10] = [1, 3, 2, 1, 1, 1, 1, 3, 3, 3];
/// Frames of a round.
const FRAMES: u32 = FLOWS / 10 * 19;

/// Programs that steer by flow, in different words.
const PROGRAMS: [&str; 4] = [
    "main = steer_flow",
    "main = ip >-> mark 7 >-> steer_flow",
    "main = when is_tcp (inc 3) >-> steer_key key_5tuple >-> steer_flow",
    "n = flow_map 0 key_3tuple\nmain = do\n  incr_fstate n\n  steer_flow",
];

/// The packets of one round, the first of which has this number.
fn round(prng: &mut Prng, back: bool, first: u32) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for flow in 0..FLOWS {
        packet(prng, flow, back, &mut out);
    }
    assert_eq!(out.len(), FRAMES as usize);
    for (frame, number) in out.iter_mut().zip(first..) {
        let at = frame.len() - 4;
        frame[at..].copy_from_slice(&number.to_be_bytes());
    }
    out
}

/// What a flow sends at a time: one packet, or (2) the two parts of one, or (1, 7, 8, 9) three frames of packets of
/// which some are cut. The flow's number ends four bytes before a frame does.
fn packet(prng: &mut Prng, flow: u32, back: bool, out: &mut Vec<Vec<u8>>) {
    let from = out.len();
    let [low, high] = [flow as u8, (flow >> 8) as u8];
    let mut ends = [([10, 1, high, low], 4000 + flow as u16), ([192, 0, 2, 1], 443)];
    // Ends of tunnels: as many as there are, and ports that say nothing, as encapsulators have them.
    let mut around = [[172, 16, 0, prng.below(9) as u8], [172, 16, 1, prng.below(9) as u8]];
    if back {
        ends.reverse();
        around.reverse();
    }
    let [(src, sport), (dst, dport)] = ends;
    let entropy = 49_152 + prng.below(9000) as u16;
    let id = prng.next_u64() as u32;
    let six = |a: [u8; 4]| [0x2001, 0xdb8, 0, 0, 0, 0, u16::from(a[0]), u16::from(a[3])];
    let write = |frame: Frame<'_>| frame.write(&mut [0; 600]).expect("room").to_vec();
    let vxlan = |inner: Vec<u8>| {
        let inner = [&tunnel::vxlan(7)[..], &inner].concat();
        write(Frame::udp4(around[0], entropy, around[1], 4789).payload(&inner))
    };
    let gtp = |inner: Vec<u8>| {
        let inner = [tunnel::gtp_u(flow * 2 + u32::from(back), None, &[], inner.len()), inner].concat();
        write(Frame::udp4(around[0], 2152, around[1], 2152).payload(&inner))
    };
    let payload = [0; 240];
    let tcp = |len: usize| Frame::tcp4(src, sport, dst, dport).payload(&payload[..len]);
    let udp = Frame::udp4(src, sport, dst, dport).payload(&payload[..24]);
    let tcp6 = |len: usize| Frame::tcp6(six(src), sport, six(dst), dport).payload(&payload[..len]);
    let plain = prng.below(2) == 0;
    match flow % 10 {
        0 => out.push(write(udp)),
        1 => some_cut(prng, id, out, |len| write(tcp6(len))),
        2 => {
            // The later part comes first, as it may.
            let id = id as u16;
            out.push(write(Frame::ip4(src, dst, IpProtocol::UDP).fragment(id, 32, false).payload(&payload[..24])));
            out.push(write(udp.fragment(id, 0, true)));
        }
        3 => out.push(vxlan(write(tcp(24)))),
        4 => {
            let inner = write(Frame::udp6(six(src), sport, six(dst), dport).raw().payload(&payload[..24]));
            let inner = [tunnel::gre(EtherType::IPV6, None, Some(flow), None), inner].concat();
            out.push(write(Frame::ip4(around[0], around[1], IpProtocol::GRE).payload(&inner)));
        }
        5 => out.push(gtp(write(udp.raw()))),
        6 if plain => out.push(write(tcp(24).tag(EtherType::VLAN, 5))),
        6 => out.push(vxlan(write(tcp(24)))),
        7 => some_cut(prng, id, out, |len| write(tcp(len))),
        8 => some_cut(prng, id, out, |len| if plain { write(tcp(len)) } else { vxlan(write(tcp(len))) }),
        _ => some_cut(prng, id, out, |len| {
            let inner = write(tcp(len).raw());
            match flow / 10 % 3 {
                0 => gtp(inner),
                1 => write(Frame::ip6(six(around[0]), six(around[1]), IpProtocol::IPV4).payload(&inner)),
                _ => {
                    let inner = [tunnel::gre(EtherType::IPV4, None, None, None), inner].concat();
                    write(Frame::ip4(around[0], around[1], IpProtocol::GRE).payload(&inner))
                }
            }
        }),
    }
    for frame in &mut out[from..] {
        assert!(frame.len() >= 50);
        let at = frame.len() - 8;
        frame[at..at + 4].copy_from_slice(&flow.to_be_bytes());
    }
}

/// Three frames: small packets, as acknowledgements are, and a large one in two or three parts.
fn some_cut(prng: &mut Prng, id: u32, out: &mut Vec<Vec<u8>>, packet: impl Fn(usize) -> Vec<u8>) {
    let cut = |parts: usize| {
        let large = packet(200);
        let body = large.len() - if large[14] >> 4 == 6 { 54 } else { 34 };
        testkit::fragments(&large, id, body.div_ceil(parts).next_multiple_of(8))
    };
    let mut frames = match prng.below(4) {
        0 => vec![packet(8), packet(24), packet(16)],
        1 => cut(3),
        _ => cut(2),
    };
    if frames.len() == 2 {
        frames.insert(prng.below(3) as usize, packet(8));
    }
    assert_eq!(frames.len(), 3);
    out.append(&mut frames);
}

/// A member that writes what it gets into a file.
struct Member {
    running: Running,
    path: PathBuf,
    killed: bool,
}

impl Member {
    fn join(ground: &Ground, group: &str, name: &str) -> Self {
        let line = format!("exec netgrain group join -i eth1 {group} -w {name}.pcap 2>{name}.said");
        Self { running: ground.spawn(&line), path: ground.dir.join(format!("{name}.pcap")), killed: false }
    }

    /// Ends it in good order.
    fn leave(&mut self) {
        signal(&self.running.0, "INT");
        let status = self.running.0.wait().expect("it ends");
        let said = std::fs::read_to_string(self.path.with_extension("said")).unwrap_or_default();
        assert!(status.success(), "it missed something: {said}");
    }

    fn kill(&mut self) {
        self.killed = true;
        self.running.0.kill().expect("it was there");
        self.running.0.wait().expect("it ends");
    }

    /// What it wrote: numbers of packets and their flows, in order.
    fn packets(&self) -> Vec<(u32, u32)> {
        let word = |f: &[u8], at: usize| u32::from_be_bytes(f[at..at + 4].try_into().expect("four"));
        let all = if self.killed { self.whole_part() } else { frames(&self.path) };
        all.iter().map(|f| (word(f, f.len() - 4), word(f, f.len() - 8))).collect()
    }

    /// The records of a file that ends anywhere.
    fn whole_part(&self) -> Vec<Vec<u8>> {
        let file = std::fs::read(&self.path).unwrap_or_default();
        let mut out = Vec::new();
        let Ok(mut reader) = pcap::Reader::open(&file[..]) else { return out };
        while let Ok(Some(packet)) = reader.next() {
            out.push(packet.data.to_vec());
        }
        out
    }
}

/// What was done before the packets of a phase were sent, and who was there then.
#[derive(Clone, Debug)]
enum Deed {
    Nothing,
    Joined(usize),
    Left(usize),
    Killed(usize),
}

#[test]
fn flows_stay_with_their_members_whoever_comes_and_goes() {
    let test = "flows_stay_with_their_members_whoever_comes_and_goes";
    for source in ["tpacket", "af-xdp --dedicated"] {
        let Some(ground) = Ground::new(test) else { return };
        walk(test, &ground, source);
    }
}

fn walk(test: &str, ground: &Ground, source: &str) {
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let engine = ground.engine(&format!("netgrain record -i eth1 --store /data/store --source-kind {source}"));
    ground.yes(&format!("netgrain group create -i eth1 flows '{}'", PROGRAMS[0]));
    ground.yes("netgrain group create -i eth1 all copy");
    let mut all = Member::join(ground, "all", "all");
    ground.wait_for_members("all", 1);
    let wire = RawSender::new(&ground.feed);
    let mut members: Vec<Member> = Vec::new();
    let mut here: Vec<usize> = Vec::new();
    let mut phases: Vec<(Deed, Vec<usize>)> = Vec::new();
    let mut sent = 0;
    for step in 0..14 {
        let deed = match prng.below(4) {
            _ if here.len() < 3 => join(ground, &mut members, &mut here),
            0 if here.len() < 6 => join(ground, &mut members, &mut here),
            1 | 2 => {
                let who = here.remove(prng.below(here.len() as u64) as usize);
                if step % 2 == 0 {
                    members[who].kill()
                } else {
                    members[who].leave()
                }
                if step % 2 == 0 { Deed::Killed(who) } else { Deed::Left(who) }
            }
            _ => {
                let program = PROGRAMS[prng.below(PROGRAMS.len() as u64) as usize];
                ground.yes(&format!("netgrain group swap -i eth1 flows '{program}'"));
                Deed::Nothing
            }
        };
        ground.wait_for_members("flows", here.len());
        phases.push((deed, here.clone()));
        for back in [false, true] {
            wire.send(&round(&mut prng, back, sent));
            sent += FRAMES;
        }
        ground.wait_for_packets("flows", sent.into());
        ground.wait_for_packets("all", sent.into());
    }
    here.iter().for_each(|who| members[*who].leave());
    all.leave();
    for group in ["flows", "all"] {
        ground.wait_for_members(group, 0);
        let books = ground.books(group);
        let counts = [&books["received"], &books["passed"], &books["copies"], &books["departed"]["delivered"]];
        assert!(counts.iter().all(|n| **n == sent), "seed {seed}, {group}: {sent} were sent: {books}");
    }
    engine.end();
    let numbers: Vec<u32> = all.packets().iter().map(|p| p.0).collect();
    assert!(numbers.iter().copied().eq(0..sent), "who gets all has all, in order: {} of {sent}", numbers.len());
    reported(&members, &phases, &format!("seed {seed}, {source}"));
}

fn join(ground: &Ground, members: &mut Vec<Member>, here: &mut Vec<usize>) -> Deed {
    let who = members.len();
    members.push(Member::join(ground, "flows", &format!("member{who}")));
    here.push(who);
    Deed::Joined(who)
}

/// What the files say against what was done.
fn reported(members: &[Member], phases: &[(Deed, Vec<usize>)], context: &str) {
    // By phase: the owner of each flow, and how many of its packets were found.
    let mut owners: Vec<BTreeMap<u32, (usize, u32)>> = vec![BTreeMap::new(); phases.len()];
    let mut seen = BTreeSet::new();
    for (who, member) in members.iter().enumerate() {
        let packets = member.packets();
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        for (number, flow) in packets {
            let phase = (number / (2 * FRAMES)) as usize;
            assert!(seen.insert(number), "{context}: packet {number} is with two");
            assert!(
                last.insert(flow, number).is_none_or(|before| before < number),
                "{context}: order within flow {flow}"
            );
            let owner = owners[phase].entry(flow).or_insert((who, 0));
            assert_eq!(owner.0, who, "{context}: flow {flow} is with two in phase {phase}");
            owner.1 += 1;
        }
    }
    let whole = |flow: u32| 2 * AT_A_TIME[flow as usize % 10];
    let mut moved = 0;
    for (i, (deed, here)) in phases.iter().enumerate() {
        let dying = |who: &usize| members[*who].killed;
        for flow in 0..FLOWS {
            let found = owners[i].get(&flow);
            let (owner, count) = found.copied().unwrap_or((usize::MAX, 0));
            assert!(found.is_none() || here.contains(&owner), "{context}: phase {i}: {owner} was not there");
            let excused = if found.is_some() { dying(&owner) } else { here.iter().any(dying) };
            assert!(count == whole(flow) || excused, "{context}: phase {i}: {count} packets of flow {flow}");
            // A flow whose owner's file lacks it is with one of the killed: nothing more is known.
            let Some((before, _)) = i.checked_sub(1).and_then(|p| owners[p].get(&flow)).copied() else { continue };
            if found.is_none() {
                continue;
            }
            let may_move = match deed {
                Deed::Nothing => false,
                Deed::Joined(who) => owner == *who,
                Deed::Left(who) | Deed::Killed(who) => before == *who,
            };
            moved += u32::from(owner != before);
            assert!(owner == before || may_move, "{context}: {deed:?}: flow {flow} went from {before} to {owner}");
            assert!(!matches!(deed, Deed::Left(who) | Deed::Killed(who) if owner == *who), "{context}: phase {i}");
        }
    }
    assert!(moved > FLOWS / 4, "{context}: members came and went, and only {moved} flows moved");
}

#[test]
fn nothing_is_lost_or_parted_while_members_and_programs_change_under_traffic() {
    let test = "nothing_is_lost_or_parted_while_members_and_programs_change_under_traffic";
    const ROUNDS: u32 = 120;
    let Some(ground) = Ground::new(test) else { return };
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let engine = ground.engine("netgrain record -i eth1 --store /data/store --source-kind tpacket");
    ground.yes(&format!("netgrain group create -i eth1 flows '{}'", PROGRAMS[0]));
    let mut members: Vec<Member> = (0..3).map(|n| Member::join(&ground, "flows", &format!("member{n}"))).collect();
    ground.wait_for_members("flows", 3);
    let wire = RawSender::new(&ground.feed);
    let mut traffic = Prng::new(seed ^ 1);
    let sender = std::thread::spawn(move || {
        for n in 0..ROUNDS {
            wire.send(&round(&mut traffic, n % 2 == 1, n * FRAMES));
            std::thread::sleep(Duration::from_millis(25));
        }
    });
    let mut here = vec![0, 1, 2];
    let mut swaps = 0;
    let mut killed_at = 0;
    while !sender.is_finished() {
        match prng.below(4) {
            0 if here.len() < 5 => {
                join(&ground, &mut members, &mut here);
                ground.wait_for_members("flows", here.len());
            }
            1 if here.len() > 2 => {
                let who = here.remove(prng.below(here.len() as u64) as usize);
                members[who].leave();
            }
            2 if killed_at == 0 => {
                let who = here.remove(0);
                members[who].kill();
                ground.wait_for_members("flows", here.len());
                // What is judged from here on is with somebody who lives; some rounds more than were judged may be in
                // flight.
                killed_at = ground.books("flows")["received"].as_u64().expect("a number") as u32 + 3 * FRAMES;
            }
            _ => {
                let program = PROGRAMS[swaps % PROGRAMS.len()];
                ground.yes(&format!("netgrain group swap -i eth1 flows '{program}'"));
                swaps += 1;
            }
        }
    }
    sender.join().expect("all are sent");
    let sent = ROUNDS * FRAMES;
    ground.wait_for_packets("flows", sent.into());
    here.iter().for_each(|who| members[*who].leave());
    ground.wait_for_members("flows", 0);
    let books = ground.books("flows");
    let counts = [&books["received"], &books["passed"], &books["copies"], &books["departed"]["delivered"]];
    assert!(counts.iter().all(|n| **n == sent), "seed {seed}: {sent} were sent: {books}");
    engine.end();
    let mut seen = BTreeSet::new();
    for member in &members {
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        for (number, flow) in member.packets() {
            assert!(seen.insert(number), "seed {seed}: packet {number} is with two");
            assert!(
                last.insert(flow, number).is_none_or(|before| before < number),
                "seed {seed}: order in flow {flow}"
            );
        }
    }
    let missing: Vec<u32> = (0..sent).filter(|n| !seen.contains(n)).collect();
    let worst = missing.last().copied().unwrap_or_default();
    assert!(worst < killed_at.max(1), "seed {seed}: {worst} is missing, and the last kill was before {killed_at}");
    assert!(swaps > 3 && members.len() > 3, "seed {seed}: {swaps} swaps, {} members", members.len());
}
