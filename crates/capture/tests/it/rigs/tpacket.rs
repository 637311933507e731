//! TPACKET_V3 on one end of a veth pair; frames are sent on the other end.

use crate::common::{Memory, config, open_one};
use netgrain_capture::tpacket::Tpacket;
use testkit::{Port, RawSender, Sandbox};

pub struct Rig {
    sender: RawSender,
    near: Port,
    _sandbox: Sandbox,
}

impl crate::conformance::Rig for Rig {
    type Source = Tpacket;
    const LIVE: bool = true;

    fn new(test: &str) -> Option<Self> {
        let sandbox = Sandbox::new(test)?;
        let (near, far) = sandbox.veth("near", "far");
        Some(Self { sender: RawSender::new(&far), near, _sandbox: sandbox })
    }

    fn start(&mut self, frames: &[Vec<u8>], memory: Memory) -> (Tpacket, Vec<Vec<u8>>) {
        let source = open_one(&config(&self.near, memory));
        self.sender.send(frames);
        (source, frames.to_vec())
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        self.sender.send(frames);
    }
}
