//! Tests of the resources that unprivileged users may take, of the data that they may read, and of the changes that
//! they may make.

use crate::support;

use base::Prng;
use netgrain_group::{ClientIdentity, DispatcherState, Limits, Policy, Request, Response};
use std::time::Duration;
use support::{Engine, until};

const USER: ClientIdentity = ClientIdentity { uid: 70_001, pid: 7, connection: 9001 };
const OTHER_USER: ClientIdentity = ClientIdentity { uid: 70_002, pid: 8, connection: 9002 };
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

/// Creates a group on all queues. If a queue does not respond within the time limit of a command, the group is deleted
/// and created again.
fn create_on_all_queues(engine: &Engine, group: &str, program: &str) {
    let registry = &engine.registry;
    until("all queues have the group", || {
        let loaded = registry.create(ROOT, &create(group, program, Policy::Shared)).expect("accepted");
        if !loaded.unresponsive.is_empty() {
            registry.delete(ROOT, group).expect("the group exists");
        }
        loaded.unresponsive.is_empty()
    });
}

/// Bytes of the smallest branch.
const BRANCH: u64 = 2 << 20;

#[test]
fn a_user_cannot_use_up_the_branches_of_others_and_frees_them_on_leaving() {
    let limits = Limits { groups: 2, branches: 6, bytes: 100 * BRANCH, all_branches: 8, ..Limits::here() };
    let engine = Engine::limited(2, limits);
    let registry = &engine.registry;
    for name in ["a", "b"] {
        registry.create(USER, &create(name, "copy", Policy::Shared)).expect("two groups are permitted");
    }
    let why = registry.create(USER, &create("c", "copy", Policy::Shared)).expect_err("a third group exceeds the limit");
    assert!(why.to_string().contains("this user has 2 groups, and the limit is 2"), "{why}");
    registry.create(OTHER_USER, &create("c", "copy", Policy::Shared)).expect("another user has its own limit");
    for _ in 0..3 {
        registry.join(USER, &join("a")).expect("a branch on each of two queues");
    }
    let why = registry.join(USER, &join("b")).expect_err("the limit holds over all groups");
    assert!(why.to_string().contains("this user has 6 branches, and the limit is 6"), "{why}");
    let why = registry.join(OTHER_USER, &join("c")).expect_err("unprivileged users leave a quarter of the branches");
    assert!(why.to_string().contains("all unprivileged users together have 6 branches"), "{why}");
    registry.join(ROOT, &join("a")).expect("root gets the last two branches");
    let why = registry.join(ROOT, &join("a")).expect_err("no user gets the file descriptors of the recorder");
    assert!(why.to_string().contains("LimitNOFILE"), "{why}");
    registry.farewell(USER.connection);
    registry.join(OTHER_USER, &join("c")).expect("branches are free again");
}

#[test]
fn memory_of_branches_and_maps_is_limited_for_each_user_and_program() {
    let limits = Limits { bytes: 64 << 20, program_bytes: 100 << 20, ..Limits::here() };
    let engine = Engine::limited(1, limits);
    let registry = &engine.registry;
    let why = registry
        .create(ROOT, &create("a", "remember 101", Policy::Shared))
        .expect_err("the limit of a program holds for root");
    assert!(
        why.to_string().contains("need up to 101 MiB, and the limit of a program is 100 MiB")
            && why.to_string().contains("up_to"),
        "{why}"
    );
    registry.create(ROOT, &create("a", "remember 100", Policy::Shared)).expect("root has no limit of its own");
    registry.create(USER, &create("b", "remember 60", Policy::Shared)).expect("within the limit of the user");
    registry.join(USER, &join("b")).expect("2 MiB for a branch");
    registry.join(USER, &join("b")).expect("2 MiB for a second branch");
    assert!(
        registry.join(USER, &join("b")).is_err_and(|why| why.to_string().contains("the limit of a user is 64 MiB"))
    );
    let why =
        registry.create(USER, &create("c", "remember 1", Policy::Shared)).expect_err("more than the limit of the user");
    assert!(why.to_string().contains("1 MiB more"), "{why}");
    registry.swap(USER, "b", Some("remember 50")).expect("50 MiB replace the 60 MiB");
    registry.create(USER, &create("c", "remember 10", Policy::Shared)).expect("within the limit again");
    let why = registry.swap(USER, "a", Some("remember 20")).expect_err("the program counts for the user who loads it");
    assert!(why.to_string().contains("20 MiB more"), "{why}");
    assert_eq!(
        registry.program(ROOT, "a").expect("the group exists"),
        (Some("remember 100".into()), 1),
        "the refused swap changed nothing"
    );
}

