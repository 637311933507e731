//! Tests of programs, maps and links in the kernel. If a test cannot run on this host, it reports that it is skipped.

use base::Prng;
use netgrain_bpf::{
    Alu, Asm, AttachError, AttachMode, Code, Condition, Frames, Helper, Link, Map, MapKind, PerCpuMap, Program, Reg,
    Size, XdpAction, XdpMode,
};
use std::collections::HashMap;
use std::io;
use testkit::Sandbox;

fn code(write: impl FnOnce(&mut Asm)) -> Code {
    let mut asm = Asm::new();
    write(&mut asm);
    asm.finish().expect("every label is placed")
}

/// Loads the program. If this process may not load programs, reports that `test` is skipped and returns `None`.
fn load(test: &str, code: &Code) -> Option<Program> {
    match Program::load("test", code, Frames::Linear) {
        Ok(program) => Some(program),
        Err(refusal) if refusal.error.kind() == io::ErrorKind::PermissionDenied && refusal.log.is_empty() => {
            testkit::skip(test, &format!("{refusal}"));
            None
        }
        Err(refusal) => panic!("{refusal}\n{code:?}"),
    }
}

fn always(verdict: XdpAction) -> Code {
    code(|asm| {
        asm.mov(Reg::R0, verdict.number());
        asm.exit();
    })
}

#[test]
fn a_refused_program_returns_the_verifier_log() {
    let test = "a_refused_program_returns_the_verifier_log";
    if load(test, &always(XdpAction::Pass)).is_none() {
        return;
    }
    let past_the_end = code(|asm| {
        asm.load(Size::W, Reg::R2, Reg::R1, 0);
        asm.load(Size::B, Reg::R0, Reg::R2, 0);
        asm.exit();
    });
    let refusal = Program::load("test", &past_the_end, Frames::Linear).expect_err("no check against data_end");
    assert!(refusal.log.contains("invalid access to packet"), "{refusal}");
    assert!(refusal.to_string().starts_with("the kernel refused the program"), "{refusal}");
}

