//! AF_XDP on a veth pair: frames are sent on one end and captured at the other.

use crate::common::Memory;
use netgrain_capture::afxdp::{self, AfXdp, AfXdpConfig};
use std::time::{Duration, Instant};
use testkit::{Port, RawSender, Sandbox};

pub struct Rig {
    wire: RawSender,
    port: Port,
    _sandbox: Sandbox,
}

impl crate::conformance::Rig for Rig {
    type Source = AfXdp;
    const LIVE: bool = true;

    fn new(test: &str) -> Option<Self> {
        const OPERATIONAL: u8 = 6;
        let sandbox = Sandbox::new(test)?;
        let (a, b) = sandbox.veth("a", "b");
        // Before the kernel has detected the carrier, it drops frames that are sent on an interface.
        let (mut netlink, until) = (sandbox.netlink(), Instant::now() + Duration::from_secs(120));
        while ![&a, &b].iter().all(|p| netlink.link_by_index(p.index).expect("port").operstate == OPERATIONAL) {
            assert!(Instant::now() < until, "the interfaces come up");
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(Self { wire: RawSender::new(&a), port: b, _sandbox: sandbox })
    }

    fn start(&mut self, frames: &[Vec<u8>], memory: Memory) -> (Self::Source, Vec<Vec<u8>>) {
        let config = AfXdpConfig::new(&self.port.name);
        let config = match memory {
            Memory::Usual => AfXdpConfig { receive_ring: 16_384, chunks: 16_384, ..config },
            Memory::Tiny => AfXdpConfig { receive_ring: 64, chunks: 128, ..config },
        };
        let mut sources = afxdp::open(&config).unwrap_or_else(|e| panic!("{e}"));
        let source = sources.pop().expect("one queue, one source");
        self.send(frames);
        (source, frames.to_vec())
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        self.wire.send(frames);
    }
}
