//! Tests that at most one recorder records an interface into a store, within a process and between processes.

use crate::common;

use common::{end, plan, sim, start, stop, until};
use netgrain_engine::{Capture, EngineError, Plan, SocketPlan};
use std::path::Path;
use store::Claim;
use store::claim::ClaimError;
use testkit::{ChildTest, TempDir};

/// The environment variable that names the store for a child process. The child process only records into this store.
const STORE: &str = "NETGRAIN_TEST_STORE";

fn endless(store: &Path) -> Plan {
    Plan { cpus: vec![0], ..plan(sim("200,rate=1kpps,truth"), store) }
}

/// The body of [`recorder_process`]; without the environment variable [`STORE`] this test does nothing.
#[test]
fn child_process_that_records() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let mut capture = start(&endless(Path::new(&store)));
    // The parent kills this process.
    let _ = capture.wait();
}

fn recorder_process(store: &Path) -> ChildTest {
    ChildTest::start(module_path!(), "child_process_that_records", STORE, store)
}

fn claim_error(plan: &Plan) -> String {
    match Capture::start(plan).err() {
        Some(e @ EngineError::Claim(ClaimError::Taken { .. })) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_recorder_is_rejected_with_the_process_of_the_first() {
    let dir = TempDir::new("a_second_recorder_is_rejected");
    let socket = SocketPlan {
        path: dir.join("s"),
        mode: 0o600,
        uid: None,
        gid: None,
        allow_lossless: false,
        forward: Vec::new(),
    };
    let plan = Plan { socket: Some(socket), ..endless(&dir.join("store")) };
    let capture = start(&plan);
    until("the recorder records", || capture.report().counts.stored > 100);
    let reported = claim_error(&plan);
    let pid = std::process::id();
    assert!(reported.contains(&format!("process {pid} ")) && !reported.contains('\n'), "{reported}");
    assert!(reported.starts_with(dir.join("store/sim").to_str().expect("a name")), "{reported}");
    let holder = Claim::holder(&dir.join("store/sim")).expect("the first recorder");
    assert_eq!((holder.pid, &holder.socket, &holder.cpus[..]), (pid, &Some(dir.join("s")), &[0][..]));
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_nanos() as u64;
    assert!(holder.since.nanos() <= age && age - holder.since.nanos() < 600_000_000_000, "{holder:?}");
    // A recorder of the same interface in another store is permitted.
    let other = Plan { packets: Some(10), ..endless(&dir.join("elsewhere")) };
    end(start(&other), &other);
    assert_eq!(stop(capture, &plan).report.counts.lost_total, 0);
    assert_eq!(Claim::holder(&dir.join("store/sim")), None);
    start(&Plan { packets: Some(10), ..plan }).wait().expect("the next recorder records");
}

#[test]
fn reading_the_claim_holder_never_blocks_the_start_of_a_recorder() {
    let dir = TempDir::new("reading_the_claim_holder");
    let plan = Plan { packets: Some(1), ..endless(&dir.join("store")) };
    let directory = dir.join("store/sim");
    // A killed recorder leaves its claim file behind, but the kernel has removed the lock on that file.
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join(store::claim::CLAIM), "pid 1\nsince 0\n").expect("a claim");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = Claim::holder(&directory);
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            });
        }
        for _ in 0..20 {
            let outcome = Capture::start(&plan).map(|mut c| c.wait());
            if outcome.is_err() {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            outcome.unwrap_or_else(|e| panic!("{e}")).expect("the end of the recording");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn the_claim_of_a_killed_process_can_be_taken_immediately() {
    let dir = TempDir::new("the_claim_of_a_killed_process");
    let store = dir.join("store");
    let directory = store.join("sim");
    let mut first = recorder_process(&store);
    until("the recorder records", || Claim::holder(&directory).is_some());
    let reported = claim_error(&endless(&store));
    assert!(reported.contains(&format!("process {} ", first.id())), "{reported}");
    first.kill();
    assert_eq!(Claim::holder(&directory), None);
    let plan = Plan { packets: Some(10), ..endless(&store) };
    let mut capture = start(&plan);
    capture.wait().expect("a recording");
    assert_eq!(capture.report().counts.stored, 10);
    drop(capture);
    let published = store.join("sim");
    assert!(common::walk(&published).iter().any(|p| p.extension().is_some_and(|e| e == "pcap")));
}