#[test]
fn a_test_run_rejects_a_frame_below_14_bytes() {
    let Some(program) = load("a_test_run_rejects_a_frame_below_14_bytes", &always(XdpAction::Pass)) else { return };
    let error = program.run(&[0; 13], &mut [0; 64], 0, 0).expect_err("13 bytes");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// The test program exchanges the first bytes of the source and destination MAC addresses in frames with one ethertype,
/// and passes other frames unchanged.
#[test]
fn a_program_reads_writes_and_decides() {
    let swap = code(|asm| {
        let pass = asm.label();
        asm.load(Size::W, Reg::R6, Reg::R1, 0);
        asm.load(Size::W, Reg::R7, Reg::R1, 4);
        asm.mov_reg(Reg::R2, Reg::R6);
        asm.alu(Alu::Add, Reg::R2, 14);
        asm.jump_if_reg(Condition::Gt, Reg::R2, Reg::R7, pass);
        asm.load(Size::H, Reg::R3, Reg::R6, 12);
        asm.big_endian(Reg::R3, 16);
        asm.jump_if(Condition::Ne, Reg::R3, 0x88b5, pass);
        asm.load(Size::H, Reg::R4, Reg::R6, 0);
        asm.load(Size::H, Reg::R5, Reg::R6, 6);
        asm.store(Size::H, Reg::R6, 0, Reg::R5);
        asm.store(Size::H, Reg::R6, 6, Reg::R4);
        asm.mov(Reg::R0, XdpAction::Tx.number());
        asm.exit();
        asm.place(pass);
        asm.mov(Reg::R0, XdpAction::Pass.number());
        asm.exit();
    });
    let Some(program) = load("a_program_reads_writes_and_decides", &swap) else { return };
    let mut frame = [0u8; 60];
    frame[..14].copy_from_slice(&[1, 2, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0, 0x88, 0xb5]);
    let mut out = [0; 64];
    let run = program.run(&frame, &mut out, 0, 0).expect("run");
    assert_eq!((run.verdict, run.bytes_out), (XdpAction::Tx as u32, 60));
    assert_eq!(out[..14], [7, 8, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x88, 0xb5]);
    frame[13] = 0;
    assert_eq!(program.run(&frame, &mut out, 0, 0).expect("run").verdict, XdpAction::Pass as u32);
    assert_eq!(out[..60], frame);
}

/// The test evaluates random arithmetic and comparisons both in the kernel and in Rust, and compares the results.
#[test]
fn arithmetic_and_jumps_agree_with_rust() {
    let test = "arithmetic_and_jumps_agree_with_rust";
    type Op = (Alu, fn(u64, u64) -> u64);
    const OPS: [Op; 10] = [
        (Alu::Add, u64::wrapping_add),
        (Alu::Sub, u64::wrapping_sub),
        (Alu::Mul, u64::wrapping_mul),
        (Alu::Div, |a, b| a.checked_div(b).unwrap_or(0)),
        (Alu::Mod, |a, b| a.checked_rem(b).unwrap_or(a)),
        (Alu::And, |a, b| a & b),
        (Alu::Or, |a, b| a | b),
        (Alu::Xor, |a, b| a ^ b),
        (Alu::Shl, |a, b| a << (b & 63)),
        (Alu::Sar, |a, b| ((a as i64) >> (b & 63)) as u64),
    ];
    type Test = (Condition, fn(u64, u64) -> bool);
    const TESTS: [Test; 6] = [
        (Condition::Eq, |a, b| a == b),
        (Condition::Gt, |a, b| a > b),
        (Condition::Le, |a, b| a <= b),
        (Condition::Set, |a, b| a & b != 0),
        (Condition::Slt, |a, b| (a as i64) < b as i64),
        (Condition::Sge, |a, b| a as i64 >= b as i64),
    ];
    let mut random = Prng::new(testkit::seed(test));
    for _ in 0..100 {
        let mut value = || match random.below(4) {
            0 => random.below(3),
            1 => u64::MAX - random.below(3),
            2 => random.below(1 << 32),
            _ => random.next_u64(),
        };
        let (a, b, c) = (value(), value(), value());
        let (op, model) = OPS[random.below(OPS.len() as u64) as usize];
        let (condition, holds) = TESTS[random.below(TESTS.len() as u64) as usize];
        let program = code(|asm| {
            let no = asm.label();
            // The values are loaded from memory, so the verifier cannot compute the result of the jump in advance.
            for (slot, value) in [(-8, a), (-16, b), (-24, c)] {
                asm.wide(Reg::R1, value);
                asm.store(Size::Dw, Reg::R10, slot, Reg::R1);
            }
            asm.call(Helper::KtimeGetNs);
            asm.load(Size::Dw, Reg::R1, Reg::R10, -8);
            asm.load(Size::Dw, Reg::R2, Reg::R10, -16);
            asm.load(Size::Dw, Reg::R3, Reg::R10, -24);
            // The verifier rejects shifts by a constant above 63, so the number of bits is reduced modulo 64.
            if matches!(op, Alu::Shl | Alu::Sar) {
                asm.alu(Alu::And, Reg::R2, 63);
            }
            asm.alu_reg(op, Reg::R1, Reg::R2);
            asm.jump_if_reg(condition, Reg::R1, Reg::R3, no);
            // The 64-bit result is folded to 32 bits, because the return value of an XDP program has 32 bits.
            asm.mov_reg(Reg::R0, Reg::R1);
            asm.alu(Alu::Shr, Reg::R0, 32);
            asm.alu_reg(Alu::Xor, Reg::R0, Reg::R1);
            asm.exit();
            asm.place(no);
            asm.mov(Reg::R0, 77);
            asm.exit();
        });
        let Some(loaded) = load(test, &program) else { return };
        let result = model(a, b);
        let expected = if holds(result, c) { 77 } else { (result >> 32 ^ result) as u32 };
        let got = loaded.run(&[0; 60], &mut [0; 64], 0, 0).expect("run").verdict;
        assert_eq!(got, expected, "{a:#x} {op:?} {b:#x}, {condition:?} {c:#x}\n{program:?}");
    }
}

#[test]
fn a_kernel_map_agrees_with_a_hash_map_on_a_random_walk() {
    let test = "a_kernel_map_agrees_with_a_hash_map_on_a_random_walk";
    if load(test, &always(XdpAction::Pass)).is_none() {
        return;
    }
    const CAPACITY: u32 = 16;
    let map = Map::<u32, [u64; 2]>::create(MapKind::Hash, "walk", CAPACITY).expect("map");
    let mut model = HashMap::new();
    let mut random = Prng::new(testkit::seed(test));
    for step in 0..2000 {
        let (key, value) = (random.below(24) as u32, [random.next_u64(), step]);
        match random.below(3) {
            0 => assert_eq!(map.get(key).expect("get"), model.get(&key).copied()),
            1 => assert_eq!(map.remove(key).expect("remove"), model.remove(&key).is_some()),
            _ => match map.set(key, value) {
                Ok(()) => drop(model.insert(key, value)),
                Err(e) => {
                    assert_eq!((e.raw_os_error(), model.len()), (Some(7), CAPACITY as usize), "E2BIG when full");
                    assert!(!model.contains_key(&key));
                }
            },
        }
    }
}

#[test]
fn per_cpu_counters_add_up() {
    let test = "per_cpu_counters_add_up";
    if load(test, &always(XdpAction::Pass)).is_none() {
        return;
    }
    let counters = PerCpuMap::<u64>::create("counts", 2).expect("map");
    let count = code(|asm| {
        let none = asm.label();
        asm.store_imm(Size::W, Reg::R10, -4, 1);
        asm.map(Reg::R1, &counters);
        asm.mov_reg(Reg::R2, Reg::R10);
        asm.alu(Alu::Add, Reg::R2, -4);
        asm.call(Helper::MapLookupElem);
        asm.jump_if(Condition::Eq, Reg::R0, 0, none);
        asm.mov(Reg::R1, 3);
        asm.atomic_add(Size::Dw, Reg::R0, 0, Reg::R1);
        asm.place(none);
        asm.mov(Reg::R0, XdpAction::Drop.number());
        asm.exit();
    });
    let Some(program) = load(test, &count) else { return };
    for _ in 0..10 {
        program.run(&[0; 60], &mut [0; 64], 0, 0).expect("run");
    }
    let sum = |index| counters.get(index).expect("get").map(|all| all.iter().sum::<u64>());
    assert_eq!((sum(0), sum(1), sum(2)), (Some(0), Some(30), None));
}

#[test]
fn a_link_is_exclusive_and_replaceable_and_ends_with_its_interface() {
    let test = "a_link_is_exclusive_and_replaceable_and_ends_with_its_interface";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, _) = sandbox.veth("a", "b");
    let Some(first) = load(test, &always(XdpAction::Pass)) else { return };
    let first_id = first.info().expect("info").id;
    let mut link = Link::attach(first, a.index, AttachMode::Best).expect("attach");
    assert_eq!(link.mode(), XdpMode::Native);
    let info = link.info().expect("info");
    assert_eq!((info.prog_id, info.ifindex), (first_id, a.index));

    let second = load(test, &always(XdpAction::Pass)).expect("loads");
    match Link::attach(second, a.index, AttachMode::Best) {
        Err(AttachError::Busy { program, .. }) => assert_eq!(program, Some(first_id)),
        other => panic!("{other:?}"),
    }

    let third = load(test, &always(XdpAction::Drop)).expect("loads");
    let third_id = third.info().expect("info").id;
    link.replace(third).expect("replace");
    assert_eq!(link.info().expect("info").prog_id, third_id);

    sandbox.netlink().delete_link(a.index).expect("delete");
    assert_eq!(link.info().expect("info").ifindex, 0);
    let fourth = load(test, &always(XdpAction::Pass)).expect("loads");
    assert_eq!(link.replace(fourth).expect_err("the interface is gone").raw_os_error(), Some(67), "ENOLINK");
    assert_eq!(link.program().info().expect("info").id, third_id, "the old program stays");
}

