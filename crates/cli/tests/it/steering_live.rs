//! Steering on a live interface. The packets are plain, fragmented or tunnelled; member processes join, leave and are
//! killed between program swaps.
//!
//! Flows are plain, fragmented, tunnelled, or tunnelled at times; some flows have fragmented and whole packets, also in
//! tunnels. Their directions alternate. Each frame ends with the numbers of its flow and of its packet. The files of
//! the members show which member received which packets; the file of a killed member may lack its end.

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
use workspace::{Testbed, frames};

const FLOWS: u32 = 140;
/// Number of frames of a flow in one round, by the last digit of the flow's number.
const FRAMES_PER_ROUND: [u32; 10] = [1, 3, 2, 1, 1, 1, 1, 3, 3, 3];
/// Number of frames of all flows together in one round.
const FRAMES: u32 = FLOWS / 10 * 19;

/// Programs that all steer by flow and give equal results.
const PROGRAMS: [&str; 4] = [
    "main = steer_flow",
    "main = ip >-> mark 7 >-> steer_flow",
    "main = when is_tcp (inc 3) >-> steer_key key_5tuple >-> steer_flow",
    "n = flow_map 0 key_3tuple\nmain = do\n  incr_fstate n\n  steer_flow",
];

/// The packets of one round, numbered from `first`.
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

