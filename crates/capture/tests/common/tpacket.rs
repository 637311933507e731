//! TPACKET_V3 on one end of a veth pair; frames come from the other.

use super::Memory;
use netgrain_capture::tpacket::{self, Tpacket, TpacketConfig};
use testkit::{Port, RawSender, Sandbox};

pub struct Rig {
    sender: RawSender,
    near: Port,
    _sandbox: Sandbox,
}

/// A configuration with as much memory as asked for.
pub fn config(port: &Port, memory: Memory) -> TpacketConfig {
    let config = TpacketConfig::new(&port.name);
    match memory {
        Memory::Usual => TpacketConfig { blocks: 16, ..config },
        Memory::Tiny => TpacketConfig { block_bytes: 128 << 10, blocks: 2, ..config },
    }
}

/// The only source of a configuration with one thread.
pub fn open_one(config: &TpacketConfig) -> Tpacket {
    let mut sources = tpacket::open(config).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sources.len(), 1);
    sources.remove(0)
}

impl super::Rig for Rig {
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
