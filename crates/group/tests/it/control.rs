//! Groups as their clients use them: through the control socket, while packets flow.

use crate::support;

use base::Prng;
use netgrain_group::{ClientError, ClientIdentity, ControlServer, Generations, Limits, Policy, Request, RequestError};
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
    let request = Request::Stats { group: Some(group.into()) };
    engine.client().request(&request).expect("the accounting").1.remove(0)
}

fn number(v: &serde_json::Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {v}"))
}

/// Reads a branch to its end and returns the packets read, the packets lost and the last generation. Checks that each
/// packet's mark is the generation of the program that evaluated it, and that generations never decrease.
fn follow(mut l: Listener) -> (u64, u64, u64) {
    let (mut generations, mut descs, mut seen, mut lost, mut last) = (Generations::default(), Vec::new(), 0, 0, 0);
    while !l.ended() {
        l.next(1000, &mut descs);
        for d in &descs {
            if let Some(Control::Lost { packets, .. }) = d.as_control() {
                lost += packets;
            }
            if let Some(generation) = generations.follow(d).expect("consistent generations") {
                assert_eq!(u64::from(d.mark), generation, "the mark of the program with this generation");
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
fn a_new_group_receives_every_packet_from_the_reply_on() {
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
            let views = engine.registry.view(engine.registry.engine(), Some(&name), None).expect("the group exists");
            views[0].object()["received"].as_u64().expect("a number")
        };
        until("all packets are evaluated", || received() == pushed);
        // While there is no group, the dispatcher has no reader in the ring. So the dispatcher must join the ring again
        // for the next group.
        engine.registry.delete(engine.registry.engine(), &name).expect("the group exists");
    }
}

#[test]
fn a_member_that_sends_leave_reads_all_delivered_packets() {
    let engine = Engine::start(2);
    engine.client().request(&create("g", "mark 1", Policy::Shared)).expect("created");
    let leaving = engine.client().join(&join("g")).expect("joined");
    engine.flow(true);
    until("packets flow", || engine.pushed() > 1000);
    leaving.leave_handle().leave().expect("the request succeeds");
    let next = engine.client().join(&join("g")).expect("joined");
    assert_ne!(next.slot, leaving.slot, "the slot is occupied until the connection closes");
    // The branches of the leaving member end while packets continue to flow.
    let seen: u64 = leaving.listeners.into_iter().map(|l| follow(l).0).sum();
    engine.flow(false);
    let accounting = stats(&engine, "g");
    assert!(seen > 0 && number(&accounting["departed"], "delivered") == seen, "{seen} packets were read: {accounting}");
}

#[test]
fn a_thousand_swaps_under_load_lose_no_packet() {
    let engine = Engine::start(2);
    let client = engine.client();
    client.request(&create("g", "mark 1", Policy::Shared)).expect("created");
    let members: Vec<_> = (0..2).map(|_| engine.client().join(&join("g")).expect("joined")).collect();
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
    // Wait for packets in each ring: on a busy machine, one of the two rings may get no packet for a while.
    let at = engine.pushed_by_ring();
    until("packets of each ring are evaluated by the last program", || {
        engine.pushed_by_ring().iter().zip(&at).all(|(now, at)| *now > at + 500)
    });
    engine.flow(false);
    until("all packets are evaluated", || number(&stats(&engine, "g"), "received") == engine.pushed());
    let accounting = stats(&engine, "g");
    assert_eq!(
        (number(&accounting, "generation"), number(&accounting, "skipped"), number(&accounting, "dropped")),
        (1001, 0, 0)
    );
    assert_eq!(accounting["accounting_errors"], serde_json::json!([]));
    assert_eq!(number(&accounting, "passed"), engine.pushed());
    assert_eq!(
        number(&accounting["counters"], "evaluated"),
        engine.pushed(),
        "counters persist over swaps: {accounting}"
    );
    client.request(&Request::Delete { group: "g".into() }).expect("deleted");
    for (member, queues) in readers.into_iter().enumerate() {
        let reported: Vec<_> = queues.into_iter().map(|r| r.join().expect("no panic")).collect();
        let (seen, lost) = (reported.iter().map(|t| t.0).sum::<u64>(), reported.iter().map(|t| t.1).sum::<u64>());
        assert_eq!(seen + lost, engine.pushed(), "member {member}");
        assert!(reported.iter().all(|t| t.2 == 1001 || t.1 > 0), "{reported:?}");
    }
}

#[test]
fn a_flow_is_steered_to_one_member_and_a_new_member_moves_only_its_share() {
    let engine = Engine::start(1);
    engine.client().request(&create("g", "steer", Policy::Shared)).expect("created");
    let mut members: Vec<_> = (0..3).map(|_| engine.client().join(&join("g")).expect("joined")).collect();
    // Returns, for each flow hash, the slot of the member that received the packets with this hash.
    let steer_all_flows = |members: &mut [netgrain_group::MemberSession]| {
        let at = engine.pushed();
        engine.flow(true);
        until("every flow has sent a packet", || engine.pushed() > at + 3000);
        engine.flow(false);
        until("all packets are evaluated", || number(&stats(&engine, "g"), "received") == engine.pushed());
        let mut member_by_hash = std::collections::BTreeMap::new();
        let mut descs = Vec::new();
        for m in members {
            let l = &mut m.listeners[0];
            while l.lag() > 0 {
                l.next(1000, &mut descs);
                for d in descs.iter().filter(|d| d.is_packet()) {
                    let before = member_by_hash.insert(d.hash, m.slot);
                    assert!(before.is_none_or(|b| b == m.slot), "flow {} went to two members", d.hash);
                }
            }
        }
        member_by_hash
    };
    let three = steer_all_flows(&mut members);
    assert_eq!(three.len(), 1000, "every flow has a member");
    members.push(engine.client().join(&join("g")).expect("joined"));
    let four = steer_all_flows(&mut members);
    let moved: Vec<_> = three.iter().filter(|(hash, slot)| four[hash] != **slot).collect();
    assert!(moved.iter().all(|(hash, _)| four[hash] == 3), "a flow moved to a member other than the new one");
    assert!((180..320).contains(&moved.len()), "{} of 1000 moved", moved.len());
    let gone = members.remove(1);
    drop(gone);
    until("the member has left", || stats(&engine, "g")["members"].as_array().is_some_and(|m| m.len() == 3));
    let left = steer_all_flows(&mut members);
    for (hash, slot) in &four {
        assert!(
            left[hash] == *slot || *slot == 1,
            "flow {hash} moved from {slot} although its member is still in the group"
        );
    }
    let rejoined = engine.client().join(&join("g")).expect("joined");
    assert_eq!(rejoined.slot, 1, "the lowest free slot is the previous one");
    members.push(rejoined);
    assert_eq!(steer_all_flows(&mut members), four, "the member receives its previous flows again");
    assert_eq!(stats(&engine, "g")["accounting_errors"], serde_json::json!([]));
}

#[test]
fn groups_are_independent_and_members_receive_only_their_classes() {
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
    assert!(refused(&class("management")).contains("receive no packets"));
    assert!(refused(&class("64")).contains("not a class"));
    assert!(refused(&join("c")).contains("the engine has a, b, none"));
    let mut a = engine.client().join(&class("default")).expect("joined");
    let user = engine.client().join(&class("user")).expect("joined");
    let mut b = engine.client().join(&join("b")).expect("joined");
    engine.flow(true);
    until("packets flow", || engine.pushed() > 2000);
    engine.flow(false);
    until("all packets are evaluated", || number(&stats(&engine, "b"), "received") == engine.pushed());
    let mut descs = Vec::new();
    for (l, mark) in [(&mut a.listeners[0], 7), (&mut b.listeners[0], 0)] {
        let mut seen = 0;
        while l.lag() > 0 {
            l.next(1000, &mut descs);
            for d in descs.iter().filter(|d| d.is_packet()) {
                assert_eq!(d.mark, mark, "the mark of the own group");
                seen += 1;
            }
        }
        assert_eq!(seen, engine.pushed());
    }
    assert_eq!(user.listeners[0].lag(), 0, "no packet is for this class");
    let (none, a) = (stats(&engine, "none"), stats(&engine, "a"));
    assert_eq!(number(&none, "dropped"), engine.pushed());
    assert_eq!(number(&a["classes"]["default"], "packets"), engine.pushed());
    assert_eq!(number(&a["classes"]["user"], "packets"), 0);
}

#[test]
fn policies_are_applied_to_the_user_and_process_of_the_client() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    let identity = |uid, pid, connection| ClientIdentity { uid, pid, connection };
    let owner = identity(1000, 10, 1);
    for (name, policy) in [("mine", Policy::Private), ("ours", Policy::Restricted), ("all", Policy::Shared)] {
        registry.create(owner, &create(name, "steer", policy)).expect("created");
    }
    let may = |client, group| registry.join(client, &join(group)).is_ok();
    let (same_process, same_user, unknown_client, root) =
        (identity(1000, 10, 2), identity(1000, 11, 3), identity(1001, 12, 4), identity(0, 13, 5));
    assert_eq!(["mine", "ours", "all"].map(|g| may(same_process, g)), [true, true, true]);
    assert_eq!(["mine", "ours", "all"].map(|g| may(same_user, g)), [false, true, true]);
    assert_eq!(["mine", "ours", "all"].map(|g| may(unknown_client, g)), [false, false, true]);
    assert_eq!(["mine", "ours", "all"].map(|g| may(root, g)), [true, true, true]);
    assert!(
        registry.swap(unknown_client, "ours", None).is_err_and(|e| e.to_string().contains("restricted to user 1000"))
    );
    assert!(registry.delete(same_user, "mine").is_err_and(|e| e.to_string().contains("private to process 10")));
    assert!(registry.program(unknown_client, "ours").is_err());
    // Nine members joined through four connections; the private group ends with the connection that created it.
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
fn limits_are_reported_and_a_full_group_rejects_members() {
    let engine = Engine::start(1);
    let registry = &engine.registry;
    let identity = ClientIdentity { uid: 0, pid: 1, connection: 1 };
    for i in 0..64 {
        registry.create(identity, &create(&format!("g{i}"), "copy", Policy::Shared)).expect("created");
    }
    let error =
        registry.create(identity, &create("one-more", "copy", Policy::Shared)).expect_err("the limit of groups");
    assert!(matches!(error, RequestError::TooManyGroups));
    let refused = |name| registry.create(identity, &create(name, "copy", Policy::Shared)).expect_err("refused");
    assert!(matches!(refused("g1"), RequestError::GroupExists { .. }));
    assert!(matches!(refused("a b"), RequestError::GroupName(_)));
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
        registry.create(identity, &queues).is_err_and(
            |e| e.to_string().contains("no queue 5; ") && e.to_string().contains("has queue 0 in this engine")
        )
    );
    for _ in 0..64 {
        registry.join(identity, &join("g0")).expect("joined");
    }
    assert!(registry.join(identity, &join("g0")).is_err_and(|e| e.to_string().contains("has 64 members")));
    for weight in [0, 65] {
        let heavy = Request::Join {
            group: "g1".into(),
            classes: Vec::new(),
            weight,
            filter: None,
            descs: 0,
            name: String::new(),
        };
        assert!(registry.join(identity, &heavy).is_err_and(|e| e.to_string().contains("weight")));
    }
}

#[test]
fn random_messages_get_an_error_response_and_the_socket_keeps_serving() {
    let mut random = Prng::new(testkit::seed("random_messages_get_an_error_response_and_the_socket_keeps_serving"));
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
            let (n, _) = unknown_client.receive(&mut answer).expect("a response");
            let answer: serde_json::Value = serde_json::from_slice(&answer[..n]).expect("an object");
            assert!(answer["ok"] == true || answer["error"].as_str().is_some_and(|e| !e.is_empty()), "{answer}");
        }
        drop(unknown_client);
        if i % 50 == 0 {
            engine.client().request(&Request::List).expect("the socket is served");
        }
    }
    until("all clients have left", || stats(&engine, "g")["members"].as_array().is_some_and(Vec::is_empty));
    until("all file descriptors are closed", || open() <= before);
    assert!(!engine.end.load(Ordering::Relaxed));
}

