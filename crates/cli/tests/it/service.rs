//! Tests `netgrain record` and `run` under the service manager: their notifications, and the privileges that their
//! units grant.

use crate::common;

use common::{Running, WAIT_MAX, arg, netgrain, signal, until, walk};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use testkit::TempDir;

/// Receives the next notification.
fn receive(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let n = socket.recv(&mut bytes).expect("a message");
    String::from_utf8(bytes[..n].to_vec()).expect("text")
}

fn receive_until(socket: &UnixDatagram, expected: &str) -> Vec<String> {
    let mut received = Vec::new();
    while !received.last().is_some_and(|m: &String| m.lines().any(|l| l.starts_with(expected))) {
        received.push(receive(socket));
    }
    received
}

#[test]
fn the_service_manager_is_notified_of_readiness_status_and_end() {
    let dir = TempDir::new("service");
    let hidden = format!("netgrain-service-{}", std::process::id());
    let path = dir.join("notify");
    let abstract_socket =
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&hidden).expect("a name")).expect("bind");
    let named = UnixDatagram::bind(&path).expect("bind");
    for (socket, name) in [(named, arg(&path).to_owned()), (abstract_socket, format!("@{hidden}"))] {
        socket.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
        let store = dir.join("store");
        let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "-q"];
        let mut command = netgrain(&args);
        command.env("NOTIFY_SOCKET", &name).env("WATCHDOG_USEC", "10000000").env_remove("WATCHDOG_PID");
        let (recorder, err) = Running::start(&mut command);
        assert_eq!(receive(&socket).lines().next(), Some("READY=1"));
        let received = receive_until(&socket, "WATCHDOG=1");
        let status = received.iter().find_map(|m| m.strip_prefix("STATUS=")).expect("a status text");
        assert!(status.contains("packets stored, 0 lost, ring "), "{status}");
        signal(&recorder.0, "TERM");
        receive_until(&socket, "STOPPING=1");
        assert_eq!(recorder.end(err).status, Some(0));
    }
}

#[test]
fn no_watchdog_is_notified_unless_set_and_a_closed_socket_is_ignored() {
    let dir = TempDir::new("service-closed");
    let path = dir.join("notify");
    let socket = UnixDatagram::bind(&path).expect("bind");
    socket.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    let store = dir.join("store");
    // 2000 packets take two seconds, so that the status is sent at least once.
    let sim = "60,rate=1kpps,packets=2k";
    let args = ["record", "--sim", sim, "--ring", "8MiB", "--store", arg(&store), "-q"];
    let mut command = netgrain(&args);
    command.env("NOTIFY_SOCKET", &path).env_remove("WATCHDOG_USEC");
    let (recorder, err) = Running::start(&mut command);
    let received = receive_until(&socket, "STOPPING=1");
    assert!(received.iter().all(|m| !m.contains("WATCHDOG")), "{received:?}");
    assert_eq!(recorder.end(err).status, Some(0));
    drop(socket);
    std::fs::remove_file(&path).expect("the socket");
    let (recorder, err) = Running::start(&mut command);
    assert_eq!(recorder.end(err).status, Some(0));
}

/// The directory of the systemd units.
fn units() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd")
}

/// The unit that records one interface, and the unit that runs a configuration file.
const UNITS: [&str; 2] = ["netgrain-record@.service", "netgrain-run@.service"];

