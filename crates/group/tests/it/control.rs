//! Groups as others meet them: through the socket, while packets flow.

use crate::support;

use base::Prng;
use netgrain_group::{ClientError, ClientIdentity, ControlServer, Generations, Limits, Policy, Request};
use ring::{Control, Listener};
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Engine, until};
use sys::unix::Connection;

fn create(group: &str, program: &str, policy: Policy) -> Request {
    let program = Some(program.to_owned());
    Request::Create { group: group.into(), program, policy, fold: false, ports: None, queues: None, ephemeral: false }
}

fn join(group: &str) -> Request {
    let (group, name) = (group.to_owned(), String::new());
    Request::Join { group, classes: Vec::new(), weight: 1, filter: None, descs: 0, name }
}

fn stats(engine: &Engine, group: &str) -> serde_json::Value {
    let asked = Request::Stats { group: Some(group.into()) };
    engine.client().request(&asked).expect("the books").1.remove(0)
}

fn number(v: &serde_json::Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {v}"))
}

/// Reads to the end; every packet carries the generation that marked it, and generations never go back.
fn follow(mut l: Listener) -> (u64, u64, u64) {
    let (mut generations, mut descs, mut seen, mut lost, mut last) = (Generations::default(), Vec::new(), 0, 0, 0);
    while !l.ended() {
        l.next(1000, &mut descs);
        for d in &descs {
            if let Some(Control::Lost { packets, .. }) = d.as_control() {
                lost += packets;
            }
            if let Some(generation) = generations.follow(d).expect("generations go on") {
                assert_eq!(u64::from(d.mark), generation, "judged by the program that is said to have judged");
                (seen, last) = (seen + 1, generation);
            }
        }
        if descs.is_empty() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    assert_eq!(l.counts().missed, 0);
    (seen, lost.max(l.lost()), last)
}

#[test]
fn whoever_is_told_of_a_new_group_may_count_on_the_next_packet() {
    let engine = Engine::start(2);
    for n in 0..20 {
        let (name, before) = (format!("g{n}"), engine.pushed());
        let (answer, _) = engine.client().request(&create(&name, "mark 1", Policy::Shared)).expect("created");
        assert_eq!(answer.late, 0);
        engine.flow(true);
        until("packets flow", || engine.pushed() > before);
        engine.flow(false);
        let pushed = engine.pushed() - before;
        let received = || {
            let views = engine.registry.view(engine.registry.engine(), Some(&name), None).expect("it is there");
            views[0].object()["received"].as_u64().expect("a number")
        };
        until("all are judged", || received() == pushed);
        // While there is no group the dispatcher has no place at the ring: the next one must get it again.
        engine.registry.delete(engine.registry.engine(), &name).expect("it is there");
    }
}

#[test]
fn who_leaves_in_good_order_reads_all_that_was_delivered_to_it() {
    let engine = Engine::start(2);
    engine.client().request(&create("g", "mark 1", Policy::Shared)).expect("created");
    let leaves = engine.client().join(&join("g")).expect("a seat");
    engine.flow(true);
    until("packets flow", || engine.pushed() > 1000);
    leaves.leave_handle().leave().expect("nobody is kept");
    let next = engine.client().join(&join("g")).expect("a seat");
    assert_ne!(next.slot, leaves.slot, "its place is taken until it has gone");
    // They end, while packets flow on.
    let seen: u64 = leaves.listeners.into_iter().map(|l| follow(l).0).sum();
    engine.flow(false);
    let books = stats(&engine, "g");
    assert!(seen > 0 && number(&books["departed"], "delivered") == seen, "{seen} were read: {books}");
}

#[test]
fn a_thousand_swaps_under_load_lose_nothing_and_generations_never_go_back() {
    let engine = Engine::start(2);
    let client = engine.client();
    client.request(&create("g", "mark 1", Policy::Shared)).expect("created");
    let members: Vec<_> = (0..2).map(|_| engine.client().join(&join("g")).expect("a seat")).collect();
    assert_eq!(members.iter().map(|m| m.listeners.len()).collect::<Vec<_>>(), [2, 2], "a branch for each queue");
    let readers: Vec<Vec<_>> = members
        .into_iter()
        .map(|m| m.listeners.into_iter().map(|l| std::thread::spawn(move || follow(l))).collect())
        .collect();
    engine.flow(true);
    for generation in 2..=1001u64 {
        let swap = Request::Swap { group: "g".into(), program: Some(format!("mark {generation}")) };
        let (answer, _) = client.request(&swap).expect("swapped");
        assert_eq!(answer.generation, Some(generation));
        if generation % 100 == 0 {
            let broken = Request::Swap { group: "g".into(), program: Some("no such thing".into()) };
            assert!(matches!(client.request(&broken), Err(ClientError::Refused(why)) if why.contains("no such thing")));
        }
    }
    // In each ring: on a busy machine, one of the two may get no packet for a while.
    let at = engine.pushed_by_ring();
    until("packets of each ring pass through the last program", || {
        engine.pushed_by_ring().iter().zip(&at).all(|(now, at)| *now > at + 500)
    });
    engine.flow(false);
    until("everything was judged", || number(&stats(&engine, "g"), "received") == engine.pushed());
    let books = stats(&engine, "g");
    assert_eq!((number(&books, "generation"), number(&books, "skipped"), number(&books, "dropped")), (1001, 0, 0));
    assert_eq!(books["accounting_errors"], serde_json::json!([]));
    assert_eq!(number(&books, "passed"), engine.pushed());
    assert_eq!(number(&books["counters"], "judged"), engine.pushed(), "counters survive: {books}");
    client.request(&Request::Delete { group: "g".into() }).expect("deleted");
    for (member, queues) in readers.into_iter().enumerate() {
        let reported: Vec<_> = queues.into_iter().map(|r| r.join().expect("no panic")).collect();
        let (seen, lost) = (reported.iter().map(|t| t.0).sum::<u64>(), reported.iter().map(|t| t.1).sum::<u64>());
        assert_eq!(seen + lost, engine.pushed(), "member {member}");
        assert!(reported.iter().all(|t| t.2 == 1001 || t.1 > 0), "{reported:?}");
    }
}

#[test]
fn who_steers_sends_a_flow_to_one_member_and_a_newcomer_takes_only_its_share() {
    let engine = Engine::start(1);
    engine.client().request(&create("g", "steer", Policy::Shared)).expect("created");
    let mut members: Vec<_> = (0..3).map(|_| engine.client().join(&join("g")).expect("a seat")).collect();
    // Whose is each hash? Nobody, or the place of the one member that got it.
    let round = |members: &mut [netgrain_group::MemberSession]| {
        let at = engine.pushed();
        engine.flow(true);
        until("every flow has spoken", || engine.pushed() > at + 3000);
        engine.flow(false);
        until("everything was judged", || number(&stats(&engine, "g"), "received") == engine.pushed());
        let mut whose = std::collections::BTreeMap::new();
        let mut descs = Vec::new();
        for m in members {
            let l = &mut m.listeners[0];
            while l.lag() > 0 {
                l.next(1000, &mut descs);
                for d in descs.iter().filter(|d| d.is_packet()) {
                    let before = whose.insert(d.hash, m.slot);
                    assert!(before.is_none_or(|b| b == m.slot), "flow {} is with two", d.hash);
                }
            }
        }
        whose
    };
    let three = round(&mut members);
    assert_eq!(three.len(), 1000, "all flows are somewhere");
    members.push(engine.client().join(&join("g")).expect("a seat"));
    let four = round(&mut members);
    let moved: Vec<_> = three.iter().filter(|(hash, place)| four[hash] != **place).collect();
    assert!(moved.iter().all(|(hash, _)| four[hash] == 3), "what moves, moves to the newcomer");
    assert!((180..320).contains(&moved.len()), "{} of 1000 moved", moved.len());
    let gone = members.remove(1);
    drop(gone);
    until("it has left", || stats(&engine, "g")["members"].as_array().is_some_and(|m| m.len() == 3));
    let left = round(&mut members);
    for (hash, place) in &four {
        assert!(left[hash] == *place || *place == 1, "flow {hash} moved from {place} though its member is still here");
    }
    let again = engine.client().join(&join("g")).expect("a seat");
    assert_eq!(again.slot, 1, "who comes back sits where it sat");
    members.push(again);
    assert_eq!(round(&mut members), four, "and gets its flows again");
    assert_eq!(stats(&engine, "g")["accounting_errors"], serde_json::json!([]));
}

#[test]
fn groups_are_independent_and_classes_and_filters_do_what_they_say() {
    let engine = Engine::start(1);
    let client = engine.client();
    client.request(&create("a", "mark 7", Policy::Shared)).expect("created");
    client.request(&create("b", "steer", Policy::Shared)).expect("created");
    client.request(&create("none", "drop", Policy::Shared)).expect("created");
    let class = |class: &str| Request::Join {
        group: "a".into(),
        classes: vec![class.into()],
        weight: 1,
        filter: None,
        descs: 0,
        name: class.into(),
    };
    let refused = |request: &Request| match engine.client().request(request) {
        Err(ClientError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    };
    assert!(refused(&class("management")).contains("never receives"));
    assert!(refused(&class("64")).contains("no class"));
    assert!(refused(&join("c")).contains("there are a, b, none"));
    let mut a = engine.client().join(&class("default")).expect("a seat");
    let user = engine.client().join(&class("user")).expect("a seat");
    let mut b = engine.client().join(&join("b")).expect("a seat");
    engine.flow(true);
    until("packets flow", || engine.pushed() > 2000);
    engine.flow(false);
    until("everything was judged", || number(&stats(&engine, "b"), "received") == engine.pushed());
    let mut descs = Vec::new();
    for (l, mark) in [(&mut a.listeners[0], 7), (&mut b.listeners[0], 0)] {
        let mut seen = 0;
        while l.lag() > 0 {
            l.next(1000, &mut descs);
            for d in descs.iter().filter(|d| d.is_packet()) {
                assert_eq!(d.mark, mark, "no mark leaks into another group");
                seen += 1;
            }
        }
        assert_eq!(seen, engine.pushed());
    }
    assert_eq!(user.listeners[0].lag(), 0, "nothing is for this class");
    let (none, a) = (stats(&engine, "none"), stats(&engine, "a"));
    assert_eq!(number(&none, "dropped"), engine.pushed());
    assert_eq!(number(&a["classes"]["default"], "packets"), engine.pushed());
    assert_eq!(number(&a["classes"]["user"], "packets"), 0);
}

#[test]
fn policies_go_by_who_the_peer_is() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    let who = |uid, pid, connection| ClientIdentity { uid, pid, connection };
    let owner = who(1000, 10, 1);
    for (name, policy) in [("mine", Policy::Private), ("ours", Policy::Restricted), ("all", Policy::Shared)] {
        registry.create(owner, &create(name, "steer", policy)).expect("created");
    }
    let may = |visitor, group| registry.join(visitor, &join(group)).is_ok();
    let (again, same_user, unknown_client, root) =
        (who(1000, 10, 2), who(1000, 11, 3), who(1001, 12, 4), who(0, 13, 5));
    assert_eq!(["mine", "ours", "all"].map(|g| may(again, g)), [true, true, true]);
    assert_eq!(["mine", "ours", "all"].map(|g| may(same_user, g)), [false, true, true]);
    assert_eq!(["mine", "ours", "all"].map(|g| may(unknown_client, g)), [false, false, true]);
    assert_eq!(["mine", "ours", "all"].map(|g| may(root, g)), [true, true, true]);
    assert!(registry.swap(unknown_client, "ours", None).is_err_and(|e| e.contains("restricted to user 1000")));
    assert!(registry.delete(same_user, "mine").is_err_and(|e| e.contains("private to process 10")));
    assert!(registry.program(unknown_client, "ours").is_err());
    // Eight seats by five connections; a private group goes with the connection that made it.
    registry.farewell(2);
    registry.farewell(5);
    let view = registry.view(registry.engine(), None, None).expect("all");
    assert_eq!(
        view.iter().map(|g| (g.name.as_str(), g.members.len())).collect::<Vec<_>>(),
        [("all", 2), ("mine", 0), ("ours", 1)]
    );
    registry.farewell(1);
    let names: Vec<String> =
        registry.view(registry.engine(), None, None).expect("all").into_iter().map(|g| g.name).collect();
    assert_eq!(names, ["all", "ours"]);
}

#[test]
fn limits_have_words_and_a_full_group_is_full() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    let who = ClientIdentity { uid: 0, pid: 1, connection: 1 };
    for i in 0..64 {
        registry.create(who, &create(&format!("g{i}"), "copy", Policy::Shared)).expect("created");
    }
    let error = registry.create(who, &create("one-more", "copy", Policy::Shared)).expect_err("full");
    assert!(error.contains("64 groups already"));
    assert!(registry.create(who, &create("g1", "copy", Policy::Shared)).is_err_and(|e| e.contains("already")));
    assert!(registry.create(who, &create("a b", "copy", Policy::Shared)).is_err_and(|e| e.contains("letters")));
    let queues = Request::Create {
        group: "q".into(),
        program: None,
        policy: Policy::Shared,
        fold: false,
        ports: None,
        queues: Some(vec![5]),
        ephemeral: false,
    };
    assert!(
        registry
            .create(who, &queues)
            .is_err_and(|e| e.contains("no queue 5; ") && e.contains("has queue 0 in this engine"))
    );
    for _ in 0..64 {
        registry.join(who, &join("g0")).expect("a seat");
    }
    assert!(registry.join(who, &join("g0")).is_err_and(|e| e.contains("64 members")));
    for weight in [0, 65] {
        let heavy = Request::Join {
            group: "g1".into(),
            classes: Vec::new(),
            weight,
            filter: None,
            descs: 0,
            name: String::new(),
        };
        assert!(registry.join(who, &heavy).is_err_and(|e| e.contains("weight")));
    }
}

