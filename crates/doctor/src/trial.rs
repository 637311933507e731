//! A trial capture: the thread creates a private veth pair in a new network namespace, sends test frames into one end,
//! and captures them with AF_XDP at the other end. The trial does not change the network of the host. The kernel
//! removes the namespace when the thread ends.

use crate::checks;
use crate::finding::{Finding, State, Subject};
use capture::afxdp::{self, AfXdpConfig};
use capture::{Polled, Source};
use std::io;
use std::time::{Duration, Instant};
use sys::netlink::{Netlink, Veth};
use sys::netns::Namespace;
use sys::packet::PacketSocket;

/// Number of frames sent.
const FRAMES: u32 = 1000;
/// The longest wait for the test frames, which need milliseconds. A frame that has not arrived after this time counts
/// as lost.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The value of `ifOperStatus` for an operational interface (RFC 2863: up).
const OPERATIONAL: u8 = 6;

/// Runs the trial.
pub fn run() -> Finding {
    let s = Subject::Machine;
    match std::thread::Builder::new().name("trial".into()).spawn(attempt).map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok((FRAMES, how)))) => {
            Finding::good(&checks::TRIAL, &s, format!("all {FRAMES} frames were captured; {how}"))
        }
        Ok(Ok(Ok((captured, how)))) => {
            Finding::new(&checks::TRIAL, &s, State::Bad, format!("{captured} of {FRAMES} frames were captured; {how}"))
                .fix("record with --source-kind tpacket, and report this with the version of the kernel")
        }
        Ok(Ok(Err(refusal))) => refusal,
        Ok(Err(_)) | Err(_) => Finding::new(&checks::TRIAL, &s, State::Unknown, "the trial thread could not run"),
    }
}

fn attempt() -> Result<(u32, String), Finding> {
    let s = Subject::Machine;
    let cannot = |e: io::Error| {
        Finding::new(&checks::TRIAL, &s, State::Unknown, format!("cannot create a private pair of interfaces: {e}"))
            .fix("run as root: the trial needs CAP_SYS_ADMIN and CAP_NET_ADMIN")
    };
    let (near, far) = pair().map_err(cannot)?;
    let mut config = AfXdpConfig::new("ng-try1");
    (config.receive_ring, config.chunks) = (2048, 4096);
    let refused = |e: capture::SourceError| {
        Finding::new(&checks::TRIAL, &s, State::Bad, e.to_string()).fix("see the error; TPACKET works without AF_XDP")
    };
    let mut sources = afxdp::open(&config).map_err(refused)?;
    wait_up(near, far).map_err(cannot)?;
    let sender = PacketSocket::open().and_then(|p| p.bind(near, None).map(|()| p)).map_err(cannot)?;
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(frame).collect();
    sender.send_all(&frames).map_err(cannot)?;
    let (mut captured, mut how) = (0, String::new());
    let until = Instant::now() + TIMEOUT;
    while captured < FRAMES && Instant::now() < until {
        for source in &mut sources {
            how.clone_from(&source.info().description);
            // Only test frames are counted, each once and in the order in which they were sent.
            let take = |f: &capture::Frame<'_>| captured += u32::from(f.bytes == frame(captured).as_slice());
            match source.poll(256, Duration::from_millis(10), take).map_err(refused)? {
                Polled::End => return Ok((captured, how)),
                Polled::Frames(_) | Polled::Idle => {}
            }
        }
    }
    Ok((captured, how))
}

/// Creates a network namespace with a veth pair in it. The calling thread enters the namespace and stays in it.
fn pair() -> io::Result<(u32, u32)> {
    Namespace::unshare()?;
    for file in ["all/disable_ipv6", "default/disable_ipv6"] {
        // If the kernel has no IPv6, the write fails because the file does not exist; then no IPv6 frames are sent
        // either.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{file}"), "1");
    }
    let mut netlink = Netlink::route()?;
    netlink.add_veth(&Veth { name: "ng-try0", peer: "ng-try1", rx_queues: 1, tx_queues: 1, mtu: 1500 })?;
    let mut both = [0; 2];
    for (index, name) in both.iter_mut().zip(["ng-try0", "ng-try1"]) {
        *index = netlink.link(name)?.index;
        netlink.set_no_arp(*index, true)?;
        netlink.set_up(*index, true)?;
    }
    Ok((both[0], both[1]))
}

fn wait_up(near: u32, far: u32) -> io::Result<()> {
    let mut netlink = Netlink::route()?;
    let until = Instant::now() + TIMEOUT;
    while ![near, far].iter().all(|i| netlink.link_by_index(*i).is_ok_and(|l| l.operstate == OPERATIONAL)) {
        if Instant::now() > until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the two interfaces do not come up"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Returns the test frame with number `n`. The frame has an experimental EtherType (IEEE 802a) and contains `n`.
fn frame(n: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&n.to_be_bytes());
    bytes
}
