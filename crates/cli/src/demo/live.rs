//! The demo with root privileges, in a new network namespace. A child process, `netgrain gen`, sends the background
//! traffic and a thread sends the scan, both into one end of a veth pair. The pipeline captures at the other end. The
//! namespace belongs to this process and its children only, so the kernel removes it when they end, even if they are
//! killed.

use super::incident::Scan;
use super::queries::LiveQuery;
use super::{DemoArgs, DemoResult, begin, watch};
use crate::outcome::Failure;
use base::units::Rate;
use capture::auto::SourceKind;
use engine::{EngineError, InterfacePlan, Sent, SourcePlan};
use r#gen::Spec;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::netlink::Netlink;
use sys::packet::PacketSocket;

/// The names of the two ends of the veth pair.
const FROM: &str = "ng-demo0";
const TO: &str = "ng-demo1";

/// The maximum length of a frame in bytes, without its Ethernet header.
const MTU: u32 = 1500;

/// The longest wait for remaining frames after the end of both senders. The wait ends when the capture has counted all
/// sent frames. It lasts for the full time only if frames were lost on the way to the interface, or if the machine is
/// busy.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);

/// The number of scan frames that one system call sends.
const BATCH: u64 = 64;

/// Enters a new network namespace; returns false if this process may not create one.
pub fn enter(as_json: bool) -> bool {
    match engine::private_pair(FROM, TO, MTU) {
        Ok(()) => true,
        Err(e) => {
            if !as_json {
                sys::say!(
                    "netgrain: no private network namespace for the demo ({e}); simulating the traffic instead (run \
                     as root to capture real frames)"
                );
            }
            false
        }
    }
}

/// Runs the capture and the traffic until the end of the traffic or a signal.
pub fn run(
    args: &DemoArgs,
    spec: &Spec,
    scan: Scan,
    store: &Path,
    live_query: &mut LiveQuery,
    stop: &Arc<AtomicBool>,
) -> Result<DemoResult, Failure> {
    let cpus = sys::cpu::allowed();
    let last: Vec<usize> = cpus.last().copied().into_iter().collect();
    let start = |kind| begin(SourcePlan::Interface(InterfacePlan::new(TO, kind)), store, &last);
    let mut capture = match start(SourceKind::AfXdp) {
        Err(EngineError::Source(e)) => {
            sys::say!("netgrain: AF_XDP is not available ({e}); using TPACKET");
            start(SourceKind::Tpacket)?
        }
        other => other?,
    };
    if !args.json {
        for source in capture.sources() {
            sys::say!("netgrain: {source}");
        }
    }
    let mut generator = Generator::start(args, spec, cpus.first().copied())?;
    let scanner = scanner(scan, Arc::clone(stop))?;
    watch(args, &capture, live_query, || {
        Ok(!stop.load(Ordering::Relaxed) && (!generator.ended()? || !scanner.is_finished()))
    })?;
    let sent = generator.finish()?;
    let scanned = match scanner.join() {
        Ok(scanned) => scanned.map_err(|e| Failure::Said(format!("{FROM}: the scan cannot be sent: {e}")))?,
        Err(_) => return Err(Failure::Said("the scan thread panicked".into())),
    };
    let until = Instant::now() + ARRIVAL_MAX;
    while Instant::now() < until && capture.report().counts.offered < sent.sent + scanned {
        std::thread::sleep(Duration::from_millis(10));
    }
    capture.stop();
    capture.wait()?;
    Ok(DemoResult { report: capture.report(), sent, scanned })
}

/// Starts sending the scan; the thread returns the number of sent frames.
fn scanner(scan: Scan, stop: Arc<AtomicBool>) -> Result<JoinHandle<io::Result<u64>>, Failure> {
    let work = move || {
        let socket = PacketSocket::open()?;
        socket.bind(Netlink::route()?.link(FROM)?.index, None)?;
        let (begun, mut sent) = (Instant::now(), 0);
        while sent < scan.total() && !stop.load(Ordering::Relaxed) {
            let due = scan.due(begun.elapsed()).min(sent + BATCH);
            if due == sent {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let frames: Vec<_> = (sent..due).map(Scan::frame).collect();
            socket.send_all(&frames)?;
            sent = due;
        }
        Ok(sent)
    };
    std::thread::Builder::new()
        .name("scan".into())
        .spawn(work)
        .map_err(|e| Failure::Said(format!("cannot start the scan thread: {e}")))
}

/// `netgrain gen`, a child process in the network namespace of the demo.
struct Generator(Child);

impl Generator {
    fn start(args: &DemoArgs, spec: &Spec, cpu: Option<usize>) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::say)?;
        let mut command = Command::new(program);
        command.args(["gen", "-i", FROM, &args.traffic, "--json"]);
        command.args(["--duration", &format!("{}ns", spec.duration.unwrap_or_default().as_nanos())]);
        match args.rate {
            Rate::Flat => {}
            Rate::Packets(r) => {
                command.args(["--rate", &format!("{r}pps")]);
            }
            Rate::Bits(r) => {
                command.args(["--rate", &format!("{r}bit")]);
            }
        }
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command.stdout(Stdio::piped());
        Ok(Self(command.spawn().map_err(|e| Failure::Said(format!("cannot start the generator: {e}")))?))
    }

    fn ended(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait().map_err(Failure::say)?.is_some())
    }

    fn finish(mut self) -> Result<Sent, Failure> {
        let _ = self.0.wait();
        let last = self.0.stdout.take().and_then(|out| BufReader::new(out).lines().map_while(Result::ok).last());
        last.and_then(|line| serde_json::from_str(&line).ok())
            .ok_or_else(|| Failure::Said("the generator ended without a report; see its message above".into()))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // After an error of the demo the generator still runs and is killed here; after a regular end of the demo it
        // has exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
