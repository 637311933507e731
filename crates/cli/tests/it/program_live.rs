//! The binary, which keeps few privileges, loads the program of an interface into the kernel, and loads another one on
//! SIGHUP.

use crate::common;
use crate::workspace;

use common::{signal, until};
use testkit::RawSender;
use wire::build::Frame;
use workspace::Testbed;

fn frames(port: u16) -> Vec<Vec<u8>> {
    let frame = |n: u8| {
        let mut bytes = vec![0; 60];
        Frame::udp4([10, 0, 0, n], 1000, [10, 0, 1, 1], port).fill(&mut bytes);
        bytes
    };
    (0..20).map(frame).collect()
}

#[test]
fn a_kernel_program_is_loaded_and_swapped_with_few_privileges() {
    let test = "a_kernel_program_is_loaded_and_swapped_with_few_privileges";
    let Some(testbed) = Testbed::new(test) else { return };
    // The packet program reads at offsets that depend on the packet; the kernel loads such a program only with
    // CAP_PERFMON.
    testbed.run_ok("echo 'main = udp >-> when (has_port 9) drop >-> steer_flow' > port.ng");
    let mut engine =
        testbed.spawn("exec netgrain record -i eth1 --dedicated --store /data/store --program port.ng >log 2>&1");
    let log = || testbed.run("cat log").out;
    until("the engine captures", || {
        log().contains("AF_XDP eth1") || engine.0.try_wait().is_ok_and(|ended| ended.is_some())
    });
    RawSender::new(&testbed.feed).send(&frames(9));
    RawSender::new(&testbed.feed).send(&frames(53));
    testbed.run_ok("echo 'main = udp >-> when (has_port 53) drop >-> steer_flow' > port.ng");
    signal(&engine.0, "HUP");
    until("the program is swapped", || log().contains("generation 2") || log().contains("cannot"));
    assert!(engine.0.try_wait().is_ok_and(|ended| ended.is_none()), "{}", log());
    signal(&engine.0, "INT");
    engine.0.wait().expect("the process ends");
    assert!(log().contains("20 in the kernel, 0 in user space"), "{}", log());
}
