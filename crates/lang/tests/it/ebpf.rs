//! The kernel's half: what it is made of, what is refused, and what passes to the other half.

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
fn maps_are_those_that_the_stages_use() {
    let text = "flows = up_to 100 (flow_map 0 key_5tuple)\nmain = do\n  incr_fstate flows\n  when is_udp (bridge \"eth1\")\n  inc 4\n";
    let object = emit(&program(text), &OPTIONS).expect("all of it is for the kernel");
    let roles: Vec<_> = object.maps.iter().map(|m| m.role).collect();
    for role in [Role::Flow(0), Role::Counters, Role::Devices, Role::Sockets, Role::Outcomes] {
        assert!(roles.contains(&role), "{role:?} is not among {roles:?}");
    }
    assert!(!roles.contains(&Role::Clock), "nothing asks for the time");
    let flows = &object.maps[roles.iter().position(|r| *r == Role::Flow(0)).unwrap_or(0)];
    assert_eq!((flows.kind, flows.key, flows.value, flows.entries), (MapKind::Hash, 40, 16, 100));
    let by_queue: Vec<_> = object.maps.iter().filter(|m| m.entries == OPTIONS.queues).map(|m| m.role).collect();
    assert_eq!(by_queue.len(), 2, "{by_queue:?}");
}

