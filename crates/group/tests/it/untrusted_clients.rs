//! What those whom the engine merely lets in may take of it, see of it and do with it.

use crate::support;

use base::Prng;
use netgrain_group::{ClientIdentity, DispatcherState, Limits, Policy, Request, Response};
use std::time::Duration;
use support::{Engine, until};

const GUEST: ClientIdentity = ClientIdentity { uid: 70_001, pid: 7, connection: 9001 };
const OTHER: ClientIdentity = ClientIdentity { uid: 70_002, pid: 8, connection: 9002 };
const ROOT: ClientIdentity = ClientIdentity { uid: 0, pid: 1, connection: 9003 };

fn create(group: &str, program: &str, policy: Policy) -> Request {
    let program = Some(program.to_owned());
    Request::Create { group: group.into(), program, policy, fold: false, ports: None, queues: None, ephemeral: false }
}

fn join(group: &str) -> Request {
    let (group, name) = (group.to_owned(), String::new());
    Request::Join { group, classes: Vec::new(), weight: 1, filter: None, descs: 1 << 16, name }
}

fn attach(group: &str, port: &str) -> Request {
    let (group, port) = (group.to_owned(), Some(port.to_owned()));
    let classes = Vec::new();
    Request::Attach { group, port, file: None, max_bytes: 0, classes, weight: 1, filter: None }
}

/// A group that has its place on all queues, also where nobody waits for long.
fn everywhere(engine: &Engine, group: &str, program: &str) {
    let registry = &engine.registry;
    until("all queues have it", || {
        let loaded = registry.create(ROOT, &create(group, program, Policy::Shared)).expect("sound");
        if !loaded.unresponsive.is_empty() {
            registry.delete(ROOT, group).expect("it is there");
        }
        loaded.unresponsive.is_empty()
    });
}

/// Bytes of the smallest branch.
const BRANCH: u64 = 2 << 20;

#[test]
fn a_guest_cannot_take_what_others_and_the_recorder_need_and_gets_it_back_when_it_leaves() {
    let limits = Limits { groups: 2, branches: 6, bytes: 100 * BRANCH, all_branches: 8, ..Limits::here() };
    let engine = Engine::limited(2, limits);
    let registry = &engine.registry;
    for name in ["a", "b"] {
        registry.create(GUEST, &create(name, "copy", Policy::Shared)).expect("two are allowed");
    }
    let why = registry.create(GUEST, &create("c", "copy", Policy::Shared)).expect_err("a third is not");
    assert!(why.contains("this user has 2 groups and may have 2"), "{why}");
    registry.create(OTHER, &create("c", "copy", Policy::Shared)).expect("somebody else's is");
    for _ in 0..3 {
        registry.join(GUEST, &join("a")).expect("a branch on each of two queues");
    }
    let why = registry.join(GUEST, &join("b")).expect_err("in whatever group");
    assert!(why.contains("this user has 6 branches and may have 6"), "{why}");
    let why = registry.join(OTHER, &join("c")).expect_err("guests leave a quarter");
    assert!(why.contains("guests together have 6 branches"), "{why}");
    registry.join(ROOT, &join("a")).expect("root has the last two");
    let why = registry.join(ROOT, &join("a")).expect_err("but nobody has the recorder's");
    assert!(why.contains("LimitNOFILE"), "{why}");
    registry.farewell(GUEST.connection);
    registry.join(OTHER, &join("c")).expect("there is room again");
}

#[test]
fn memory_of_branches_and_maps_is_bounded_for_each_guest_and_each_program() {
    let limits = Limits { bytes: 64 << 20, program_bytes: 100 << 20, ..Limits::here() };
    let engine = Engine::limited(1, limits);
    let registry = &engine.registry;
    let why = registry.create(ROOT, &create("a", "remember 101", Policy::Shared)).expect_err("nobody's");
    assert!(why.contains("may come to 101 MiB, and a program may have 100 MiB") && why.contains("up_to"), "{why}");
    registry.create(ROOT, &create("a", "remember 100", Policy::Shared)).expect("root's own machine");
    registry.create(GUEST, &create("b", "remember 60", Policy::Shared)).expect("as much as it may");
    registry.join(GUEST, &join("b")).expect("2 MiB more");
    registry.join(GUEST, &join("b")).expect("and 2");
    assert!(registry.join(GUEST, &join("b")).is_err_and(|why| why.contains("a user may have 64 MiB")));
    let why = registry.create(GUEST, &create("c", "remember 1", Policy::Shared)).expect_err("too much together");
    assert!(why.contains("1 MiB more"), "{why}");
    registry.swap(GUEST, "b", Some("remember 50")).expect("in place of the 60");
    registry.create(GUEST, &create("c", "remember 10", Policy::Shared)).expect("there is room for it now");
    let why = registry.swap(GUEST, "a", Some("remember 20")).expect_err("who loads it answers for it");
    assert!(why.contains("20 MiB more"), "{why}");
    assert_eq!(registry.program(ROOT, "a"), Ok((Some("remember 100".into()), 1)), "and it changed nothing");
}

