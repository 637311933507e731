//! Tests of the kernel part of programs: its maps, the reasons why programs are refused, and the metadata for user
//! space.

use ir::interp::Execution;
use ir::{Builder, Expiry, Fact, Inst, Layer, Meta, Program, Set, Var, VerdictKind};
use kernel_programs::{
    COMPACT_BYTES, Clock, EmitOptions, KernelVerdict, MAPS_MAX, METADATA_BYTES, MapKind, MapValue, Metadata, Refusal,
    Role, SET_MAPS, ToUser, emit,
};
use netgrain_lang::compile;

const OPTIONS: EmitOptions = EmitOptions {
    link_type: wire::link::ETHERNET,
    hash_key: 7,
    generation: 3,
    port: 0,
    ingress: 0,
    queues: 4,
    clock: Clock::Running,
    to_user: ToUser::Sockets,
    metadata: Metadata::Full,
};

fn program(text: &str) -> Program {
    compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "program"))).program
}

#[test]
fn an_object_has_exactly_the_maps_that_its_stages_use() {
    let text = "flows = up_to 100 (flow_map 0 key_5tuple)\nmain = do\n  incr_fstate flows\n  when is_udp (bridge \
     \"eth1\")\n  inc 4\n";
    let object = emit(&program(text), &OPTIONS).expect("all stages run in the kernel");
    let roles: Vec<_> = object.maps.iter().map(|m| m.role).collect();
    for role in [Role::Flow(0), Role::Counters, Role::EgressInterfaces, Role::Sockets, Role::Outcomes] {
        assert!(roles.contains(&role), "{role:?} is not among {roles:?}");
    }
    assert!(!roles.contains(&Role::Clock), "no stage reads the time");
    let flows = &object.maps[roles.iter().position(|r| *r == Role::Flow(0)).unwrap_or(0)];
    assert_eq!((flows.kind, flows.key, flows.value, flows.entries), (MapKind::Hash, 40, 16, 100));
    let by_queue: Vec<_> = object.maps.iter().filter(|m| m.entries == OPTIONS.queues).map(|m| m.role).collect();
    assert_eq!(by_queue.len(), 2, "{by_queue:?}");
}

#[test]
fn large_sets_become_tries_with_exactly_their_addresses() {
    let ranges: Vec<(u128, u128)> =
        (0..8_u128).map(|n| (n << 100 | 3, n << 100 | 0x1_0005)).chain([(u128::MAX - 4, u128::MAX)]).collect();
    let mut b = Builder::default();
    b.stage("a set");
    // The program has two more address sets than tries, so the last two sets share the tries of the first two sets.
    let sets: Vec<_> = (0..u128::from(SET_MAPS) + 2)
        .map(|n| {
            let mut own = ranges.clone();
            own.insert(1, (0x2_0000 + 2 * n, 0x2_0000 + 2 * n));
            own
        })
        .collect();
    let (hi, lo, to) = (b.meta(Meta::WireLen), b.meta(Meta::Queue), b.reg());
    // The program uses each set twice, but the trie must contain the set once.
    for ranges in sets.iter().chain(&sets) {
        let set = b.set_table(&Set::Ranges(ranges.clone()));
        b.push(Inst::Member { to, set, hi, lo });
        b.set(Var::State, to);
    }
    let ir = b.finish();
    let object = emit(&ir, &OPTIONS).expect("a filter");
    let tries: Vec<_> = object.maps.iter().filter(|m| m.kind == MapKind::LpmTrie).collect();
    assert_eq!(tries.len(), usize::from(SET_MAPS));
    for trie in &tries {
        assert_eq!((trie.key, trie.entries as usize), (24, trie.content.len()));
    }
    for (number, ranges) in (0_u16..).zip(sets) {
        let trie = tries.iter().find(|m| m.role == Role::Sets(number % SET_MAPS)).expect("a trie");
        assert_eq!(covered(&trie.content, number.into()), ranges, "set {number}");
    }
}