#[test]
fn unprivileged_users_send_only_through_permitted_interfaces() {
    let engine = Engine::limited(1, Limits::here());
    let registry = &engine.registry;
    let why = registry.create(USER, &create("a", "forward sink", Policy::Shared)).expect_err("not allowed");
    assert!(why.to_string().contains("--allow-forward sink"), "{why}");
    registry.create(ROOT, &create("a", "forward sink", Policy::Shared)).expect("root may");
    assert!(
        registry.swap(USER, "a", Some("forward sink")).is_err(),
        "not permitted even if the interface is open already"
    );
    assert!(registry.attach(USER, &attach("a", "sink")).is_err());
    registry.attach(ROOT, &attach("a", "sink")).expect("root may");
    let engine = Engine::limited(1, Limits { ports: vec!["sink".into()], ..Limits::here() });
    engine.registry.create(USER, &create("a", "forward sink", Policy::Shared)).expect("allowed");
    engine.registry.attach(USER, &attach("a", "sink")).expect("allowed");
}

#[test]
fn a_program_is_shown_to_users_who_may_change_it_and_root_may_change_any() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    registry.create(USER, &create("mine", "mark 77", Policy::Restricted)).expect("created");
    registry.create(USER, &create("own", "mark 78", Policy::Private)).expect("created");
    registry.create(USER, &create("all", "mark 79", Policy::Shared)).expect("created");
    let shown = |identity| {
        let views = registry.view(identity, None, None).expect("all");
        views.into_iter().map(|v| (v.name, v.program, v.hidden)).collect::<Vec<_>>()
    };
    let group = |name: &str, program: &str| (name.to_owned(), Some(program.to_owned()), false);
    let all = vec![group("all", "mark 79"), group("mine", "mark 77"), group("own", "mark 78")];
    assert_eq!((shown(USER), shown(ROOT)), (all.clone(), all));
    let hidden = |name: &str| (name.to_owned(), None, true);
    assert_eq!(shown(OTHER_USER), [group("all", "mark 79"), hidden("mine"), hidden("own")]);
    assert!(registry.delete(OTHER_USER, "own").is_err());
    registry.delete(ROOT, "own").expect("root may change any group");
}

#[test]
fn long_programs_are_shortened_in_the_list_and_returned_in_full_on_request() {
    let engine = Engine::start(1);
    let mut prng = Prng::new(5);
    let letters: Vec<char> = "ab\"\\\n\t\u{1}é".chars().collect();
    // Programs of different lengths up to the limit of a request, with characters that JSON escapes.
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
                let (answer, _) = engine.client().request(&Request::Program { group }).expect("the whole program");
                assert_eq!(answer.program.as_deref(), Some(&*program));
            }
            Err(why) => assert!(length > 129_000 && why.to_string().contains("the limit is"), "{length}: {why}"),
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
    assert!(why.is_err_and(|why| why.to_string().contains("control")), "a name must not contain control characters");
}

#[test]
fn a_swap_that_is_not_carried_out_in_time_names_the_late_queue() {
    let limits = Limits { timeout: Duration::from_millis(20), ..Limits::here() };
    let engine = Engine::limited(1, limits);
    let registry = &engine.registry;
    let swapped = |program| registry.swap(ROOT, "slow", Some(program)).expect("accepted");
    registry.create(ROOT, &create("slow", "copy", Policy::Shared)).expect("created");
    // On a busy machine, a dispatcher without packets may be late, too.
    until("a dispatcher without packets carries out the swap", || swapped("sleep 100").unresponsive.is_empty());
    engine.flow(true);
    until("a batch is being evaluated", || engine.pushed() > 10);
    // One packet takes longer than the time limit, and commands are carried out between two batches.
    let mut unresponsive = Vec::new();
    until("a swap falls into the evaluation of a batch", || {
        unresponsive = swapped("sleep 100").unresponsive;
        !unresponsive.is_empty()
    });
    assert_eq!(
        (unresponsive.len(), unresponsive[0].state, unresponsive[0].queue),
        (1, DispatcherState::Late, 0),
        "{unresponsive:?}"
    );
    let loaded = swapped("copy");
    engine.flow(false);
    until("the new program runs", || {
        let views = registry.view(ROOT, None, None).expect("all");
        views[0].generation == loaded.generation && views[0].counts.received == engine.pushed()
    });
}