#[test]
fn guests_send_through_no_port_but_those_they_were_allowed() {
    let engine = Engine::limited(1, Limits::here());
    let registry = &engine.registry;
    let why = registry.create(GUEST, &create("a", "forward sink", Policy::Shared)).expect_err("not allowed");
    assert!(why.contains("--allow-forward sink"), "{why}");
    registry.create(ROOT, &create("a", "forward sink", Policy::Shared)).expect("root may");
    assert!(registry.swap(GUEST, "a", Some("forward sink")).is_err(), "not even where it is open already");
    assert!(registry.attach(GUEST, &attach("a", "sink")).is_err());
    registry.attach(ROOT, &attach("a", "sink")).expect("root may");
    let engine = Engine::limited(1, Limits { ports: vec!["sink".into()], ..Limits::here() });
    engine.registry.create(GUEST, &create("a", "forward sink", Policy::Shared)).expect("allowed");
    engine.registry.attach(GUEST, &attach("a", "sink")).expect("allowed");
}

#[test]
fn a_program_is_shown_to_those_who_may_change_it_and_root_may_change_any() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    registry.create(GUEST, &create("mine", "mark 77", Policy::Restricted)).expect("created");
    registry.create(GUEST, &create("own", "mark 78", Policy::Private)).expect("created");
    registry.create(GUEST, &create("all", "mark 79", Policy::Shared)).expect("created");
    let shown = |who| {
        let views = registry.view(who, None, None).expect("all");
        views.into_iter().map(|v| (v.name, v.program, v.hidden)).collect::<Vec<_>>()
    };
    let group = |name: &str, program: &str| (name.to_owned(), Some(program.to_owned()), false);
    let all = vec![group("all", "mark 79"), group("mine", "mark 77"), group("own", "mark 78")];
    assert_eq!((shown(GUEST), shown(ROOT)), (all.clone(), all));
    let hidden = |name: &str| (name.to_owned(), None, true);
    assert_eq!(shown(OTHER), [group("all", "mark 79"), hidden("mine"), hidden("own")]);
    assert!(registry.delete(OTHER, "own").is_err());
    registry.delete(ROOT, "own").expect("root may, as the page says");
}

#[test]
fn long_programs_and_crowded_groups_leave_the_list_readable_and_the_program_whole() {
    let engine = Engine::start(1);
    let mut prng = Prng::new(5);
    let letters: Vec<char> = "ab\"\\\n\t\u{1}é".chars().collect();
    // Of every length up to what a request may have, in letters that are longer in a message.
    for length in [10_000, 60_000, 120_000, 130_500] {
        let (mut program, mut reported) = ("mark 1 ".to_owned(), 9);
        while reported < length {
            let letter = letters[prng.below(letters.len() as u64) as usize];
            program.push(letter);
            reported += serde_json::to_string(&letter).expect("text").len() - 2;
        }
        let group = format!("g{length}");
        match engine.client().request(&create(&group, &program, Policy::Shared)) {
            Ok(_) => {
                let (answer, _) = engine.client().request(&Request::Program { group }).expect("all of it");
                assert_eq!(answer.program.as_deref(), Some(&*program));
            }
            Err(why) => assert!(length > 129_000 && why.to_string().contains("at most"), "{length}: {why}"),
        }
    }
    let (_, listed) = engine.client().request(&Request::List).expect("a list");
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|g| g["program"].as_str().is_some_and(|p| p.starts_with("mark 1 ") && p.ends_with('…'))));
    let why = engine.registry.join(
        ROOT,
        &Request::Join {
            group: "g10000".into(),
            classes: Vec::new(),
            weight: 1,
            filter: None,
            descs: 0,
            name: "\u{1b}[2J".into(),
        },
    );
    assert!(why.is_err_and(|why| why.contains("control")), "a name is text");
}