#[test]
fn a_sink_is_a_member_until_detached_and_only_privileged_users_get_files() {
    let ports = ["sink", "nosuch0"].map(str::to_owned).to_vec();
    let engine = Engine::limited(2, Limits { ports, ..Limits::here() });
    let registry = &engine.registry;
    // This test calls the registry directly, not through the control socket. It adds 1000 to the numbers of its
    // connections, so that they differ from those of the connections at the control socket.
    let identity = |uid, connection: u64| ClientIdentity { uid, pid: 1, connection: 1000 + connection };
    let attach = |port: Option<&str>, file: Option<&str>, weight| Request::Attach {
        group: "g".into(),
        port: port.map(str::to_owned),
        file: file.map(Into::into),
        max_bytes: 1000,
        classes: Vec::new(),
        weight,
        filter: None,
    };
    registry.create(identity(1000, 1), &create("g", "copy", Policy::Shared)).expect("created");
    let why = |client, request: &Request| registry.attach(client, request).expect_err("refused").to_string();
    assert!(why(identity(1000, 1), &attach(None, None, 1)).contains("either an interface or a file"));
    assert!(why(identity(1000, 1), &attach(Some("sink"), Some("/x"), 1)).contains("either an interface or a file"));
    assert!(why(identity(1000, 1), &attach(Some("nosuch0"), None, 1)).contains("no interface nosuch0"));
    assert!(why(identity(1000, 1), &attach(Some("sink"), None, 0)).contains("weight"));
    let unknown_client = engine.registry.engine().uid + 1000;
    assert!(why(identity(unknown_client, 1), &attach(None, Some("/x"), 1)).contains("only root"));
    assert!(
        why(identity(0, 1), &attach(None, Some("/x"), 1)).contains("no file /x"),
        "the request of root reaches the engine"
    );
    assert_eq!(registry.attach(identity(1000, 1), &attach(Some("sink"), None, 1)).expect("a free slot"), 0);
    assert!(registry.join(identity(1000, 2), &join("g")).is_ok_and(|joined| joined.slot == 1));
    assert!(registry.detach(identity(1000, 1), "g", 1).is_err_and(|e| e.to_string().contains("is a process")));
    assert!(registry.detach(identity(1000, 1), "g", 2).is_err_and(|e| e.to_string().contains("has no member")));
    engine.flow(true);
    until("packets flow", || engine.pushed() > 1000);
    engine.flow(false);
    until("all packets are evaluated", || number(&stats(&engine, "g"), "received") == engine.pushed());
    registry.farewell(1001);
    let accounting = stats(&engine, "g");
    assert_eq!(
        (&accounting["members"][0]["name"], number(&accounting["members"][0], "delivered")),
        (&"interface sink".into(), engine.pushed())
    );
    assert_eq!(
        accounting["members"][0]["sink"]["interface"], "sink",
        "the sink remains when the client that attached it disconnects: {accounting}"
    );
    registry.detach(identity(1000, 1), "g", 0).expect("detached");
    assert_eq!(number(&stats(&engine, "g")["departed"], "delivered"), engine.pushed());
}