#[test]
fn egress_interfaces_that_a_program_no_longer_names_are_closed() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    let ports = || registry.view(ROOT, None, None).expect("all")[0].ports.clone();
    registry.create(ROOT, &create("a", "forward sink", Policy::Shared)).expect("created");
    assert_eq!(ports().len(), 1);
    registry.swap(ROOT, "a", Some("forward sink")).expect("a swap to the same program");
    assert_eq!(ports().len(), 1);
    registry.swap(ROOT, "a", Some("copy")).expect("a swap to a program without egress interface");
    assert_eq!(ports(), []);
    registry.swap(ROOT, "a", Some("forward sink")).expect("a swap back");
    assert_eq!(ports().len(), 1);
}

/// A program that passes packets to the host opens the host interface only for the queues of the dedicated interface.
/// If another program names the host interface as its egress interface, it is opened for all queues.
#[test]
fn an_egress_interface_of_some_queues_is_opened_for_the_others_when_named() {
    let engine = Engine::at(vec![("p0", 0), ("p7", 0)], Limits::here());
    let registry = &engine.registry;
    let view = || registry.view(ROOT, None, None).expect("all").remove(0);
    registry.create(ROOT, &create("a", "kernel", Policy::Shared)).expect("created");
    let count = |flows: u64| {
        engine.flow(true);
        until("packets flow", || engine.pushed() > flows);
        engine.flow(false);
        until("all packets are evaluated", || view().counts.received == engine.pushed());
        let counts = view().counts;
        (counts.forwarded, counts.forward_lost, engine.pushed())
    };
    let (to_host, lost, before) = count(1000);
    assert!(
        to_host > 0 && to_host < before && lost == 0,
        "{to_host} of {before} packets went to the host, which must be those of p7"
    );
    registry.swap(ROOT, "a", Some("forward ng7")).expect("the interface to the host is an egress interface too");
    let (all, lost, after) = count(before + 1000);
    assert_eq!((all - to_host, lost), (after - before, 0), "the packets of both interfaces are forwarded");
    assert_eq!(view().ports.len(), 1);
    registry.swap(ROOT, "a", Some("kernel")).expect("a swap back");
    let (back, lost, end) = count(after + 1000);
    assert!(back > all && back - all < end - after && lost == 0);
    registry.swap(ROOT, "a", Some("copy")).expect("a swap to a program without forwarding");
    assert_eq!(view().ports, []);
}

#[test]
fn a_late_or_failed_dispatcher_is_reported_and_its_counters_are_kept() {
    let limits = Limits { timeout: Duration::from_millis(20), ..Limits::here() };
    let mut engine = Engine::limited(2, limits);
    engine.may_panic = true;
    let registry = &engine.registry;
    create_on_all_queues(&engine, "a", "copy");
    let view = || registry.view(ROOT, Some("a"), None).expect("the group exists").remove(0);
    engine.flow(true);
    until("packets flow", || engine.pushed() > 1000);
    engine.flow(false);
    until("all packets are evaluated", || view().counts.received == engine.pushed());
    until("no queue is late", || view().unresponsive.is_empty());
    let before = engine.pushed();
    registry.swap(ROOT, "a", Some("sleep 100")).expect("accepted");
    engine.flow(true);
    let unresponsive = || view().unresponsive.into_iter().map(|queue| (queue.queue, queue.state)).collect::<Vec<_>>();
    until("a queue is late", || !unresponsive().is_empty());
    let late = view();
    assert!(late.counts.received >= before, "the counters reported before are kept");
    assert_eq!(late.counts.contradictions(), Vec::<String>::new(), "the older counters satisfy the equations");
    // The ring holds packets for many batches; a swap back to a fast program shortens the wait.
    registry.swap(ROOT, "a", Some("copy")).expect("accepted");
    engine.flow(false);
    until("all queues respond again", || unresponsive().is_empty());
    let request = Request::Create {
        group: "bad".into(),
        program: Some("panic".into()),
        policy: Policy::Shared,
        fold: false,
        ports: None,
        queues: Some(vec![1]),
        ephemeral: false,
    };
    registry.create(ROOT, &request).expect("the panic happens only with the first packet");
    engine.flow(true);
    until("a dispatcher has failed", || unresponsive().contains(&(1, DispatcherState::Failed)));
    engine.flow(false);
    until("the other dispatcher responds", || unresponsive() == [(1, DispatcherState::Failed)]);
    assert!(view().counts.received >= before);
}