#[test]
fn a_swap_that_is_not_carried_out_yet_says_so() {
    let limits = Limits { timeout: Duration::from_millis(20), ..Limits::here() };
    let engine = Engine::limited(1, limits);
    let registry = &engine.registry;
    let swapped = |program| registry.swap(ROOT, "slow", Some(program)).expect("sound");
    registry.create(ROOT, &create("slow", "copy", Policy::Shared)).expect("created");
    // On a busy machine, a dispatcher without packets may be late, too.
    until("a dispatcher without packets takes it", || swapped("sleep 100").unresponsive.is_empty());
    engine.flow(true);
    until("a batch is being judged", || engine.pushed() > 10);
    // A packet takes longer than anybody waits here, and an order is carried out between two batches.
    let mut met = Vec::new();
    until("a swap meets it", || {
        met = swapped("sleep 100").unresponsive;
        !met.is_empty()
    });
    assert_eq!((met.len(), met[0].state, met[0].queue), (1, DispatcherState::Late, 0), "{met:?}");
    let loaded = swapped("copy");
    engine.flow(false);
    until("it runs", || {
        let views = registry.view(ROOT, None, None).expect("all");
        views[0].generation == loaded.generation && views[0].counts.received == engine.pushed()
    });
}

#[test]
fn ports_that_a_program_no_longer_names_are_closed() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    let ports = || registry.view(ROOT, None, None).expect("all")[0].ports.clone();
    registry.create(ROOT, &create("a", "forward sink", Policy::Shared)).expect("created");
    assert_eq!(ports().len(), 1);
    registry.swap(ROOT, "a", Some("forward sink")).expect("the same");
    assert_eq!(ports().len(), 1);
    registry.swap(ROOT, "a", Some("copy")).expect("another");
    assert_eq!(ports(), []);
    registry.swap(ROOT, "a", Some("forward sink")).expect("and back");
    assert_eq!(ports().len(), 1);
}

/// The way to the host of one port is open for that one's queues alone.
#[test]
fn a_port_that_was_open_for_some_queues_is_opened_for_the_others_when_a_program_names_it() {
    let engine = Engine::at(vec![("p0", 0), ("p7", 0)], Limits::here());
    let registry = &engine.registry;
    let view = || registry.view(ROOT, None, None).expect("all").remove(0);
    registry.create(ROOT, &create("a", "kernel", Policy::Shared)).expect("created");
    let count = |flows: u64| {
        engine.flow(true);
        until("packets flow", || engine.pushed() > flows);
        engine.flow(false);
        until("all are judged", || view().counts.received == engine.pushed());
        let counts = view().counts;
        (counts.forwarded, counts.forward_lost, engine.pushed())
    };
    let (to_host, lost, before) = count(1000);
    assert!(to_host > 0 && to_host < before && lost == 0, "{to_host} of {before}: those of p7");
    registry.swap(ROOT, "a", Some("forward ng7")).expect("a name like others");
    let (all, lost, after) = count(before + 1000);
    assert_eq!((all - to_host, lost), (after - before, 0), "those of both");
    assert_eq!(view().ports.len(), 1);
    registry.swap(ROOT, "a", Some("kernel")).expect("and back");
    let (back, lost, end) = count(after + 1000);
    assert!(back > all && back - all < end - after && lost == 0);
    registry.swap(ROOT, "a", Some("copy")).expect("no more");
    assert_eq!(view().ports, []);
}

#[test]
fn a_dispatcher_that_stands_still_or_failed_is_told_of_and_its_numbers_are_not_forgotten() {
    let limits = Limits { timeout: Duration::from_millis(20), ..Limits::here() };
    let mut engine = Engine::limited(2, limits);
    engine.may_panic = true;
    let registry = &engine.registry;
    everywhere(&engine, "a", "copy");
    let view = || registry.view(ROOT, Some("a"), None).expect("it is there").remove(0);
    engine.flow(true);
    until("packets flow", || engine.pushed() > 1000);
    engine.flow(false);
    until("all are judged", || view().counts.received == engine.pushed());
    until("nothing is late", || view().unresponsive.is_empty());
    let before = engine.pushed();
    registry.swap(ROOT, "a", Some("sleep 100")).expect("sound");
    engine.flow(true);
    let standing = || view().unresponsive.into_iter().map(|queue| (queue.queue, queue.state)).collect::<Vec<_>>();
    until("one stands still", || !standing().is_empty());
    let late = view();
    assert!(late.counts.received >= before, "what it had told is not forgotten");
    assert_eq!(late.counts.contradictions(), Vec::<String>::new(), "older numbers add up, too");
    // A batch is the least that it can be late by, and packets enough for many of them are waiting.
    registry.swap(ROOT, "a", Some("copy")).expect("sound");
    engine.flow(false);
    until("it answers again", || standing().is_empty());
    let request = Request::Create {
        group: "bad".into(),
        program: Some("panic".into()),
        policy: Policy::Shared,
        fold: false,
        ports: None,
        queues: Some(vec![1]),
        ephemeral: false,
    };
    registry.create(ROOT, &request).expect("nobody knows");
    engine.flow(true);
    until("one has failed", || standing().contains(&(1, DispatcherState::Failed)));
    engine.flow(false);
    until("the other goes on", || standing() == [(1, DispatcherState::Failed)]);
    assert!(view().counts.received >= before);
}