/// Computes the address ranges that the prefixes of a set cover.
fn covered(content: &[(Vec<u8>, Vec<u8>)], number: u32) -> Vec<(u128, u128)> {
    let of_set = content.iter().map(|(key, _)| key).filter(|key| key[4..8] == number.to_be_bytes());
    let mut covered: Vec<(u128, u128)> = of_set
        .map(|key| {
            let bits = u32::from_ne_bytes(key[..4].try_into().expect("four bytes")) - 32;
            let from = u128::from_be_bytes(key[8..].try_into().expect("an address"));
            (from, from + if bits == 0 { u128::MAX } else { (1 << (128 - bits)) - 1 })
        })
        .collect();
    covered.sort_unstable();
    covered.into_iter().fold(Vec::new(), |mut all: Vec<(u128, u128)>, (from, to)| {
        match all.last_mut() {
            Some(last) if last.1 + 1 == from => last.1 = to,
            _ => all.push((from, to)),
        }
        all
    })
}

#[test]
fn programs_that_the_kernel_cannot_run_are_refused_with_the_reason() {
    let refused = |text: &str, options: &EmitOptions| emit(&program(text), options).expect_err(text);
    assert_eq!(refused("main = ip", &EmitOptions { link_type: 113, ..OPTIONS }), Refusal::LinkType(113));
    let why = refused("main = log_packet >-> ip", &OPTIONS);
    assert!(matches!(&why, Refusal::Nothing { stage, .. } if stage == "log_packet"), "{why:?}");
    assert!(why.to_string().contains("`log_packet` writes a log"), "{why}");
    let without = EmitOptions { metadata: Metadata::None, ..OPTIONS };
    assert_eq!(refused("main = inc 1", &without), Refusal::NoMetadata);
    assert!(
        emit(&program("main = ip >-> steer_flow"), &without).is_ok(),
        "a program without effects needs no metadata"
    );
    assert!(matches!(emit(&Program::default(), &OPTIONS), Err(Refusal::Unfit(_))));
}

#[test]
fn stages_that_exceed_the_stack_stay_in_user_space() {
    let mut b = Builder::default();
    b.stage("short");
    b.set(Var::Mark, 4);
    b.stage("wide");
    let held: Vec<_> = (0..100).map(|_| b.fact(Layer::Outer, Fact::Protocol)).collect();
    for r in held {
        b.set(Var::State, r);
    }
    let ir = b.finish();
    assert_eq!(emit(&ir, &OPTIONS).map(|o| o.stages), Ok(1));
    let (_, wide) = ir.split(1);
    assert!(matches!(emit(&wide, &OPTIONS), Err(Refusal::Stack { need, have: 512 }) if need > 900));
}

#[test]
fn two_hundred_stages_with_address_sets_run_in_the_kernel() {
    let object = emit(&program(&customers(200)), &OPTIONS).expect("marks");
    assert_eq!(object.stages, 200);
    assert_eq!(object.maps.len(), usize::from(SET_MAPS) + 3, "tries, sockets, outcomes and generations");
}

/// A program stage with nine networks for each customer.
fn customers(n: usize) -> String {
    let nets = |i| (0..9).map(|k| format!("10.{i}.{}.0/28", 2 * k)).collect::<Vec<_>>().join(", ");
    let stages: Vec<_> = (0..n).map(|i| format!("when (has_addr_in [{}]) (mark {})", nets(i), i + 1)).collect();
    format!("main = {}\n", stages.join(" >-> "))
}

#[test]
fn stages_that_exceed_the_map_limit_stay_in_user_space() {
    let text: String = (0..64).map(|i| format!("m{i} = for_ms 5 (flow_map {i} key_5tuple)\n")).collect();
    let stages: Vec<_> = (0..64).map(|i| format!("incr_fstate m{i}")).collect();
    let ir = program(&format!("{text}main = {}\n", stages.join(" >-> ")));
    let object = emit(&ir, &OPTIONS).expect("the first stages");
    assert_eq!(object.maps.len(), MAPS_MAX);
    assert_eq!(object.stages, MAPS_MAX - 5, "five maps are counters, sockets, outcomes, generations and clock");
    let all_at_once = program(&format!("{text}main = when ip ({})\n", stages.join(" >-> ")));
    assert_eq!(emit(&all_at_once, &OPTIONS).map(|_| ()), Err(Refusal::Maps { need: 69 }));
}

