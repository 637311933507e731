//! Tests that the memory of machine code is freed. The test counts the executable mappings of the complete process.

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
    // The kernel may merge adjacent mappings into one line, so the test does not expect an exact number.
    assert!(mapped() > before, "20 loaded programs have executable memory");
    assert!(kept.iter().all(|j| j.report().native && j.report().code_bytes > 0));
    drop(kept);
    for _ in 0..200 {
        drop(native().worker(0));
    }
    assert!(mapped() <= before, "{} executable mappings, {before} before", mapped());
}