/// Nobody is to take a program for one that judges everywhere.
#[test]
fn who_loads_a_program_is_told_of_each_queue_that_does_not_take_it() {
    let limits = Limits { timeout: Duration::from_millis(100), ..Limits::here() };
    let mut engine = Engine::limited(2, limits);
    engine.may_panic = true;
    let on_1 = |group: &str, program: &str| Request::Create {
        group: group.into(),
        program: Some(program.into()),
        policy: Policy::Shared,
        fold: false,
        ports: None,
        queues: Some(vec![1]),
        ephemeral: false,
    };
    let ask = |request: &Request| engine.client().request(request).expect("sound").0;
    let swap = |program: &str| Request::Swap { group: "g".into(), program: Some(program.into()) };
    let reported = |answer: &Response| answer.unresponsive.iter().map(|one| (one.queue, one.state)).collect::<Vec<_>>();
    everywhere(&engine, "g", "mark 1");
    // A batch of one queue takes longer than anybody waits.
    ask(&on_1("slow", "sleep 10"));
    engine.flow(true);
    let mut answer = Response::default();
    // On a busy machine, the other queue may be late for a moment.
    until("it alone stands still", || {
        answer = ask(&swap("mark 2"));
        (reported(&answer), answer.late) == (vec![(1, DispatcherState::Late)], 1)
    });
    assert!(
        answer.unresponsive[0].to_string().starts_with("queue 1 of p0: its dispatcher has not carried this out for")
    );
    ask(&Request::Delete { group: "slow".into() });
    engine.flow(false);
    until("it goes on", || reported(&ask(&swap("mark 4"))).is_empty());
    // And fails. What is loaded then is the group's, on the other queue: a program that has failed can be exchanged.
    ask(&on_1("bad", "panic"));
    engine.flow(true);
    until("it has failed", || reported(&ask(&swap("mark 5"))) == [(1, DispatcherState::Failed)]);
    until("the other queue takes the program in time", || {
        answer = ask(&swap("mark 6"));
        answer.late == 0
    });
    assert_eq!((reported(&answer), answer.late, answer.ok), (vec![(1, DispatcherState::Failed)], 0, true));
    assert!(answer.unresponsive[0].why.contains("nobody judges its packets any more"), "{answer:?}");
    assert_eq!(ask(&Request::Program { group: "g".into() }).program.as_deref(), Some("mark 6"));
    let (here, there) = (ask(&create("h", "mark 1", Policy::Shared)), ask(&on_1("i", "mark 1")));
    assert_eq!([reported(&here), reported(&there)], [(); 2].map(|()| vec![(1, DispatcherState::Failed)]));
    assert_eq!(reported(&ask(&Request::Delete { group: "h".into() })), []);
    let seat = engine.client().join(&join("g")).expect("a seat on the queue that is left");
    assert_eq!((seat.unresponsive.len(), seat.listeners.len()), (1, 2));
    engine.flow(false);
}

/// An engine that ends has nothing to carry out, and nothing is wrong with it.
#[test]
fn a_stream_that_has_ended_is_no_queue_that_refuses() {
    let engine = Engine::start(2);
    let registry = &engine.registry;
    registry.create(ROOT, &create("g", "mark 1", Policy::Shared)).expect("created");
    engine.end.store(true, std::sync::atomic::Ordering::SeqCst);
    for generation in 2..50 {
        // While it ends, and after.
        let loaded = registry.swap(ROOT, "g", Some("mark 2")).expect("sound");
        assert_eq!((loaded.unresponsive, loaded.generation), (vec![], generation));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(registry.view(ROOT, Some("g"), None).expect("its books")[0].unresponsive, []);
}