#[test]
fn a_long_program_runs_in_the_kernel_without_fast_paths() {
    let stages = vec!["add_fstate m 1"; 170].join(" >-> ");
    let ir = program(&format!("m = idle_after 60000 (flow_map 0 key_vlan)\nmain = ip >-> {stages}\n"));
    let object = emit(&ir, &OPTIONS).expect("all of it");
    assert_eq!(object.stages, ir.stages.len());
}

#[test]
fn unwritten_or_cleared_metadata_is_not_a_verdict() {
    assert_eq!(KernelVerdict::read(&[0; METADATA_BYTES], 9), None);
    let mut bytes = [0; METADATA_BYTES];
    bytes[..4].copy_from_slice(&9_u32.to_ne_bytes());
    bytes[28..].copy_from_slice(&[2, 1, 0x4e, 0x47]);
    let handed = KernelVerdict::read(&bytes, 1).map(|h| (h.generation, h.stages, h.record.kind));
    assert_eq!(handed, Some((9, 1, VerdictKind::Steer)));
    bytes[METADATA_BYTES - COMPACT_BYTES..].fill(0);
    assert_eq!(KernelVerdict::read(&bytes, 9), None, "the magic bytes were cleared");
}

#[test]
fn the_low_half_of_a_generation_identifies_it() {
    let mut bytes = [0; METADATA_BYTES];
    for (low, near, generation) in [
        (7, 7, 7),
        (8, 7, 8),
        (6, 7, 6),
        (0, 0xffff, 0x1_0000),
        (0xffff, 0x1_0000, 0xffff),
        (3, 0xabcd_fffe, 0xabce_0003),
        (0, u32::MAX, 0),
    ] {
        bytes[METADATA_BYTES - COMPACT_BYTES..][..2].copy_from_slice(&u16::to_ne_bytes(low));
        bytes[METADATA_BYTES - 2..].copy_from_slice(&[4, 0x6e]);
        let handed = KernelVerdict::read(&bytes, near).expect("the compact form");
        assert_eq!((handed.generation, handed.stages), (generation, 4), "{low:#x} beside {near:#x}");
        assert_eq!(handed.record, Execution::start(0));
    }
}

/// If a program uses counters or maps, the kernel must pass the verdict record to user space; otherwise user space can
/// compute the record again.
#[test]
fn a_program_with_effects_passes_the_full_record() {
    let compact = EmitOptions { metadata: Metadata::Compact, ..OPTIONS };
    let metadata = |text: &str| emit(&program(text), &compact).map(|o| (o.metadata, o.is_evaluated_again));
    assert_eq!(metadata("main = ip >-> steer_flow"), Ok((Metadata::Compact, true)));
    assert_eq!(metadata("main = ip >-> inc 1 >-> steer_flow"), Ok((Metadata::Full, false)));
    let local = metadata("main = when is_tcp steer_rss");
    assert_eq!(local, Ok((Metadata::Compact, true)), "values that only user space has affect only the record");
    // In this program, an operation that the kernel cannot perform comes before the change of a counter. If the kernel
    // continued after that operation, kernel and user space would both count the packet.
    let behind = metadata("main = when is_tcp (steer_rss >-> inc 1)");
    assert_eq!(behind, Ok((Metadata::Full, false)));
    assert_eq!(metadata("main = ip"), Ok((Metadata::Compact, false)), "all packets have the same record");
    let hashes = |options: &EmitOptions| {
        emit(&program("main = ip >-> steer_p2p"), options).map(|o| format!("{:?}", o.code).contains("*="))
    };
    assert_eq!(
        (hashes(&OPTIONS), hashes(&compact)),
        (Ok(true), Ok(false)),
        "with compact metadata the kernel does not compute the hash"
    );
}

#[test]
fn map_values_round_trip_and_expire() {
    let entry = MapValue { number: 5, stamp: 1000 };
    assert_eq!(MapValue::read(&entry.bytes()), entry);
    assert!(!entry.expired(Expiry::Idle(10), 1010) && entry.expired(Expiry::Idle(10), 1011));
    assert!(!entry.expired(Expiry::Never, u64::MAX));
}
