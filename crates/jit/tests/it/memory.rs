//! What becomes of code. A test program of its own: it counts the pieces of executable memory of the whole process, and
//! other tests would make some meanwhile.

use netgrain_jit::Executable;
use std::time::Duration;

#[test]
fn a_program_that_is_dropped_leaves_no_code_behind() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("of Linux");
        maps.lines().filter(|l| l.contains("r-xp")).count()
    };
    let native = || {
        let program = lang::compile("main = ip >-> when is_tcp (mark 42) >-> steer_flow").expect("a program").program;
        Executable::native(program, Duration::default).expect("this host runs native code")
    };
    drop(native().worker(0));
    let before = mapped();
    let kept: Vec<_> = (0..20).map(|_| native()).collect();
    // Neighbours may be merged into one line, so only that there is more can be said.
    assert!(mapped() > before, "the code is somewhere");
    assert!(kept.iter().all(|j| j.report().native && j.report().code_bytes > 0));
    drop(kept);
    for _ in 0..200 {
        drop(native().worker(0));
    }
    assert!(mapped() <= before, "{} pieces of code, {before} before", mapped());
}