#[test]
fn systemd_analyze_accepts_the_units() {
    let test = "systemd_analyze_accepts_the_units";
    if testkit::tool(test, "systemd-analyze").is_none() {
        return;
    }
    for name in UNITS {
        let dir = TempDir::new(name);
        // Only the path of netgrain is replaced, because netgrain is not installed on the test machine.
        let text = std::fs::read_to_string(units().join(name)).expect("the unit");
        let unit = dir.join(name);
        std::fs::write(&unit, text.replace("/usr/bin/netgrain", env!("CARGO_BIN_EXE_netgrain"))).expect("a copy");
        let more = dir.join(format!("{name}.d"));
        std::fs::create_dir(&more).expect("a directory");
        std::fs::copy(units().join("netgrain-record-programs.conf"), more.join("programs.conf")).expect("a copy");
        let mut tool = std::process::Command::new("systemd-analyze");
        let output = common::run_command(tool.args(["verify", "--man=no", arg(&unit)]));
        let of_units: Vec<&str> =
            output.err.lines().chain(output.out.lines()).filter(|l| l.contains("netgrain")).collect();
        assert!(of_units.is_empty(), "{output:?}");
        let mut tool = std::process::Command::new("systemd-analyze");
        let output = common::run_command(tool.args(["security", "--offline=yes", "--no-pager", arg(&unit)]));
        let exposure = output
            .out
            .lines()
            .find_map(|l| l.split_once("Overall exposure level for ")?.1.split(' ').nth(1)?.parse::<f64>().ok());
        let Some(exposure) = exposure else {
            return testkit::skip(test, "this systemd-analyze cannot rate a unit file");
        };
        // The rating of systemd-analyze is 10 for a unit without any protection. It cannot be 0 for a service that
        // configures network interfaces.
        assert!(exposure < 3.0, "{exposure}: {}", output.out);
    }
}

#[test]
fn the_units_grant_exactly_the_capture_capabilities_and_are_hardened() {
    let texts = UNITS.map(|name| std::fs::read_to_string(units().join(name)).expect("the unit"));
    let expected = sys::privilege::CAPTURE.with(sys::privilege::CAPTURE_OPTIONAL).to_string();
    for (text, key) in texts.iter().flat_map(|text| [(text, "AmbientCapabilities="), (text, "CapabilityBoundingSet=")])
    {
        let line = text.lines().find_map(|l| l.strip_prefix(key)).expect(key);
        assert_eq!(line, expected, "{key}");
    }
    // The two units must have the same settings, except for the commands and descriptions.
    let own = ["Description=", "Documentation=", "ExecStart=", "ExecReload="];
    let settings = texts.each_ref().map(|text| {
        let is_shared = |l: &&str| !l.starts_with('#') && !own.iter().any(|own| l.starts_with(own));
        text.lines().filter(is_shared).collect::<Vec<_>>()
    });
    assert_eq!(settings[0], settings[1]);
}

#[test]
fn the_units_keep_the_offered_counter_page_of_a_killed_recorder() {
    assert!(
        Path::new(store::offered_page::DIRECTORY).starts_with("/dev/shm"),
        "the page is not in /dev/shm, so RemoveIPC= does not apply"
    );
    for name in UNITS {
        let text = std::fs::read_to_string(units().join(name)).expect("the unit");
        let removes = text.lines().filter_map(|line| line.strip_prefix("RemoveIPC=")).collect::<Vec<_>>();
        assert_eq!(removes, ["no"], "{name}: the manager removes POSIX shared memory of User= before Restart=");
        assert!(!text.lines().any(|line| line.starts_with("DynamicUser=yes")), "{name}: implies RemoveIPC=yes");
    }
}

/// The arguments of `ExecStart=` of a unit for an instance name.
fn arguments(unit: &str, instance: &str) -> Vec<String> {
    let text = std::fs::read_to_string(units().join(unit)).expect("the unit");
    let line = text.lines().find_map(|l| l.strip_prefix("ExecStart=/usr/bin/netgrain ")).expect("a line").to_owned();
    let words = line.split(' ').filter(|word| *word != "$NETGRAIN_OPTIONS").map(|word| word.replace("%I", instance));
    words.collect()
}