#[test]
fn a_dropped_link_detaches_although_another_descriptor_is_open() {
    let test = "a_dropped_link_detaches_although_another_descriptor_is_open";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let (a, _) = sandbox.veth("a", "b");
    let Some(first) = load(test, &always(XdpAction::Pass)) else { return };
    let link = Link::attach(first, a.index, AttachMode::Best).expect("attach");
    let copy = sys::bpf::link_by_id(link.info().expect("info").id).expect("a second descriptor");
    drop(link);
    let second = load(test, &always(XdpAction::Pass)).expect("loads");
    Link::attach(second, a.index, AttachMode::Best).expect("the interface is free");
    drop(copy);
}

#[test]
fn a_mode_that_the_interface_does_not_support_is_refused() {
    let test = "a_mode_that_the_interface_does_not_support_is_refused";
    let Some(_sandbox) = Sandbox::new(test) else { return };
    const LOOPBACK: u32 = 1;
    let Some(program) = load(test, &always(XdpAction::Pass)) else { return };
    match Link::attach(program, LOOPBACK, AttachMode::Only(XdpMode::Native)) {
        Err(e @ AttachError::Refused { mode: XdpMode::Native, .. }) => {
            assert!(e.to_string().starts_with("the driver refuses the program in native mode"), "{e}");
        }
        other => panic!("{other:?}"),
    }
    let program = load(test, &always(XdpAction::Pass)).expect("loads");
    let link = Link::attach(program, LOOPBACK, AttachMode::Best).expect("every interface supports generic mode");
    assert_eq!(link.mode(), XdpMode::Generic);
}
