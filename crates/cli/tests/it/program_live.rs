//! A program at a port, by the binary itself, which keeps no more privileges than it has to: the kernel loads the
//! program, and loads another on SIGHUP.

use crate::common;
use crate::workspace;

use common::{signal, until};
use testkit::RawSender;
use wire::build::Frame;
use workspace::Ground;

fn frames(port: u16) -> Vec<Vec<u8>> {
    let frame = |n: u8| {
        let mut bytes = vec![0; 60];
        Frame::udp4([10, 0, 0, n], 1000, [10, 0, 1, 1], port).fill(&mut bytes);
        bytes
    };
    (0..20).map(frame).collect()
}

#[test]
fn a_program_at_a_port_runs_in_the_kernel_and_is_exchanged_with_few_privileges() {
    let test = "a_program_at_a_port_runs_in_the_kernel_and_is_exchanged_with_few_privileges";
    let Some(ground) = Ground::new(test) else { return };
    // Offsets that depend on the packet, which is what the kernel asks for a privilege of its own for.
    ground.yes("echo 'main = udp >-> when (has_port 9) drop >-> steer_flow' > port.ng");
    let mut engine =
        ground.spawn("exec netgrain record -i eth1 --dedicated --store /data/store --program port.ng >said 2>&1");
    let said = || ground.run("cat said").out;
    until("it captures", || said().contains("AF_XDP eth1") || engine.0.try_wait().is_ok_and(|ended| ended.is_some()));
    RawSender::new(&ground.feed).send(&frames(9));
    RawSender::new(&ground.feed).send(&frames(53));
    ground.yes("echo 'main = udp >-> when (has_port 53) drop >-> steer_flow' > port.ng");
    signal(&engine.0, "HUP");
    until("it is exchanged", || said().contains("generation 2") || said().contains("cannot"));
    assert!(engine.0.try_wait().is_ok_and(|ended| ended.is_none()), "{}", said());
    signal(&engine.0, "INT");
    engine.0.wait().expect("it ends");
    assert!(said().contains("20 in the kernel, 0 in user space"), "{}", said());
}