#[test]
fn garbage_is_answered_in_words_or_let_go_and_the_door_stays_open() {
    let mut random = Prng::new(testkit::seed("garbage_is_answered_in_words_or_let_go_and_the_door_stays_open"));
    let engine = Engine::start(1);
    engine.client().request(&create("g", "copy", Policy::Shared)).expect("created");
    let good = serde_json::to_vec(&join("g")).expect("json");
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let before = open();
    for i in 0..300 {
        let unknown_client = Connection::connect(&engine.socket).expect("the socket is there");
        unknown_client.set_timeout(Duration::from_secs(120)).expect("a timeout");
        let mut bytes = good.clone();
        match random.below(4) {
            0 => {
                bytes = vec![0; 1 + random.below(4000) as usize];
                random.fill(&mut bytes);
            }
            1 => bytes.truncate(1 + random.below(good.len() as u64 - 1) as usize),
            2 => {
                let at = random.below(good.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            _ => {}
        }
        unknown_client.send(&bytes, &[]).expect("sent");
        let mut answer = [0; 4096];
        if random.below(2) == 0 {
            let (n, _) = unknown_client.receive(&mut answer).expect("an answer");
            let answer: serde_json::Value = serde_json::from_slice(&answer[..n]).expect("an object");
            assert!(answer["ok"] == true || answer["error"].as_str().is_some_and(|e| !e.is_empty()), "{answer}");
        }
        drop(unknown_client);
        if i % 50 == 0 {
            engine.client().request(&Request::List).expect("the door is open");
        }
    }
    until("all strangers have left", || stats(&engine, "g")["members"].as_array().is_some_and(Vec::is_empty));
    until("no descriptor is left behind", || open() <= before);
    assert!(!engine.end.load(Ordering::Relaxed));
}

#[test]
fn a_sink_sits_like_a_member_until_it_is_detached_and_strangers_get_no_files() {
    let ports = ["sink", "nosuch0"].map(str::to_owned).to_vec();
    let engine = Engine::limited(2, Limits { ports, ..Limits::here() });
    let registry = &engine.registry;
    // Guests of the door have small numbers, and say farewell when they go.
    let who = |uid, connection: u64| ClientIdentity { uid, pid: 1, connection: 1000 + connection };
    let attach = |port: Option<&str>, file: Option<&str>, weight| Request::Attach {
        group: "g".into(),
        port: port.map(str::to_owned),
        file: file.map(Into::into),
        max_bytes: 1000,
        classes: Vec::new(),
        weight,
        filter: None,
    };
    registry.create(who(1000, 1), &create("g", "copy", Policy::Shared)).expect("created");
    let why = |visitor, request: &Request| registry.attach(visitor, request).expect_err("refused");
    assert!(why(who(1000, 1), &attach(None, None, 1)).contains("either an interface or a file"));
    assert!(why(who(1000, 1), &attach(Some("sink"), Some("/x"), 1)).contains("either an interface or a file"));
    assert!(why(who(1000, 1), &attach(Some("nosuch0"), None, 1)).contains("no interface nosuch0"));
    assert!(why(who(1000, 1), &attach(Some("sink"), None, 0)).contains("weight"));
    let unknown_client = engine.registry.engine().uid + 1000;
    assert!(why(who(unknown_client, 1), &attach(None, Some("/x"), 1)).contains("only root"));
    assert!(why(who(0, 1), &attach(None, Some("/x"), 1)).contains("no file /x"), "root is let through to the engine");
    assert_eq!(registry.attach(who(1000, 1), &attach(Some("sink"), None, 1)), Ok(0));
    assert!(registry.join(who(1000, 2), &join("g")).is_ok_and(|joined| joined.slot == 1));
    assert!(registry.detach(who(1000, 1), "g", 1).is_err_and(|e| e.contains("is a process")));
    assert!(registry.detach(who(1000, 1), "g", 2).is_err_and(|e| e.contains("nobody sits")));
    engine.flow(true);
    until("packets flow", || engine.pushed() > 1000);
    engine.flow(false);
    until("everything was judged", || number(&stats(&engine, "g"), "received") == engine.pushed());
    registry.farewell(1001);
    let books = stats(&engine, "g");
    assert_eq!(
        (&books["members"][0]["name"], number(&books["members"][0], "delivered")),
        (&"interface sink".into(), engine.pushed())
    );
    assert_eq!(books["members"][0]["sink"]["interface"], "sink", "it stays when whoever attached it leaves: {books}");
    registry.detach(who(1000, 1), "g", 0).expect("detached");
    assert_eq!(number(&stats(&engine, "g")["departed"], "delivered"), engine.pushed());
}

#[test]
fn a_group_of_two_ports_deals_the_same_flow_of_both_to_one_member() {
    let engine = Engine::at(vec![("p0", 0), ("p1", 0)], Limits::here());
    let of = |ports: Option<&[&str]>, name: &str| {
        let ports = ports.map(|ports| ports.iter().map(|p| (*p).to_owned()).collect());
        let (program, policy) = (Some("steer".to_owned()), Policy::Shared);
        Request::Create { group: name.into(), program, policy, fold: false, ports, queues: None, ephemeral: false }
    };
    let ask = |request: Request| engine.client().request(&request);
    ask(of(Some(&["p0", "p1"]), "both")).expect("created");
    ask(of(None, "one")).expect("created");
    let error = ask(of(Some(&["p0", "p9"]), "none")).expect_err("no such port").to_string();
    assert!(error.contains("no interface \"p9\"") && error.contains("p0, p1"), "{error}");
    let again = ask(of(Some(&["p1"]), "both")).expect_err("there is one").to_string();
    assert!(again.contains("at p0, p1 already"), "{again}");
    // The door is p0's.
    assert_eq!(stats(&engine, "both")["sources"], serde_json::json!(["p0", "p1"]));
    assert_eq!(stats(&engine, "one")["sources"], serde_json::json!(["p0"]));
    assert_eq!(engine.client().join(&join("one")).expect("a seat").listeners.len(), 1);

    let seats: Vec<_> = (0..3).map(|_| engine.client().join(&join("both")).expect("a seat")).collect();
    engine.flow(true);
    until("packets flow", || engine.pushed() > 20_000);
    let swapped = ask(Request::Swap { group: "both".into(), program: Some("steer".into()) }).expect("sound").0;
    assert_eq!((swapped.generation, swapped.late), (Some(2), 0));
    until("they go on", || engine.pushed() > 40_000);
    engine.flow(false);
    until("all are judged", || number(&stats(&engine, "both"), "received") == engine.pushed());
    let books = stats(&engine, "both");
    assert_eq!(number(&books, "copies"), engine.pushed(), "each packet of either port went to one of the three");
    // Whom each flow went to, and by how many ports.
    let mut owners = std::collections::BTreeMap::new();
    for (member, mut seat) in seats.into_iter().enumerate() {
        assert_eq!(seat.listeners.len(), 2);
        for (port, listener) in seat.listeners.iter_mut().enumerate() {
            let mut descs = Vec::new();
            loop {
                listener.next(1000, &mut descs);
                if descs.is_empty() {
                    break;
                }
                for desc in descs.iter().filter(|d| d.is_packet()) {
                    let (owner, ports) = owners.entry(desc.hash).or_insert((member, [false; 2]));
                    assert_eq!(*owner, member, "flow {} went to two members", desc.hash);
                    ports[port] = true;
                }
            }
        }
    }
    assert_eq!(owners.len(), 1000);
    assert!(owners.values().all(|(_, ports)| *ports == [true; 2]), "both ports' packets of every flow");
}

/// Whether its request arrived before it was turned away or after.
#[test]
fn who_is_not_let_in_reads_why_however_fast_it_asks() {
    let test = "who_is_not_let_in_reads_why_however_fast_it_asks";
    if sys::cpu::effective_uid() != 0 {
        return testkit::skip(test, "needs root, to be somebody else");
    }
    let Some(mut unknown_client) = testkit::tool(test, "setpriv") else { return };
    if testkit::tool(test, "python3").is_none() {
        return;
    }
    let engine = Engine::start(1);
    std::fs::set_permissions(&engine.socket, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("its owner");
    let ask = "import socket,sys\n\
        for _ in range(50):\n  \
          s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n  \
          try: s.send(b'{\"do\":\"list\"}')\n  \
          except BrokenPipeError: pass\n  \
          print(s.recv(9999))\n";
    // Not one of root's own folders.
    unknown_client
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .args(["--reuid", "12345", "--clear-groups", "python3", "-c", ask])
        .arg(&engine.socket);
    let done = unknown_client.output().expect("it starts");
    let (said, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if said.is_empty() && (err.contains("python3") || err.contains("setpriv")) {
        return testkit::skip(test, "a stranger finds no python3");
    }
    let is_told =
        |line: &&str| line.contains("user 12345 may not use the groups here") && line.contains("--socket-group");
    let reported = said.lines().filter(is_told).count();
    assert_eq!(reported, 50, "{said}{err}");
}

#[test]
fn silence_of_a_user_of_the_group_keeps_neither_that_user_nor_the_owner_out() {
    let test = "silence_of_a_user_of_the_group_keeps_neither_that_user_nor_the_owner_out";
    const STRANGER: u32 = 12_345;
    if sys::cpu::effective_uid() != 0 {
        return testkit::skip(test, "needs root, to be somebody else");
    }
    let Some(mut unknown_client) = testkit::tool(test, "setpriv") else { return };
    if testkit::tool(test, "python3").is_none() {
        return;
    }
    let engine = Engine::start(1);
    engine.client().request(&create("g", "copy", Policy::Shared)).expect("created");
    let socket = engine.socket.with_extension("open");
    let listener = sys::unix::Listener::bind(&socket, 0o666, None, None).expect("a socket");
    let policy = ring::AttachPolicy { uid: Some(STRANGER), ..ring::AttachPolicy::default() };
    let _door = ControlServer::open(listener, std::sync::Arc::clone(&engine.registry), "p0", policy).expect("a thread");
    // More than one user may have. The first one has asked, and stays.
    let ask = "import socket,sys\n\
        def come():\n  \
          s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); return s\n\
        def ask(s):\n  \
          s.send(b'{\"do\":\"list\"}'); return s.recv(9999)\n\
        first = come(); print(ask(first))\n\
        silent = [come() for _ in range(200)]\n\
        print(ask(come())); first.recv(9999); print(ask(first))\n";
    unknown_client
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .args(["--reuid", &STRANGER.to_string(), "--clear-groups", "python3", "-c", ask])
        .arg(&socket);
    let done = unknown_client.output().expect("it starts");
    let _ = std::fs::remove_file(&socket);
    let (said, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if said.is_empty() && (err.contains("python3") || err.contains("setpriv")) {
        return testkit::skip(test, "a stranger finds no python3");
    }
    let answers: Vec<&str> = said.lines().collect();
    assert_eq!(answers.len(), 3, "{said}{err}");
    assert!(answers.iter().all(|answer| answer.contains("\"items\":1")), "{said}{err}");
}
