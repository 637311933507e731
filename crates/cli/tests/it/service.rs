//! `netgrain record` as the service manager sees it, and the unit that it is started from.

use crate::common;

use common::{PATIENCE, Running, arg, netgrain, signal, until, walk};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use testkit::TempDir;

/// The next message, which must come.
fn hear(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let n = socket.recv(&mut bytes).expect("a message");
    String::from_utf8(bytes[..n].to_vec()).expect("text")
}

fn hear_until(socket: &UnixDatagram, wanted: &str) -> Vec<String> {
    let mut heard = Vec::new();
    while !heard.last().is_some_and(|m: &String| m.lines().any(|l| l.starts_with(wanted))) {
        heard.push(hear(socket));
    }
    heard
}

#[test]
fn readiness_state_watchdog_and_the_end_are_told() {
    let dir = TempDir::new("service");
    let hidden = format!("netgrain-service-{}", std::process::id());
    let path = dir.join("notify");
    let abstract_one =
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&hidden).expect("a name")).expect("bind");
    let named = UnixDatagram::bind(&path).expect("bind");
    for (socket, name) in [(named, arg(&path).to_owned()), (abstract_one, format!("@{hidden}"))] {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let store = dir.join("store");
        let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "-q"];
        let mut command = netgrain(&args);
        command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", "10000000").env_remove("WATCHDOG_PID");
        let (recorder, err) = Running::start(&mut command);
        assert_eq!(hear(&socket).lines().next(), Some("READY=1"));
        let heard = hear_until(&socket, "WATCHDOG=1");
        let status = heard.iter().find_map(|m| m.strip_prefix("STATUS=")).expect("a state in words");
        assert!(status.contains("packets stored, 0 lost, ring "), "{status}");
        signal(&recorder.0, "TERM");
        hear_until(&socket, "STOPPING=1");
        assert_eq!(recorder.end(err).status, Some(0));
    }
}

#[test]
fn without_a_watchdog_none_is_fed_and_a_manager_that_has_gone_disturbs_nobody() {
    let dir = TempDir::new("service-gone");
    let path = dir.join("notify");
    let socket = UnixDatagram::bind(&path).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let store = dir.join("store");
    // Two thousand packets take two seconds: the state is sent at least once.
    let sim = "60,rate=1kpps,packets=2k";
    let args = ["record", "--sim", sim, "--ring", "8MiB", "--store", arg(&store), "-q"];
    let mut command = netgrain(&args);
    command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_USEC");
    let (recorder, err) = Running::start(&mut command);
    let heard = hear_until(&socket, "STOPPING=1");
    assert!(heard.iter().all(|m| !m.contains("WATCHDOG")), "{heard:?}");
    assert_eq!(recorder.end(err).status, Some(0));
    drop(socket);
    std::fs::remove_file(&path).expect("the socket");
    let (recorder, err) = Running::start(&mut command);
    assert_eq!(recorder.end(err).status, Some(0));
}

/// The folder of the units.
fn units() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd")
}

/// Recording one port, and everything of a configuration.
const UNITS: [&str; 2] = ["netgrain-record@.service", "netgrain-run@.service"];

#[test]
fn the_units_are_such_as_the_service_manager_takes() {
    let test = "the_units_are_such_as_the_service_manager_takes";
    if testkit::tool(test, "systemd-analyze").is_none() {
        return;
    }
    for name in UNITS {
        let dir = TempDir::new(name);
        // The program that the unit names is not installed here; every other line is as it is.
        let text = std::fs::read_to_string(units().join(name)).expect("the unit");
        let unit = dir.join(name);
        std::fs::write(&unit, text.replace("/usr/bin/netgrain", env!("CARGO_BIN_EXE_netgrain"))).expect("a copy");
        let more = dir.join(format!("{name}.d"));
        std::fs::create_dir(&more).expect("a folder");
        std::fs::copy(units().join("netgrain-record-programs.conf"), more.join("programs.conf")).expect("a copy");
        let mut tool = std::process::Command::new("systemd-analyze");
        let said = common::say(tool.args(["verify", "--man=no", arg(&unit)]));
        let ours: Vec<&str> = said.err.lines().chain(said.out.lines()).filter(|l| l.contains("netgrain")).collect();
        assert!(ours.is_empty(), "{said:?}");
        let mut tool = std::process::Command::new("systemd-analyze");
        let said = common::say(tool.args(["security", "--offline=yes", "--no-pager", arg(&unit)]));
        let exposure = said
            .out
            .lines()
            .find_map(|l| l.split_once("Overall exposure level for ")?.1.split(' ').nth(1)?.parse::<f64>().ok());
        let Some(exposure) = exposure else { return testkit::skip(test, "this systemd-analyze cannot judge a file") };
        // 10 is everything open; a service that administers ports cannot reach 0.
        assert!(exposure < 3.0, "{exposure}: {}", said.out);
    }
}