#[test]
fn the_command_of_the_run_unit_runs_and_notifies_its_manager() {
    let dir = TempDir::new("service-run");
    let path = dir.join("notify");
    let socket = UnixDatagram::bind(&path).expect("bind");
    socket.set_read_timeout(Some(WAIT_MAX)).expect("a timeout");
    std::fs::write(dir.join("home.toml"), "[packets]\nrotate = \"1min\"\n").expect("a configuration");
    // The directories and the group of the unit do not exist on the test machine, and the simulator replaces the
    // interfaces of the unit.
    let mut words = arguments("netgrain-run@.service", "home");
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
    assert_eq!(receive(&socket).lines().next(), Some("READY=1"));
    receive_until(&socket, "WATCHDOG=1");
    signal(&running.0, "TERM");
    receive_until(&socket, "STOPPING=1");
    let output = running.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
}

#[test]
fn the_drop_in_for_interface_programs_grants_only_what_they_need() {
    let text = std::fs::read_to_string(units().join("netgrain-record-programs.conf")).expect("the drop-in");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/privileges.md");
    let docs = std::fs::read_to_string(docs).expect("the page");
    let settings: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with(['#', '['])).collect();
    let expected = ["CapabilityBoundingSet=CAP_PERFMON", "AmbientCapabilities=CAP_PERFMON", "RestrictRealtime=no"];
    assert_eq!(settings, [&expected[..], &["ExecReload=kill -HUP $MAINPID"]].concat());
    for text in [
        "the drop-in for programs therefore sets `RestrictRealtime=no`",
        "| `record -i --program` | also keeps `CAP_PERFMON` |",
        "dist/systemd/netgrain-record-programs.conf",
    ] {
        assert!(docs.contains(text), "{text}");
    }
    // A comment in the drop-in file names this setting of the unit, so the test compares the comment with the unit.
    let unit = std::fs::read_to_string(units().join("netgrain-record@.service")).expect("the unit");
    assert!(
        unit.contains("\nMemoryDenyWriteExecute=yes\n")
            && text.contains("MemoryDenyWriteExecute=yes of the unit stays")
    );
}

/// The system calls that a line of the unit permits; a system call set of systemd, such as `@system-service`, is
/// replaced by its members.
fn calls(names: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in names.split(' ') {
        if !name.starts_with('@') {
            all.insert(name.to_owned());
            continue;
        }
        let output = common::run_command(std::process::Command::new("systemd-analyze").args([
            "syscall-filter",
            "--no-pager",
            name,
        ]));
        let inner = output.out.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#']) && *l != name);
        for call in inner {
            all.extend(calls(call));
        }
    }
    all
}

/// The value of the last line with this key in the texts.
fn setting<'a>(texts: &[&'a str], key: &str) -> &'a str {
    texts.iter().flat_map(|text| text.lines()).rev().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).expect(key)
}

/// Finds the setting of the unit that forbids a system call because of its arguments. `call` is a line of strace.
fn forbidding_setting(call: &str, settings: &[&str]) -> Option<&'static str> {
    let (name, arguments) = call.split_once('(')?;
    let has = |part: &str| arguments.contains(part);
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
            let is_read_only = ["\"/proc/sys/", "\"/sys/", "\"/dev/net/", "\"/dev/cpu"].iter().any(|begin| has(begin));
            (is_read_only && forbids("ProtectKernelTunables") && forbids("PrivateDevices")).then_some("Protect…")
        }
        _ => None,
    }
}