/// Appends the frames of a flow in one round: one packet; the two fragments of a packet (flow numbers that end in 2);
/// or three frames of which some are fragments (flow numbers that end in 1, 7, 8 or 9). The flow number ends four bytes
/// before the end of each frame.
fn packet(prng: &mut Prng, flow: u32, back: bool, out: &mut Vec<Vec<u8>>) {
    let from = out.len();
    let [low, high] = [flow as u8, (flow >> 8) as u8];
    let mut ends = [([10, 1, high, low], 4000 + flow as u16), ([192, 0, 2, 1], 443)];
    // The tunnel endpoints have random addresses. Their source ports are random too, like those that encapsulators
    // choose.
    let mut outer = [[172, 16, 0, prng.below(9) as u8], [172, 16, 1, prng.below(9) as u8]];
    if back {
        ends.reverse();
        outer.reverse();
    }
    let [(src, sport), (dst, dport)] = ends;
    let entropy = 49_152 + prng.below(9000) as u16;
    let id = prng.next_u64() as u32;
    let six = |a: [u8; 4]| [0x2001, 0xdb8, 0, 0, 0, 0, u16::from(a[0]), u16::from(a[3])];
    let write = |frame: Frame<'_>| frame.write(&mut [0; 600]).expect("a buffer of sufficient size").to_vec();
    let vxlan = |inner: Vec<u8>| {
        let inner = [&tunnel::vxlan(7)[..], &inner].concat();
        write(Frame::udp4(outer[0], entropy, outer[1], 4789).payload(&inner))
    };
    let gtp = |inner: Vec<u8>| {
        let inner = [tunnel::gtp_u(flow * 2 + u32::from(back), None, &[], inner.len()), inner].concat();
        write(Frame::udp4(outer[0], 2152, outer[1], 2152).payload(&inner))
    };
    let payload = [0; 240];
    let tcp = |len: usize| Frame::tcp4(src, sport, dst, dport).payload(&payload[..len]);
    let udp = Frame::udp4(src, sport, dst, dport).payload(&payload[..24]);
    let tcp6 = |len: usize| Frame::tcp6(six(src), sport, six(dst), dport).payload(&payload[..len]);
    let plain = prng.below(2) == 0;
    match flow % 10 {
        0 => out.push(write(udp)),
        1 => three_frames_with_fragments(prng, id, out, |len| write(tcp6(len))),
        2 => {
            // The later fragment is sent first.
            let id = id as u16;
            out.push(write(Frame::ip4(src, dst, IpProtocol::UDP).fragment(id, 32, false).payload(&payload[..24])));
            out.push(write(udp.fragment(id, 0, true)));
        }
        3 => out.push(vxlan(write(tcp(24)))),
        4 => {
            let inner = write(Frame::udp6(six(src), sport, six(dst), dport).raw().payload(&payload[..24]));
            let inner = [tunnel::gre(EtherType::IPV6, None, Some(flow), None), inner].concat();
            out.push(write(Frame::ip4(outer[0], outer[1], IpProtocol::GRE).payload(&inner)));
        }
        5 => out.push(gtp(write(udp.raw()))),
        6 if plain => out.push(write(tcp(24).tag(EtherType::VLAN, 5))),
        6 => out.push(vxlan(write(tcp(24)))),
        7 => three_frames_with_fragments(prng, id, out, |len| write(tcp(len))),
        8 => three_frames_with_fragments(
            prng,
            id,
            out,
            |len| if plain { write(tcp(len)) } else { vxlan(write(tcp(len))) },
        ),
        _ => three_frames_with_fragments(prng, id, out, |len| {
            let inner = write(tcp(len).raw());
            match flow / 10 % 3 {
                0 => gtp(inner),
                1 => write(Frame::ip6(six(outer[0]), six(outer[1]), IpProtocol::IPV4).payload(&inner)),
                _ => {
                    let inner = [tunnel::gre(EtherType::IPV4, None, None, None), inner].concat();
                    write(Frame::ip4(outer[0], outer[1], IpProtocol::GRE).payload(&inner))
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

/// Appends three frames: small packets, and at times a large packet in two or three fragments.
fn three_frames_with_fragments(prng: &mut Prng, id: u32, out: &mut Vec<Vec<u8>>, packet: impl Fn(usize) -> Vec<u8>) {
    let fragments = |parts: usize| {
        let large = packet(200);
        let body = large.len() - if large[14] >> 4 == 6 { 54 } else { 34 };
        testkit::fragments(&large, id, body.div_ceil(parts).next_multiple_of(8))
    };
    let mut frames = match prng.below(4) {
        0 => vec![packet(8), packet(24), packet(16)],
        1 => fragments(3),
        _ => fragments(2),
    };
    if frames.len() == 2 {
        frames.insert(prng.below(3) as usize, packet(8));
    }
    assert_eq!(frames.len(), 3);
    out.append(&mut frames);
}

/// A member that writes its packets to a file.
struct Member {
    running: Running,
    path: PathBuf,
    killed: bool,
}

impl Member {
    fn join(testbed: &Testbed, group: &str, name: &str) -> Self {
        let line = format!("exec netgrain group join -i eth1 {group} -w {name}.pcap 2>{name}.log");
        Self { running: testbed.spawn(&line), path: testbed.dir.join(format!("{name}.pcap")), killed: false }
    }

    /// Ends the member with SIGINT.
    fn leave(&mut self) {
        signal(&self.running.0, "INT");
        let status = self.running.0.wait().expect("the process ends");
        let output = std::fs::read_to_string(self.path.with_extension("log")).unwrap_or_default();
        assert!(status.success(), "the member missed packets: {output}");
    }

    fn kill(&mut self) {
        self.killed = true;
        self.running.0.kill().expect("a running member");
        self.running.0.wait().expect("the process ends");
    }

    /// The packet number and the flow number of each packet that the member wrote, in order.
    fn packets(&self) -> Vec<(u32, u32)> {
        let word = |f: &[u8], at: usize| u32::from_be_bytes(f[at..at + 4].try_into().expect("four"));
        let all = if self.killed { self.complete_records() } else { frames(&self.path) };
        all.iter().map(|f| (word(f, f.len() - 4), word(f, f.len() - 8))).collect()
    }

    /// The complete records of a file that may be truncated.
    fn complete_records(&self) -> Vec<Vec<u8>> {
        let file = std::fs::read(&self.path).unwrap_or_default();
        let mut out = Vec::new();
        let Ok(mut reader) = pcap::Reader::open(&file[..]) else { return out };
        while let Ok(Some(packet)) = reader.next() {
            out.push(packet.data.to_vec());
        }
        out
    }
}

/// The change of the group's members at the begin of a phase.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    Joined(usize),
    Left(usize),
    Killed(usize),
}

#[test]
fn flows_keep_their_members_while_other_members_join_and_leave() {
    let test = "flows_keep_their_members_while_other_members_join_and_leave";
    for source in ["tpacket", "af-xdp --dedicated"] {
        let Some(testbed) = Testbed::new(test) else { return };
        random_walk(test, &testbed, source);
    }
}

fn random_walk(test: &str, testbed: &Testbed, source: &str) {
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let engine = testbed.engine(&format!("netgrain record -i eth1 --store /data/store --source-kind {source}"));
    testbed.run_ok(&format!("netgrain group create -i eth1 flows '{}'", PROGRAMS[0]));
    testbed.run_ok("netgrain group create -i eth1 all copy");
    let mut all = Member::join(testbed, "all", "all");
    testbed.wait_for_members("all", 1);
    let wire = RawSender::new(&testbed.feed);
    let mut members: Vec<Member> = Vec::new();
    let mut present: Vec<usize> = Vec::new();
    let mut phases: Vec<(Change, Vec<usize>)> = Vec::new();
    let mut sent = 0;
    for step in 0..14 {
        let change = match prng.below(4) {
            _ if present.len() < 3 => join(testbed, &mut members, &mut present),
            0 if present.len() < 6 => join(testbed, &mut members, &mut present),
            1 | 2 => {
                let index = present.remove(prng.below(present.len() as u64) as usize);
                if step % 2 == 0 {
                    members[index].kill()
                } else {
                    members[index].leave()
                }
                if step % 2 == 0 { Change::Killed(index) } else { Change::Left(index) }
            }
            _ => {
                let program = PROGRAMS[prng.below(PROGRAMS.len() as u64) as usize];
                testbed.run_ok(&format!("netgrain group swap -i eth1 flows '{program}'"));
                Change::Nothing
            }
        };
        testbed.wait_for_members("flows", present.len());
        phases.push((change, present.clone()));
        for back in [false, true] {
            wire.send(&round(&mut prng, back, sent));
            sent += FRAMES;
        }
        testbed.wait_for_packets("flows", sent.into());
        testbed.wait_for_packets("all", sent.into());
    }
    present.iter().for_each(|index| members[*index].leave());
    all.leave();
    for group in ["flows", "all"] {
        testbed.wait_for_members(group, 0);
        let stats = testbed.stats(group);
        let counts = [&stats["received"], &stats["passed"], &stats["copies"], &stats["departed"]["delivered"]];
        assert!(counts.iter().all(|n| **n == sent), "seed {seed}, {group}: {sent} were sent: {stats}");
    }
    engine.end();
    let numbers: Vec<u32> = all.packets().iter().map(|p| p.0).collect();
    assert!(
        numbers.iter().copied().eq(0..sent),
        "a member of a copy group gets all packets in order: {} of {sent}",
        numbers.len()
    );
    assert_files_match_phases(&members, &phases, &format!("seed {seed}, {source}"));
}

fn join(testbed: &Testbed, members: &mut Vec<Member>, present: &mut Vec<usize>) -> Change {
    let index = members.len();
    members.push(Member::join(testbed, "flows", &format!("member{index}")));
    present.push(index);
    Change::Joined(index)
}

/// Asserts that in each phase the packets of a flow are in the file of one member, and that this member was in the
/// group in this phase.
fn assert_files_match_phases(members: &[Member], phases: &[(Change, Vec<usize>)], context: &str) {
    // By phase: for each flow, the member that got its packets, and how many of its packets were found.
    let mut owners: Vec<BTreeMap<u32, (usize, u32)>> = vec![BTreeMap::new(); phases.len()];
    let mut seen = BTreeSet::new();
    for (index, member) in members.iter().enumerate() {
        let packets = member.packets();
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        for (number, flow) in packets {
            let phase = (number / (2 * FRAMES)) as usize;
            assert!(seen.insert(number), "{context}: packet {number} has two members");
            assert!(
                last.insert(flow, number).is_none_or(|before| before < number),
                "{context}: order within flow {flow}"
            );
            let owner = owners[phase].entry(flow).or_insert((index, 0));
            assert_eq!(owner.0, index, "{context}: flow {flow} has two members in phase {phase}");
            owner.1 += 1;
        }
    }
    let whole = |flow: u32| 2 * FRAMES_PER_ROUND[flow as usize % 10];
    let mut moved = 0;
    for (i, (change, present)) in phases.iter().enumerate() {
        let is_killed = |index: &usize| members[*index].killed;
        for flow in 0..FLOWS {
            let found = owners[i].get(&flow);
            let (owner, count) = found.copied().unwrap_or((usize::MAX, 0));
            assert!(
                found.is_none() || present.contains(&owner),
                "{context}: phase {i}: member {owner} was not present"
            );
            let may_be_missing = if found.is_some() { is_killed(&owner) } else { present.iter().any(is_killed) };
            assert!(count == whole(flow) || may_be_missing, "{context}: phase {i}: {count} packets of flow {flow}");
            // If no file has packets of a flow, the flow belongs to a killed member, and the test can check nothing
            // else about it.
            let Some((before, _)) = i.checked_sub(1).and_then(|p| owners[p].get(&flow)).copied() else { continue };
            if found.is_none() {
                continue;
            }
            let may_move = match change {
                Change::Nothing => false,
                Change::Joined(index) => owner == *index,
                Change::Left(index) | Change::Killed(index) => before == *index,
            };
            moved += u32::from(owner != before);
            assert!(owner == before || may_move, "{context}: {change:?}: flow {flow} moved from {before} to {owner}");
            assert!(
                !matches!(change, Change::Left(index) | Change::Killed(index) if owner == *index),
                "{context}: phase {i}"
            );
        }
    }
    assert!(moved > FLOWS / 4, "{context}: only {moved} flows moved");
}

#[test]
fn changes_of_members_and_programs_lose_no_packet_and_split_no_flow() {
    let test = "changes_of_members_and_programs_lose_no_packet_and_split_no_flow";
    const ROUNDS: u32 = 120;
    let Some(testbed) = Testbed::new(test) else { return };
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let engine = testbed.engine("netgrain record -i eth1 --store /data/store --source-kind tpacket");
    testbed.run_ok(&format!("netgrain group create -i eth1 flows '{}'", PROGRAMS[0]));
    let mut members: Vec<Member> = (0..3).map(|n| Member::join(&testbed, "flows", &format!("member{n}"))).collect();
    testbed.wait_for_members("flows", 3);
    let wire = RawSender::new(&testbed.feed);
    let mut traffic = Prng::new(seed ^ 1);
    let sender = std::thread::spawn(move || {
        for n in 0..ROUNDS {
            wire.send(&round(&mut traffic, n % 2 == 1, n * FRAMES));
            std::thread::sleep(Duration::from_millis(25));
        }
    });
    let mut present = vec![0, 1, 2];
    let mut swaps = 0;
    let mut killed_at = 0;
    while !sender.is_finished() {
        match prng.below(4) {
            0 if present.len() < 5 => {
                join(&testbed, &mut members, &mut present);
                testbed.wait_for_members("flows", present.len());
            }
            1 if present.len() > 2 => {
                let index = present.remove(prng.below(present.len() as u64) as usize);
                members[index].leave();
            }
            2 if killed_at == 0 => {
                let index = present.remove(0);
                members[index].kill();
                testbed.wait_for_members("flows", present.len());
                // Packets that are sent from now on are delivered to living members. Up to three rounds of packets that
                // are already sent may not be in the counter `received` yet.
                killed_at = testbed.stats("flows")["received"].as_u64().expect("a number") as u32 + 3 * FRAMES;
            }
            _ => {
                let program = PROGRAMS[swaps % PROGRAMS.len()];
                testbed.run_ok(&format!("netgrain group swap -i eth1 flows '{program}'"));
                swaps += 1;
            }
        }
    }
    sender.join().expect("the sender ends");
    let sent = ROUNDS * FRAMES;
    testbed.wait_for_packets("flows", sent.into());
    present.iter().for_each(|index| members[*index].leave());
    testbed.wait_for_members("flows", 0);
    let stats = testbed.stats("flows");
    let counts = [&stats["received"], &stats["passed"], &stats["copies"], &stats["departed"]["delivered"]];
    assert!(counts.iter().all(|n| **n == sent), "seed {seed}: {sent} were sent: {stats}");
    engine.end();
    let mut seen = BTreeSet::new();
    for member in &members {
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        for (number, flow) in member.packets() {
            assert!(seen.insert(number), "seed {seed}: packet {number} has two members");
            assert!(
                last.insert(flow, number).is_none_or(|before| before < number),
                "seed {seed}: order in flow {flow}"
            );
        }
    }
    let missing: Vec<u32> = (0..sent).filter(|n| !seen.contains(n)).collect();
    let last_missing = missing.last().copied().unwrap_or_default();
    assert!(
        last_missing < killed_at.max(1),
        "seed {seed}: packet {last_missing} is missing; packets from {killed_at} on were sent after the kill"
    );
    assert!(swaps > 3 && members.len() > 3, "seed {seed}: {swaps} swaps, {} members", members.len());
}