#[test]
fn the_units_give_what_capturing_takes_and_no_more_and_are_hardened_alike() {
    let texts = UNITS.map(|name| std::fs::read_to_string(units().join(name)).expect("the unit"));
    let wanted = sys::privilege::CAPTURE.with(sys::privilege::CAPTURE_OPTIONAL).to_string();
    for (text, key) in texts.iter().flat_map(|text| [(text, "AmbientCapabilities="), (text, "CapabilityBoundingSet=")])
    {
        let line = text.lines().find_map(|l| l.strip_prefix(key)).expect(key);
        assert_eq!(line, wanted, "{key}");
    }
    // Everything but what is started and how it is described.
    let own = ["Description=", "Documentation=", "ExecStart=", "ExecReload="];
    let settings = texts.each_ref().map(|text| {
        let plain = |l: &&str| !l.starts_with('#') && !own.iter().any(|own| l.starts_with(own));
        text.lines().filter(plain).collect::<Vec<_>>()
    });
    assert_eq!(settings[0], settings[1]);
}

#[test]
fn the_units_keep_what_a_killed_recorder_was_offered_until_the_next_start() {
    assert!(Path::new(store::offered_page::FOLDER).starts_with("/dev/shm"), "elsewhere RemoveIPC= does not matter");
    for name in UNITS {
        let text = std::fs::read_to_string(units().join(name)).expect("the unit");
        let removes = text.lines().filter_map(|line| line.strip_prefix("RemoveIPC=")).collect::<Vec<_>>();
        assert_eq!(removes, ["no"], "{name}: the manager removes POSIX shared memory of User= before Restart=");
        assert!(!text.lines().any(|line| line.starts_with("DynamicUser=yes")), "{name}: implies RemoveIPC=yes");
    }
}

/// The words of the line that starts a unit's program, for an instance.
fn started(unit: &str, instance: &str) -> Vec<String> {
    let text = std::fs::read_to_string(units().join(unit)).expect("the unit");
    let line = text.lines().find_map(|l| l.strip_prefix("ExecStart=/usr/bin/netgrain ")).expect("a line").to_owned();
    let words = line.split(' ').filter(|word| *word != "$NETGRAIN_OPTIONS").map(|word| word.replace("%I", instance));
    words.collect()
}

#[test]
fn what_the_unit_of_run_starts_runs_and_tells_its_manager() {
    let dir = TempDir::new("service-run");
    let path = dir.join("notify");
    let socket = UnixDatagram::bind(&path).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::fs::write(dir.join("home.toml"), "[packets]\nrotate = \"1min\"\n").expect("a configuration");
    // The folders of the unit are not here, nor is its group; the source is one that every machine has.
    let mut words = started("netgrain-run@.service", "home");
    for word in &mut words {
        *word = word.replace("/etc/netgrain", arg(dir.path())).replace("/var/lib/netgrain", arg(dir.path()));
    }
    let group = words.iter().position(|word| word == "listen.group=netgrain").expect("the group of the sockets");
    words.drain(group - 1..=group);
    words.extend(["--sim", "60,rate=1kpps"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = netgrain(&words);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "10000000").env_remove("WATCHDOG_PID");
    let (running, err) = Running::start(&mut command);
    assert_eq!(hear(&socket).lines().next(), Some("READY=1"));
    hear_until(&socket, "WATCHDOG=1");
    signal(&running.0, "TERM");
    hear_until(&socket, "STOPPING=1");
    let said = running.end(err);
    assert_eq!(said.status, Some(0), "{said:?}");
}

#[test]
fn a_program_of_the_port_takes_the_drop_in_and_the_drop_in_gives_no_more() {
    let text = std::fs::read_to_string(units().join("netgrain-record-programs.conf")).expect("the drop-in");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/privileges.md");
    let docs = std::fs::read_to_string(docs).expect("the page");
    let settings: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with(['#', '['])).collect();
    let wanted = ["CapabilityBoundingSet=CAP_PERFMON", "AmbientCapabilities=CAP_PERFMON", "RestrictRealtime=no"];
    assert_eq!(settings, [&wanted[..], &["ExecReload=kill -HUP $MAINPID"]].concat());
    for said in [
        "; the drop-in for programs says `no`",
        "| `record -i --program` | also `CAP_PERFMON` |",
        "dist/systemd/netgrain-record-programs.conf",
    ] {
        assert!(docs.contains(said), "{said}");
    }
    // What the drop-in says of the unit that it is for.
    let unit = std::fs::read_to_string(units().join("netgrain-record@.service")).expect("the unit");
    assert!(
        unit.contains("\nMemoryDenyWriteExecute=yes\n")
            && text.contains("MemoryDenyWriteExecute=yes of the unit stays")
    );
}

