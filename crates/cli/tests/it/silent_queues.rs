//! Queues that do not take a program: whoever loads it with `netgrain group`, or asks for the books, is told which, and
//! the exit status says that something is wrong.
//!
//! A dispatcher that fails is a bug, so no engine can be asked for one. The engine here is the registry and the door of
//! a real one, whose second queue has a dispatcher that has ended before its stream.

use crate::common;

use common::{Said, arg, objects, run};
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
    _door: ControlServer,
}

impl Engine {
    fn start(dir: &Path) -> Self {
        let (mut tracks, mut threads, end) = (Vec::new(), Vec::new(), Arc::<AtomicBool>::default());
        for queue in 0..2 {
            let config = Config { name: "p0".into(), bytes: 16 << 20, queue, ..Config::default() };
            let mut producer = Producer::new(config).expect("memory");
            let (offer, orders) = (OfferedRing::of(&producer), Arc::<CommandQueue>::default());
            let dispatcher = Dispatcher::new(&offer, Arc::clone(&orders), true);
            tracks.push(RingHandle {
                source: IngressInterface { name: "p0".into(), number: 0 },
                queue,
                commands: orders,
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
            Arc::new(Registry::new(tracks, group_services::standalone_services(1), sys::cpu::effective_uid()));
        let socket = dir.join("engine.groups");
        let listener = sys::unix::Listener::bind(&socket, 0o600, None, None).expect("a socket");
        let door = ControlServer::open(listener, registry, "p0", AttachPolicy::default()).expect("a thread");
        Self { socket, end, threads, _door: door }
    }

    fn group(&self, verb: &str, more: &[&str]) -> Said {
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
fn a_queue_that_does_not_take_a_program_is_named_and_the_command_fails() {
    let dir = TempDir::new("unresponsive_queues");
    let engine = Engine::start(dir.path());
    let named =
        "netgrain: queue 1 of p0: its dispatcher ended before its stream, and nobody judges its packets any more";
    let states = |object: &serde_json::Value| {
        let of = |one: &serde_json::Value| json!([one["interface"], one["queue"], one["state"]]);
        object["unresponsive"].as_array().expect("a list").iter().map(of).collect::<Vec<_>>()
    };
    let failed = [json!(["p0", 1, "failed"])];

    let said = engine.group("create", &["web", "main = steer_flow"]);
    assert!(said.status == Some(1) && said.err.contains(named) && said.err.contains("group web is there"), "{said:?}");
    let said = engine.group("swap", &["web", "main = tcp >-> steer_flow"]);
    assert!(said.status == Some(1) && said.err.contains(named), "{said:?}");
    assert!(said.err.contains("generation 2 runs on the other queues"), "{said:?}");
    let said = engine.group("swap", &["web", "copy", "--json"]);
    let done = objects(&said.out).remove(0);
    assert_eq!((said.status, states(&done), &done["generation"]), (Some(1), failed.to_vec(), &json!(3)), "{said:?}");
    // The program is the group's, and its books add up.
    assert_eq!(engine.group("program", &["web"]).out, "copy\n");
    let said = engine.group("stats", &["web", "--json"]);
    let books = objects(&said.out).remove(0);
    assert_eq!((said.status, states(&books), &books["accounting_errors"]), (Some(1), failed.to_vec(), &json!([])));
    let said = engine.group("stats", &["web"]);
    assert!(said.status == Some(1) && said.err.contains(named), "{said:?}");

    // Where all queues of a group are there, nothing is wrong with it.
    let said = engine.group("create", &["one", "main = steer_flow", "--queues", "0"]);
    assert!(said.status == Some(0) && !said.err.contains("queue 1"), "{said:?}");
    let said = engine.group("swap", &["one", "copy"]);
    assert!(said.status == Some(0) && said.err.contains("generation 2 runs;"), "{said:?}");
    let said = engine.group("stats", &["one", "--json"]);
    assert_eq!((said.status, states(&objects(&said.out)[0])), (Some(0), vec![]), "{said:?}");
}