/// A client must not assume that its program evaluates packets on all queues when the response names an unresponsive
/// queue.
#[test]
fn a_response_names_each_queue_that_does_not_run_the_new_program() {
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
    let request_ok = |request: &Request| engine.client().request(request).expect("accepted").0;
    let swap = |program: &str| Request::Swap { group: "g".into(), program: Some(program.into()) };
    let reported = |answer: &Response| answer.unresponsive.iter().map(|one| (one.queue, one.state)).collect::<Vec<_>>();
    create_on_all_queues(&engine, "g", "mark 1");
    // A batch of queue 1 takes longer than the time limit.
    request_ok(&on_1("slow", "sleep 10"));
    engine.flow(true);
    let mut answer = Response::default();
    // On a busy machine, the other queue may be late for a moment.
    until("only queue 1 is late", || {
        answer = request_ok(&swap("mark 2"));
        (reported(&answer), answer.late) == (vec![(1, DispatcherState::Late)], 1)
    });
    assert!(
        answer.unresponsive[0]
            .to_string()
            .starts_with("queue 1 of p0: its dispatcher has not carried out the command for")
    );
    request_ok(&Request::Delete { group: "slow".into() });
    engine.flow(false);
    until("queue 1 responds again", || reported(&request_ok(&swap("mark 4"))).is_empty());
    // The dispatcher of queue 1 fails. A program loaded afterwards runs on the other queue.
    request_ok(&on_1("bad", "panic"));
    engine.flow(true);
    until("queue 1 has failed", || reported(&request_ok(&swap("mark 5"))) == [(1, DispatcherState::Failed)]);
    until("the other queue carries out the swap in time", || {
        answer = request_ok(&swap("mark 6"));
        answer.late == 0
    });
    assert_eq!((reported(&answer), answer.late, answer.ok), (vec![(1, DispatcherState::Failed)], 0, true));
    assert!(answer.unresponsive[0].why.to_string().contains("no program evaluates its packets any more"), "{answer:?}");
    assert_eq!(request_ok(&Request::Program { group: "g".into() }).program.as_deref(), Some("mark 6"));
    let (here, there) = (request_ok(&create("h", "mark 1", Policy::Shared)), request_ok(&on_1("i", "mark 1")));
    assert_eq!([reported(&here), reported(&there)], [(); 2].map(|()| vec![(1, DispatcherState::Failed)]));
    assert_eq!(reported(&request_ok(&Request::Delete { group: "h".into() })), []);
    let session = engine.client().join(&join("g")).expect("joined on the remaining queue");
    assert_eq!((session.unresponsive.len(), session.listeners.len()), (1, 2));
    engine.flow(false);
}

/// A dispatcher that has ended with its stream carries out no commands, and this is not a failure.
#[test]
fn a_queue_whose_stream_has_ended_is_not_unresponsive() {
    let engine = Engine::start(2);
    let registry = &engine.registry;
    registry.create(ROOT, &create("g", "mark 1", Policy::Shared)).expect("created");
    engine.end.store(true, std::sync::atomic::Ordering::SeqCst);
    for generation in 2..50 {
        // The swaps happen while the stream ends, and afterwards.
        let loaded = registry.swap(ROOT, "g", Some("mark 2")).expect("accepted");
        assert_eq!((loaded.unresponsive, loaded.generation), (vec![], generation));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(registry.view(ROOT, Some("g"), None).expect("the accounting")[0].unresponsive, []);
}