/// The system calls that a line of the unit lets through, with the sets of the service manager resolved.
fn calls(names: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in names.split(' ') {
        if !name.starts_with('@') {
            all.insert(name.to_owned());
            continue;
        }
        let said =
            common::say(std::process::Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", name]));
        let inner = said.out.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#']) && *l != name);
        for call in inner {
            all.extend(calls(call));
        }
    }
    all
}

/// What the last line with this key in the texts says.
fn setting<'a>(texts: &[&'a str], key: &str) -> &'a str {
    texts.iter().flat_map(|text| text.lines()).rev().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).expect(key)
}

/// Why the service manager would not let this call through, of a line of strace's, by what is asked for with it.
fn refused_by_argument(call: &str, settings: &[&str]) -> Option<&'static str> {
    let (name, arguments) = call.split_once('(')?;
    let has = |what: &str| arguments.contains(what);
    let forbids = |key: &str| setting(settings, key) == "yes";
    match name {
        "sched_setscheduler" | "sched_setattr" if has("SCHED_FIFO") || has("SCHED_RR") => {
            forbids("RestrictRealtime").then_some("RestrictRealtime")
        }
        "mmap" if has("PROT_WRITE") && has("PROT_EXEC") => forbids("MemoryDenyWriteExecute").then_some("memory"),
        "mprotect" | "pkey_mprotect" if has("PROT_EXEC") => forbids("MemoryDenyWriteExecute").then_some("memory"),
        "clone" | "clone3" | "unshare" | "setns" if has("CLONE_NEW") || name == "setns" => {
            forbids("RestrictNamespaces").then_some("RestrictNamespaces")
        }
        "socket" => {
            let family = arguments.split(',').next()?;
            let known = setting(settings, "RestrictAddressFamilies").split(' ').any(|one| one == family);
            (!known).then_some("RestrictAddressFamilies")
        }
        "openat" if has("O_WRONLY") || has("O_RDWR") => {
            let sealed = ["\"/proc/sys/", "\"/sys/", "\"/dev/net/", "\"/dev/cpu"].iter().any(|begin| has(begin));
            (sealed && forbids("ProtectKernelTunables") && forbids("PrivateDevices")).then_some("Protect…")
        }
        _ => None,
    }
}