#[test]
fn large_sets_are_tries_of_exactly_their_addresses() {
    let ranges: Vec<(u128, u128)> =
        (0..8_u128).map(|n| (n << 100 | 3, n << 100 | 0x1_0005)).chain([(u128::MAX - 4, u128::MAX)]).collect();
    let mut b = Builder::default();
    b.stage("a set");
    // So many that the last of them share tries with the first.
    let sets: Vec<_> = (0..u128::from(SET_MAPS) + 2)
        .map(|n| {
            let mut own = ranges.clone();
            own.insert(1, (0x2_0000 + 2 * n, 0x2_0000 + 2 * n));
            own
        })
        .collect();
    let (hi, lo, to) = (b.meta(Meta::WireLen), b.meta(Meta::Queue), b.reg());
    // Each is asked twice, and is in the trie once.
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

/// The ranges of a set's prefixes.
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
fn what_is_not_for_the_kernel_is_refused_by_type() {
    let refused = |text: &str, options: &EmitOptions| emit(&program(text), options).expect_err(text);
    assert_eq!(refused("main = ip", &EmitOptions { link_type: 113, ..OPTIONS }), Refusal::LinkType(113));
    let why = refused("main = log_packet >-> ip", &OPTIONS);
    assert!(matches!(&why, Refusal::Nothing { stage, .. } if stage == "log_packet"), "{why:?}");
    assert!(why.to_string().contains("`log_packet` writes a log"), "{why}");
    let without = EmitOptions { metadata: Metadata::None, ..OPTIONS };
    assert_eq!(refused("main = inc 1", &without), Refusal::NoMetadata);
    assert!(emit(&program("main = ip >-> steer_flow"), &without).is_ok(), "a filter needs no record");
    assert!(matches!(emit(&Program::default(), &OPTIONS), Err(Refusal::Unfit(_))));
}

#[test]
fn what_fits_no_stack_is_cut_earlier() {
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
fn a_rule_with_nets_for_each_of_many_customers_is_for_the_kernel_as_a_whole() {
    let object = emit(&program(&customers(200)), &OPTIONS).expect("marks");
    assert_eq!(object.stages, 200);
    assert_eq!(object.maps.len(), usize::from(SET_MAPS) + 3, "tries, sockets, fates and what was seen");
}

/// A stage with nine nets for each customer.
fn customers(n: usize) -> String {
    let nets = |i| (0..9).map(|k| format!("10.{i}.{}.0/28", 2 * k)).collect::<Vec<_>>().join(", ");
    let stages: Vec<_> = (0..n).map(|i| format!("when (has_addr_in [{}]) (mark {})", nets(i), i + 1)).collect();
    format!("main = {}\n", stages.join(" >-> "))
}

#[test]
fn what_needs_more_maps_than_the_kernel_allows_is_cut_earlier() {
    let text: String = (0..64).map(|i| format!("m{i} = for_ms 5 (flow_map {i} key_5tuple)\n")).collect();
    let stages: Vec<_> = (0..64).map(|i| format!("incr_fstate m{i}")).collect();
    let ir = program(&format!("{text}main = {}\n", stages.join(" >-> ")));
    let object = emit(&ir, &OPTIONS).expect("the first of them");
    assert_eq!(object.maps.len(), MAPS_MAX);
    assert_eq!(object.stages, MAPS_MAX - 5, "but for counters, sockets, fates, what was seen, and the clock");
    let all_at_once = program(&format!("{text}main = when ip ({})\n", stages.join(" >-> ")));
    assert_eq!(emit(&all_at_once, &OPTIONS).map(|_| ()), Err(Refusal::Maps { need: 69 }));
}

#[test]
fn a_program_that_is_long_three_times_over_is_for_the_kernel_all_the_same() {
    let stages = vec!["add_fstate m 1"; 170].join(" >-> ");
    let ir = program(&format!("m = idle_after 60000 (flow_map 0 key_vlan)\nmain = ip >-> {stages}\n"));
    let object = emit(&ir, &OPTIONS).expect("all of it");
    assert_eq!(object.stages, ir.stages.len());
}

#[test]
fn room_that_the_kernel_did_not_write_says_nothing() {
    assert_eq!(KernelVerdict::read(&[0; METADATA_BYTES], 9), None);
    let mut bytes = [0; METADATA_BYTES];
    bytes[..4].copy_from_slice(&9_u32.to_ne_bytes());
    bytes[28..].copy_from_slice(&[2, 1, 0x4e, 0x47]);
    let handed = KernelVerdict::read(&bytes, 1).map(|h| (h.generation, h.stages, h.record.kind));
    assert_eq!(handed, Some((9, 1, VerdictKind::Steer)));
    bytes[METADATA_BYTES - COMPACT_BYTES..].fill(0);
    assert_eq!(KernelVerdict::read(&bytes, 9), None, "what says it was zeroed");
}

#[test]
fn of_a_generation_the_lower_half_is_enough() {
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
        let handed = KernelVerdict::read(&bytes, near).expect("the least");
        assert_eq!((handed.generation, handed.stages), (generation, 4), "{low:#x} beside {near:#x}");
        assert_eq!(handed.record, Execution::start(0));
    }
}

/// The record of what neither counts nor remembers can be made in user space as well.
#[test]
fn the_record_goes_along_where_something_else_was_done_too() {
    let least = EmitOptions { metadata: Metadata::Compact, ..OPTIONS };
    let goes_along = |text: &str| emit(&program(text), &least).map(|o| (o.metadata, o.is_evaluated_again));
    assert_eq!(goes_along("main = ip >-> steer_flow"), Ok((Metadata::Compact, true)));
    assert_eq!(goes_along("main = ip >-> inc 1 >-> steer_flow"), Ok((Metadata::Full, false)));
    let local = goes_along("main = when is_tcp steer_rss");
    assert_eq!(local, Ok((Metadata::Compact, true)), "what only user space knows is for the record alone");
    // If the kernel got beyond what it cannot do, it would count, and so would user space.
    let behind = goes_along("main = when is_tcp (steer_rss >-> inc 1)");
    assert_eq!(behind, Ok((Metadata::Full, false)));
    assert_eq!(goes_along("main = ip"), Ok((Metadata::Compact, false)), "every packet's record is the same");
    let hashes = |options: &EmitOptions| {
        emit(&program("main = ip >-> steer_p2p"), options).map(|o| format!("{:?}", o.code).contains("*="))
    };
    assert_eq!((hashes(&OPTIONS), hashes(&least)), (Ok(true), Ok(false)), "nobody asks the kernel for the hash");
}

#[test]
fn an_entry_is_read_as_it_was_written_and_goes_when_its_time_has_come() {
    let entry = MapValue { number: 5, stamp: 1000 };
    assert_eq!(MapValue::read(&entry.bytes()), entry);
    assert!(!entry.expired(Expiry::Idle(10), 1010) && entry.expired(Expiry::Idle(10), 1011));
    assert!(!entry.expired(Expiry::Never, u64::MAX));
}
