//! Unresponsive queues: `netgrain group` names them in its messages and statistics, and its exit status is 1.
//!
//! A dispatcher fails only because of a bug, so a real engine has no failed dispatcher. The engine of this test
//! consists of the registry and the control server of a real engine; the dispatcher of its second queue has already
//! ended, while its stream continues.

use crate::common;

use common::{Output, arg, objects, run};
use group::{CommandQueue, ControlServer, Dispatcher, IngressInterface, Registry, RingHandle};
use ring::{AttachPolicy, Config, OfferedRing, Producer};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::TempDir;

struct Engine {
    socket: PathBuf,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _control: ControlServer,
}

impl Engine {
    fn start(dir: &Path) -> Self {
        let (mut rings, mut threads, end) = (Vec::new(), Vec::new(), Arc::<AtomicBool>::default());
        for queue in 0..2 {
            let config = Config { name: "p0".into(), bytes: 16 << 20, queue, ..Config::default() };
            let mut producer = Producer::new(config).expect("memory");
            let (offer, commands) = (OfferedRing::of(&producer), Arc::<CommandQueue>::default());
            let dispatcher = Dispatcher::new(&offer, Arc::clone(&commands), true);
            rings.push(RingHandle {
                source: IngressInterface { name: "p0".into(), number: 0 },
                queue,
                commands,
                offer,
            });
            let end = Arc::clone(&end);
            if queue == 0 {
                threads.push(std::thread::spawn(move || dispatcher.run()));
            }
            threads.push(std::thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    producer.service();
                    std::thread::sleep(Duration::from_millis(1));
                }
                while !producer.finish(base::Timestamp::from_secs_nanos(1_700_000_000, 0)) {
                    producer.service();
                }
            }));
        }
        let registry =
            Arc::new(Registry::new(rings, group_services::standalone_services(1), sys::cpu::effective_uid()));
        let socket = dir.join("engine.groups");
        let listener = sys::unix::Listener::bind(&socket, 0o600, None, None).expect("a socket");
        let control = ControlServer::open(listener, registry, "p0", AttachPolicy::default()).expect("a thread");
        Self { socket, end, threads, _control: control }
    }

    fn group(&self, verb: &str, more: &[&str]) -> Output {
        run(&[&["group", verb, "--socket", arg(&self.socket)], more].concat())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
    }
}

#[test]
fn an_unresponsive_queue_is_named_and_the_command_exits_1() {
    let dir = TempDir::new("unresponsive_queues");
    let engine = Engine::start(dir.path());
    let named = "netgrain: queue 1 of p0: its dispatcher ended before its stream, and no program evaluates its \
     packets any more";
    let states = |object: &serde_json::Value| {
        let of = |one: &serde_json::Value| json!([one["interface"], one["queue"], one["state"]]);
        object["unresponsive"].as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    let failed = [json!(["p0", 1, "failed"])];

    let output = engine.group("create", &["web", "main = steer_flow"]);
    assert!(
        output.status == Some(1) && output.err.contains(named) && output.err.contains("group web created"),
        "{output:?}"
    );
    let output = engine.group("swap", &["web", "main = tcp >-> steer_flow"]);
    assert!(output.status == Some(1) && output.err.contains(named), "{output:?}");
    assert!(output.err.contains("generation 2 runs on the other queues"), "{output:?}");
    let output = engine.group("swap", &["web", "copy", "--json"]);
    let done = objects(&output.out).remove(0);
    assert_eq!(
        (output.status, states(&done), &done["generation"]),
        (Some(1), failed.to_vec(), &json!(3)),
        "{output:?}"
    );
    // The group has the new program, and its accounting balances.
    assert_eq!(engine.group("program", &["web"]).out, "copy\n");
    let output = engine.group("stats", &["web", "--json"]);
    let stats = objects(&output.out).remove(0);
    assert_eq!((output.status, states(&stats), &stats["accounting_errors"]), (Some(1), failed.to_vec(), &json!([])));
    let output = engine.group("stats", &["web"]);
    assert!(output.status == Some(1) && output.err.contains(named), "{output:?}");

    // A group that does not use the unresponsive queue is healthy.
    let output = engine.group("create", &["one", "main = steer_flow", "--queues", "0"]);
    assert!(output.status == Some(0) && !output.err.contains("queue 1"), "{output:?}");
    let output = engine.group("swap", &["one", "copy"]);
    assert!(output.status == Some(0) && output.err.contains("generation 2 runs;"), "{output:?}");
    let output = engine.group("stats", &["one", "--json"]);
    assert_eq!((output.status, states(&objects(&output.out)[0])), (Some(0), vec![]), "{output:?}");
}