#[test]
fn a_group_of_two_interfaces_steers_a_flow_of_both_to_one_member() {
    let engine = Engine::at(vec![("p0", 0), ("p1", 0)], Limits::here());
    let of = |ports: Option<&[&str]>, name: &str| {
        let ports = ports.map(|ports| ports.iter().map(|p| (*p).to_owned()).collect());
        let (program, policy) = (Some("steer".to_owned()), Policy::Shared);
        Request::Create { group: name.into(), program, policy, fold: false, ports, queues: None, ephemeral: false }
    };
    let send = |request: Request| engine.client().request(&request);
    send(of(Some(&["p0", "p1"]), "both")).expect("created");
    send(of(None, "one")).expect("created");
    let error = send(of(Some(&["p0", "p9"]), "none")).expect_err("no such interface").to_string();
    assert!(error.contains("no interface \"p9\"") && error.contains("p0, p1"), "{error}");
    let error = send(of(Some(&["p1"]), "both")).expect_err("the group exists").to_string();
    assert!(error.contains("already exists on p0, p1"), "{error}");
    // The control socket belongs to p0, so the group `one`, which was created without interfaces, is on p0.
    assert_eq!(stats(&engine, "both")["sources"], serde_json::json!(["p0", "p1"]));
    assert_eq!(stats(&engine, "one")["sources"], serde_json::json!(["p0"]));
    assert_eq!(engine.client().join(&join("one")).expect("joined").listeners.len(), 1);

    let sessions: Vec<_> = (0..3).map(|_| engine.client().join(&join("both")).expect("joined")).collect();
    engine.flow(true);
    until("packets flow", || engine.pushed() > 20_000);
    let swapped = send(Request::Swap { group: "both".into(), program: Some("steer".into()) }).expect("accepted").0;
    assert_eq!((swapped.generation, swapped.late), (Some(2), 0));
    until("packets continue to flow", || engine.pushed() > 40_000);
    engine.flow(false);
    until("all packets are evaluated", || number(&stats(&engine, "both"), "received") == engine.pushed());
    let accounting = stats(&engine, "both");
    assert_eq!(
        number(&accounting, "copies"),
        engine.pushed(),
        "each packet of both interfaces went to one of the three members"
    );
    // For each flow: the member that got its packets, and for each interface whether packets of the flow arrived there.
    let mut owners = std::collections::BTreeMap::new();
    for (member, mut session) in sessions.into_iter().enumerate() {
        assert_eq!(session.listeners.len(), 2);
        for (port, listener) in session.listeners.iter_mut().enumerate() {
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
    assert!(owners.values().all(|(_, ports)| *ports == [true; 2]), "every flow has packets of both interfaces");
}

/// The request of a refused client may arrive before or after the engine sends the refusal.
#[test]
fn a_refused_client_reads_the_reason_even_if_it_sends_at_once() {
    let test = "a_refused_client_reads_the_reason_even_if_it_sends_at_once";
    if sys::cpu::effective_uid() != 0 {
        return testkit::skip(test, "needs root, to change the user id");
    }
    let Some(mut unknown_client) = testkit::tool(test, "setpriv") else { return };
    if testkit::tool(test, "python3").is_none() {
        return;
    }
    let engine = Engine::start(1);
    std::fs::set_permissions(&engine.socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("the owner changes the mode");
    let script = "import socket,sys\n\
        for _ in range(50):\n  \
          s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n  \
          try: s.send(b'{\"do\":\"list\"}')\n  \
          except BrokenPipeError: pass\n  \
          print(s.recv(9999))\n";
    // The unprivileged user cannot read root's own directories, so they must not be in PATH.
    unknown_client
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .args(["--reuid", "12345", "--clear-groups", "python3", "-c", script])
        .arg(&engine.socket);
    let done = unknown_client.output().expect("setpriv starts");
    let (stdout, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if stdout.is_empty() && (err.contains("python3") || err.contains("setpriv")) {
        return testkit::skip(test, "python3 cannot be run as an unprivileged user");
    }
    let is_refusal = |line: &&str| {
        line.contains("user 12345 may not use the groups of this engine") && line.contains("--socket-group")
    };
    let reported = stdout.lines().filter(is_refusal).count();
    assert_eq!(reported, 50, "{stdout}{err}");
}

#[test]
fn idle_connections_of_a_user_lock_out_neither_that_user_nor_the_owner() {
    let test = "idle_connections_of_a_user_lock_out_neither_that_user_nor_the_owner";
    const UNPRIVILEGED_USER: u32 = 12_345;
    if sys::cpu::effective_uid() != 0 {
        return testkit::skip(test, "needs root, to change the user id");
    }
    let Some(mut unknown_client) = testkit::tool(test, "setpriv") else { return };
    if testkit::tool(test, "python3").is_none() {
        return;
    }
    let engine = Engine::start(1);
    engine.client().request(&create("g", "copy", Policy::Shared)).expect("created");
    let socket = engine.socket.with_extension("open");
    let listener = sys::unix::Listener::bind(&socket, 0o666, None, None).expect("a socket");
    let policy = ring::AttachPolicy { uid: Some(UNPRIVILEGED_USER), ..ring::AttachPolicy::default() };
    let _server =
        ControlServer::open(listener, std::sync::Arc::clone(&engine.registry), "p0", policy).expect("a thread");
    // The script opens more connections than one user may have. The first connection has sent a request, so the engine
    // does not close it.
    let script = "import socket,sys\n\
        def connect():\n  \
          s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); return s\n\
        def request(s):\n  \
          s.send(b'{\"do\":\"list\"}'); return s.recv(9999)\n\
        first = connect(); print(request(first))\n\
        idle = [connect() for _ in range(200)]\n\
        print(request(connect())); first.recv(9999); print(request(first))\n";
    unknown_client
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .args(["--reuid", &UNPRIVILEGED_USER.to_string(), "--clear-groups", "python3", "-c", script])
        .arg(&socket);
    let done = unknown_client.output().expect("setpriv starts");
    let _ = std::fs::remove_file(&socket);
    let (stdout, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if stdout.is_empty() && (err.contains("python3") || err.contains("setpriv")) {
        return testkit::skip(test, "python3 cannot be run as an unprivileged user");
    }
    let answers: Vec<&str> = stdout.lines().collect();
    assert_eq!(answers.len(), 3, "{stdout}{err}");
    assert!(answers.iter().all(|answer| answer.contains("\"items\":1")), "{stdout}{err}");
}