#[test]
fn the_unit_permits_every_system_call_of_a_recorder() {
    let test = "the_unit_permits_every_system_call_of_a_recorder";
    let Some(sandbox) = testkit::Sandbox::new(test) else { return };
    if testkit::tool(test, "systemd-analyze").is_none() {
        return;
    }
    let [unit, run, programs] = [UNITS[0], UNITS[1], "netgrain-record-programs.conf"]
        .map(|name| std::fs::read_to_string(units().join(name)).expect("the unit"));
    // A `SystemCallFilter=` line adds calls to the set that the earlier lines permit, or removes calls from the set.
    // Both units have the same lines.
    let mut allowed = BTreeSet::new();
    for line in unit.lines().filter_map(|l| l.strip_prefix("SystemCallFilter=")) {
        match line.strip_prefix('~') {
            Some(names) => {
                let removed = calls(names);
                allowed.retain(|call| !removed.contains(call));
            }
            None => allowed.extend(calls(line)),
        }
    }
    assert!(allowed.len() > 100, "{allowed:?}");
    let dir = TempDir::new("calls");
    let file = dir.join("program.ng");
    let program = ["--program", arg(&file)];
    // Each case has its name, its additional arguments, and true if the test replaces the packet program while the
    // recorder runs.
    let cases = [
        ("record af-xdp", &[][..], false),
        ("record tpacket", &[], false),
        ("record af-xdp with a program", &program, true),
        ("run tpacket with a program", &program, true),
    ];
    for (case, more, swaps) in cases {
        std::fs::write(&file, "main = udp >-> steer_flow\n").expect("a program");
        let unit = if case.starts_with("run") { &run } else { &unit };
        let settings: Vec<&str> = if swaps { vec![unit, &programs] } else { vec![unit] };
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
        let mut swapped = String::new();
        let frames = vec![vec![0x5a; 600]; 100];
        let tracer = recorder.0.id();
        let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).expect("proc");
        let traced = children.split(' ').next().expect("a child");
        let kill = |signal: &str| {
            let kill = format!("kill -{signal} {traced}");
            assert!(std::process::Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
        };
        let wire = testkit::RawSender::new(&a);
        if swaps {
            std::fs::write(&file, "main = tcp >-> steer_flow\n").expect("another");
            kill("HUP");
            while !swapped.contains("generation 2") {
                assert!(
                    err.read_line(&mut swapped).expect("text") > 0,
                    "the recorder ended before the swap: {swapped}"
                );
            }
            wire.send(&frames);
        } else {
            wire.send(&frames);
            // The trace must contain the calls that write and publish a file. The traced recorder is slow, so the test
            // sends single frames.
            until("a file is published", || {
                wire.send(&frames[..1]);
                walk(&store).iter().any(|path| path.extension().is_some_and(|e| e == "pcap"))
            });
        }
        kill("TERM");
        let output = recorder.end(err);
        assert_eq!(output.status, Some(0), "{output:?}");
        assert_eq!(swapped.contains("generation 2"), swaps, "{output:?}");
        let trace = std::fs::read_to_string(&trace).expect("a trace");
        // Lines begin with `1234 openat(…`.
        let lines = || trace.lines().filter_map(|l| Some(l.split_once(' ')?.1.trim_start()));
        let used: BTreeSet<&str> = lines()
            .filter_map(|l| Some(l.split_once('(')?.0))
            .filter(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
            .collect();
        assert!(used.contains("io_uring_enter") && used.contains("capset"), "{used:?}");
        // A process of root drops its supplementary groups with `setgroups`. A process of the user of the unit does not
        // call `setgroups`, because this user may not do so.
        let rejected: Vec<&&str> = used.iter().filter(|c| !allowed.contains(**c) && **c != "setgroups").collect();
        assert!(rejected.is_empty(), "{case}: {rejected:?}");
        let rejected: Vec<_> = lines().filter_map(|l| forbidding_setting(l, &settings).map(|why| (why, l))).collect();
        assert!(rejected.is_empty(), "{case}: {rejected:?}");
        // After netgrain has installed its own filter of system calls, it makes no call that this filter rejects.
        let filtered =
            lines().skip_while(|l| !l.starts_with("seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC"));
        let rejected: Vec<&str> = filtered.clone().filter(|l| l.contains("= -1 ENOSYS")).collect();
        assert!(filtered.count() > 100 && rejected.is_empty(), "{case}: {rejected:?}");
        let first = lines().any(|l| l.starts_with("sched_setscheduler(") && l.contains("SCHED_FIFO"));
        assert_eq!(first, swaps, "{case}: the program needs the priority that the drop-in permits");
        let index = sandbox.netlink().link("va").expect("a port").index;
        sandbox.netlink().delete_link(index).expect("the interface is deleted");
    }
}