#[test]
fn every_system_call_of_a_recorder_is_one_that_the_unit_lets_through() {
    let test = "every_system_call_of_a_recorder_is_one_that_the_unit_lets_through";
    let Some(sandbox) = testkit::Sandbox::new(test) else { return };
    if testkit::tool(test, "systemd-analyze").is_none() {
        return;
    }
    let [unit, run, programs] = [UNITS[0], UNITS[1], "netgrain-record-programs.conf"]
        .map(|name| std::fs::read_to_string(units().join(name)).expect("its text"));
    // Each line adds to what the ones before it let through, or takes away; the lines of both units are the same.
    let mut allowed = BTreeSet::new();
    for line in unit.lines().filter_map(|l| l.strip_prefix("SystemCallFilter=")) {
        match line.strip_prefix('~') {
            Some(names) => {
                let taken = calls(names);
                allowed.retain(|call| !taken.contains(call));
            }
            None => allowed.extend(calls(line)),
        }
    }
    assert!(allowed.len() > 100, "{allowed:?}");
    let dir = TempDir::new("calls");
    let file = dir.join("program.ng");
    let program = ["--program", arg(&file)];
    // What is asked for beside the usual, and whether a program is exchanged.
    let cases = [
        ("record af-xdp", &[][..], false),
        ("record tpacket", &[], false),
        ("record af-xdp with a program", &program, true),
        ("run tpacket with a program", &program, true),
    ];
    for (case, more, exchanges) in cases {
        std::fs::write(&file, "main = udp >-> steer_flow\n").expect("a program");
        let unit = if case.starts_with("run") { &run } else { &unit };
        let settings: Vec<&str> = if exchanges { vec![unit, &programs] } else { vec![unit] };
        let Some(mut strace) = testkit::tool(test, "strace") else { return };
        let (a, _b) = sandbox.veth("va", "vb");
        let mut words = case.split(' ');
        let (verb, kind) = (words.next().expect("a verb"), words.next().expect("a kind"));
        let trace = dir.join(case);
        strace.args(["-f", "-qq", "-e", "signal=none", "-o", arg(&trace), env!("CARGO_BIN_EXE_netgrain")]);
        let store = dir.join(format!("store of {case}"));
        let socket = format!("listen.socket={}", dir.join("s").display());
        strace.args([
            verb,
            "-i",
            "vb",
            "--store",
            arg(&store),
            "-q",
            "--source-kind",
            kind,
            "--metrics",
            "127.0.0.1:0",
        ]);
        match verb {
            "run" => strace.args(["--set", &socket, "--ring", "8MiB", "--rotate", "1s"]),
            _ => strace.args(["--socket", &socket["listen.socket=".len()..], "--ring", "8MiB", "--rotate", "1s"]),
        };
        strace.args(more);
        let (recorder, mut err) = Running::start(&mut strace);
        let mut exchanged = String::new();
        let frames = vec![vec![0x5a; 600]; 100];
        let tracer = recorder.0.id();
        let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).expect("proc");
        let traced = children.split(' ').next().expect("a child");
        let kill = |signal: &str| {
            let kill = format!("kill -{signal} {traced}");
            assert!(std::process::Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
        };
        let wire = testkit::RawSender::new(&a);
        if exchanges {
            std::fs::write(&file, "main = tcp >-> steer_flow\n").expect("another");
            kill("HUP");
            while !exchanged.contains("generation 2") {
                assert!(err.read_line(&mut exchanged).expect("text") > 0, "it ended too early: {exchanged}");
            }
            wire.send(&frames);
        } else {
            wire.send(&frames);
            // The calls of writing and of publishing are in the trace, too. Single frames: the traced recorder is slow.
            until("a file is published", || {
                wire.send(&frames[..1]);
                walk(&store).iter().any(|path| path.extension().is_some_and(|e| e == "pcap"))
            });
        }
        kill("TERM");
        let said = recorder.end(err);
        assert_eq!(said.status, Some(0), "{said:?}");
        assert_eq!(exchanged.contains("generation 2"), exchanges, "{said:?}");
        let trace = std::fs::read_to_string(&trace).expect("a trace");
        // `1234 openat(…`; the call that begins a process is made before the filter is.
        let lines = || trace.lines().filter_map(|l| Some(l.split_once(' ')?.1.trim_start()));
        let used: BTreeSet<&str> = lines()
            .filter_map(|l| Some(l.split_once('(')?.0))
            .filter(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
            .collect();
        assert!(used.contains("io_uring_enter") && used.contains("capset"), "{used:?}");
        // Root gives up its groups; the user of the unit may not, and does not try.
        let refused: Vec<&&str> = used.iter().filter(|c| !allowed.contains(**c) && **c != "setgroups").collect();
        assert!(refused.is_empty(), "{case}: {refused:?}");
        let refused: Vec<_> = lines().filter_map(|l| refused_by_argument(l, &settings).map(|why| (why, l))).collect();
        assert!(refused.is_empty(), "{case}: {refused:?}");
        // Behind the filter of the program itself, nothing was tried that it refuses.
        let behind =
            lines().skip_while(|l| !l.starts_with("seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC"));
        let refused: Vec<&str> = behind.clone().filter(|l| l.contains("= -1 ENOSYS")).collect();
        assert!(behind.count() > 100 && refused.is_empty(), "{case}: {refused:?}");
        let first = lines().any(|l| l.starts_with("sched_setscheduler(") && l.contains("SCHED_FIFO"));
        assert_eq!(first, exchanges, "{case}: what the drop-in lifts is what it is for");
        let index = sandbox.netlink().link("va").expect("a port").index;
        sandbox.netlink().delete_link(index).expect("it goes");
    }
}
