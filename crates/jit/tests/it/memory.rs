//! The memory of machine code is freed. The test counts the executable mappings of the whole process.

use netgrain_jit::Executable;
use std::time::Duration;

#[test]
fn dropped_programs_free_their_machine_code() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc/self/maps of Linux");
        maps.lines().filter(|l| l.contains("r-xp")).count()
    };
    let native = || {
        let program = lang::compile("main = ip >-> when is_tcp (mark 42) >-> steer_flow").expect("a program").program;
        Executable::native(program, Duration::default).expect("this host runs native code")
    };
    drop(native().worker(0));
    let before = mapped();
    let kept: Vec<_> = (0..20).map(|_| native()).collect();
    // Adjacent mappings may be merged into one line, so the exact number is unknown.
    assert!(mapped() > before, "the kept programs have executable memory");
    assert!(kept.iter().all(|j| j.report().native && j.report().code_bytes > 0));
    drop(kept);
    for _ in 0..200 {
        drop(native().worker(0));
    }
    assert!(mapped() <= before, "{} executable mappings, {before} before", mapped());
}
