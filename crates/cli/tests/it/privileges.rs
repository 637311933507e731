//! Tests of the privileges of a running netgrain, as the kernel reports them. The privileges suffice to reopen an
//! interface that was removed and created again. Missing privileges are reported at the start.

use crate::common;

use common::{PublicDir, Running, arg, netgrain, run, run_command, signal, until, walk};
use std::io::{BufRead, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use sys::privilege::{CAPTURE, CAPTURE_OPTIONAL, Capabilities, Capability, ThreadPrivileges, of_threads};
use testkit::{RawSender, Sandbox, TempDir};

const NOBODY: u32 = 65_534;

/// Asserts that every thread has exactly these capabilities, and that a program which it executes would have none.
#[track_caller]
fn assert_capabilities(child: &Child, expected: Capabilities, uid: u32) {
    let expected = ThreadPrivileges {
        effective: expected,
        permitted: expected,
        bounding: Capabilities::NONE,
        ambient: Capabilities::NONE,
        no_new_privileges: true,
        calls_filtered: true,
        uid,
    };
    // A process installs its system call filter after it has opened every file and socket.
    until("every thread has a filter of system calls", || {
        of_threads(child.id()).iter().all(|thread| thread.calls_filtered)
    });
    let threads = of_threads(child.id());
    assert!(!threads.is_empty());
    for thread in threads {
        assert_eq!(thread, expected, "effective: {}", thread.effective);
    }
}

fn frames(count: u32) -> Vec<Vec<u8>> {
    let frame = |n: u32| {
        let mut bytes = vec![0; 60];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        bytes[14..18].copy_from_slice(&n.to_be_bytes());
        bytes
    };
    (0..count).map(frame).collect()
}

/// The messages that a recorder has written so far.
struct Messages(Arc<Mutex<String>>);

impl Messages {
    fn collect(mut err: impl BufRead + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let lines = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut line = String::new();
            while err.read_line(&mut line).is_ok_and(|n| n > 0) {
                lines.lock().expect("no panic").push_str(&std::mem::take(&mut line));
            }
        });
        Self(text)
    }

    fn contain(&self, part: &str) -> bool {
        self.0.lock().expect("no panic").contains(part)
    }
}

/// Deletes the interface and creates it again while `record` runs, with 100 frames before and after. Returns the
/// report.
fn record_through_a_flap(
    sandbox: &Sandbox,
    store: &Path,
    (mut recorder, err): (Running, impl BufRead + Send + 'static),
    check: impl Fn(&Child),
) -> String {
    let messages = Messages::collect(err);
    check(&recorder.0);
    let index = sandbox.netlink().link("va").expect("a port").index;
    RawSender::new(&testkit::Port { name: "va".into(), index }).send(&frames(100));
    until("the first frames are recorded", || common::stored_packets(store) == 100);
    sandbox.netlink().delete_link(index).expect("the interface is deleted");
    until("the recorder reports the missing interface", || messages.contain("vb was removed"));
    let (a, _b) = sandbox.veth("va", "vb");
    until("the recorder reports the new interface", || messages.contain("vb exists again"));
    RawSender::new(&a).send(&frames(100));
    until("the frames after it are recorded", || common::stored_packets(store) == 200);
    check(&recorder.0);
    signal(&recorder.0, "INT");
    let mut out = String::new();
    recorder.0.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    assert_eq!(recorder.0.wait().expect("the process ends").code(), Some(0), "{out}");
    out
}

#[test]
fn a_recorder_keeps_only_the_capabilities_to_reopen_its_interface() {
    let test = "a_recorder_keeps_only_the_capabilities_to_reopen_its_interface";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    for kind in ["af-xdp", "tpacket"] {
        sandbox.veth("va", "vb");
        let store = dir.join(kind);
        let args =
            ["record", "-i", "vb", "--store", arg(&store), "--socket", "none", "--ring", "8MiB", "--source-kind", kind];
        let check = |child: &Child| assert_capabilities(child, CAPTURE.with(CAPTURE_OPTIONAL), 0);
        let out = record_through_a_flap(&sandbox, &store, Running::start(&mut netgrain(&args)), check);
        let stored = out.lines().find_map(|l| l.trim().strip_prefix("stored")).expect("a count");
        assert!(stored.trim().starts_with("200 "), "{kind}: {out}");
        let mut netlink = sandbox.netlink();
        let index = netlink.link("va").expect("a port").index;
        netlink.delete_link(index).expect("the interface is deleted");
    }
}

#[test]
fn record_started_by_root_continues_as_another_user() {
    let test = "record_started_by_root_continues_as_another_user";
    let Some(sandbox) = Sandbox::new(test) else { return };
    sandbox.veth("va", "vb");
    let dir = PublicDir::new("user");
    let store = dir.join("store");
    let args = ["record", "-i", "vb", "--store", arg(&store), "--socket", "none", "--ring", "8MiB", "--user", "nobody"];
    let rejected = run(&args);
    assert_eq!(rejected.status, Some(2), "{rejected:?}");
    assert!(rejected.err.contains(arg(&store)) && rejected.err.contains("chown"), "{rejected:?}");
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("chown to nobody");
    let unknown = run(&[&args[..9], &["--user", "nobody-of-this-name"]].concat());
    assert!(unknown.status == Some(2) && unknown.err.contains("/etc/passwd"), "{unknown:?}");

    let check = |child: &Child| assert_capabilities(child, CAPTURE.with(CAPTURE_OPTIONAL), NOBODY);
    record_through_a_flap(&sandbox, &store, Running::start(&mut netgrain(&args)), check);
    let files = walk(&store);
    assert!(files.len() >= 2, "{files:?}");
    assert!(files.iter().all(|f| std::fs::metadata(f).expect("a file").uid() == NOBODY), "{files:?}");
}

#[test]
fn ambient_capabilities_suffice_and_are_dropped_after_the_start() {
    let test = "ambient_capabilities_suffice_and_are_dropped_after_the_start";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut command) = testkit::tool(test, "setpriv") else { return };
    let dir = PublicDir::new("ambient");
    let store = dir.join("store");
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("chown to nobody");
    sandbox.veth("va", "vb");
    // The recorder gets the user, group and capabilities that the service manager gives to its unit.
    let names = "+net_raw,+net_admin,+bpf,+ipc_lock,+sys_nice";
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([
        format!("--inh-caps={names}"),
        format!("--ambient-caps={names}"),
        "--bounding-set=-all,+net_raw,+net_admin,+bpf,+ipc_lock,+sys_nice".into(),
    ]);
    command.arg(dir.join("netgrain"));
    command.args(["record", "-i", "vb", "--store", arg(&store), "--socket", "none", "--ring", "8MiB"]);
    let (recorder, err) = Running::start(&mut command);
    for thread in of_threads(recorder.0.id()) {
        assert_eq!((thread.effective, thread.ambient), (CAPTURE.with(CAPTURE_OPTIONAL), Capabilities::NONE));
        assert!(thread.no_new_privileges && thread.uid == NOBODY);
        assert!(thread.bounding.without(CAPTURE.with(CAPTURE_OPTIONAL)).is_empty(), "only root can reduce it further");
    }
    signal(&recorder.0, "INT");
    let output = recorder.end(err);
    assert_eq!(output.status, Some(0), "{output:?}");
}

#[test]
fn a_missing_capability_is_reported_with_the_setcap_command() {
    let test = "a_missing_capability_is_reported_with_the_setcap_command";
    let Some(sandbox) = Sandbox::new(test) else { return };
    sandbox.veth("va", "vb");
    let dir = PublicDir::new("missing");
    std::fs::set_permissions(dir.join("store"), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let as_nobody = |more: &[&str]| {
        let mut command = Command::new(dir.join("netgrain"));
        command.args(["record", "-i", "vb", "--store", "store", "--ring", "8MiB", "--socket", "none"]).args(more);
        run_command(command.uid(NOBODY).gid(NOBODY).current_dir(&dir.0))
    };
    for kind in ["af-xdp", "tpacket"] {
        let output = as_nobody(&["--source-kind", kind]);
        assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
        assert!(
            output.err.contains("CAP_NET_RAW is missing") || output.err.contains("CAP_NET_ADMIN CAP_BPF is missing"),
            "{output:?}"
        );
        let command = format!(
            "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_sys_nice,cap_bpf,cap_perfmon+ep {}",
            arg(&dir.join("netgrain"))
        );
        assert!(output.err.contains(&command), "{output:?}");
    }
    let output = as_nobody(&["--user", "root"]);
    assert!(output.status == Some(2) && output.err.contains("CAP_SETUID"), "{output:?}");
}

#[test]
fn root_records_only_into_own_stores_and_reports_a_kept_dac_override() {
    let test = "root_records_only_into_own_stores_and_reports_a_kept_dac_override";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "only root may write everywhere");
    }
    let dir = PublicDir::new("override");
    let store = dir.join("store");
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("chown to nobody");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let record = ["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(&store)];
    for verb in [&record[..], &["run", "--sim", "60,packets=100", "--store", arg(&store)]] {
        let output = run(verb);
        assert!(output.status == Some(2) && output.err.contains("--user 65534"), "{output:?}");
        assert!(walk(&store).is_empty(), "no file was created");
    }
    chown(&store, Some(0), Some(0)).expect("chown to root");
    assert_eq!(run(&record).status, Some(0));
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("chown to nobody");
    // root reads a file with mode 600 of another user and writes a file beside it. Both need CAP_DAC_OVERRIDE, and a
    // message says that the process keeps this capability.
    let file = walk(&store).into_iter().find(|f| f.extension().is_some_and(|e| e == "pcap")).expect("a file");
    chown(&file, Some(NOBODY), Some(NOBODY)).expect("chown to nobody");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let copy = store.join("copy.pcapng");
    let output = run(&["convert", arg(&file), "-w", arg(&copy)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(copy.exists() && output.err.contains("keeps CAP_DAC_OVERRIDE"), "{output:?}");
    let output = run(&["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(&dir.join("own"))]);
    assert!(output.status == Some(0) && !output.err.contains("CAP_"), "{output:?}");
}

#[test]
fn a_recorder_of_root_follows_no_symbolic_link_in_the_store() {
    let test = "a_recorder_of_root_follows_no_symbolic_link_in_the_store";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "not root");
    }
    let dir = PublicDir::new("links");
    let (interface, outside) = (dir.join("store/sim"), dir.join("outside"));
    for directory in [&interface, &outside] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    let victim = outside.join("victim");
    std::fs::write(&victim, "untouched").expect("a file");
    let record =
        ["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(&dir.join("store"))].map(str::to_owned);
    let record: Vec<&str> = record.iter().map(String::as_str).collect();
    for name in [".recorder", ".recorder.new"] {
        std::os::unix::fs::symlink(&victim, interface.join(name)).expect("a link");
    }
    let output = run(&record);
    assert_eq!(output.status, Some(0), "links of these names are replaced: {output:?}");
    let year = std::fs::read_dir(&interface).expect("the directory").flatten().map(|e| e.path()).find(|p| p.is_dir());
    let year = year.expect("a year");
    std::fs::remove_dir_all(&year).expect("the year");
    std::os::unix::fs::symlink(&outside, &year).expect("a link");
    for args in
        [&record[..], &["run", "--sim", "60,packets=100", "--ring", "8MiB", "--store", record[record.len() - 1]]]
    {
        let output = run(args);
        assert!(output.status == Some(2) && output.out.is_empty(), "{output:?}");
        let message = format!("{}: packet files cannot be written below this path", year.display());
        assert!(output.err.contains(&message), "{output:?}");
    }
    assert_eq!(walk(&outside), std::slice::from_ref(&victim), "no file was created");
    assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "untouched");
}

#[test]
fn root_reads_with_the_read_capability_only() {
    let test = "root_reads_with_the_read_capability_only";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "only root has capabilities to drop");
    }
    let dir = TempDir::new(test);
    let (store, socket) = (dir.join("store"), dir.join("s"));
    let record =
        ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--socket", arg(&socket)];
    let (recorder, err) = Running::start(&mut netgrain(&record));
    until("the ring socket exists", || socket.exists());
    let out = dir.join("out.pcap");
    let start = |command: &mut Command| {
        Running(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the process starts"),
        )
    };
    let reading = Capabilities::of(&[Capability::DacReadSearch]);
    let listener = start(&mut netgrain(&["listen", "--socket", arg(&socket), "-w", arg(&out)]));
    let converter = start(&mut netgrain(&["convert", "-", "-w", arg(&dir.join("converted.pcap"))]));
    for child in [&listener.0, &converter.0] {
        until("no_new_privs is set", || of_threads(child.id()).iter().all(|h| h.no_new_privileges));
        until("capabilities are dropped", || of_threads(child.id()).iter().all(|h| h.effective == reading));
        assert_capabilities(child, reading, 0);
    }
    until("packets are written", || std::fs::metadata(&out).is_ok_and(|m| m.len() > 24));
    drop((listener, converter));
    signal(&recorder.0, "INT");
    assert_eq!(recorder.end(err).status, Some(0));
    let checked = run(&["packets", "--store", arg(&store), "--count"]);
    assert_eq!(checked.status, Some(0), "{checked:?}");
    let found = dir.join("found.pcapng");
    let written = run(&["packets", "--store", arg(&store), "--limit", "10", "-w", arg(&found)]);
    assert!(written.status == Some(0) && Path::new(&found).exists(), "{written:?}");
}

#[test]
fn no_verb_makes_a_system_call_that_its_filter_rejects() {
    let test = "no_verb_makes_a_system_call_that_its_filter_rejects";
    if testkit::tool(test, "strace").is_none() {
        return;
    }
    let dir = TempDir::new(test);
    let at = |name: &str| arg(&dir.join(name)).to_owned();
    let trace = at("trace");
    let trace_verb = |line: &str| {
        let words = line.split(' ').map(|word| word.strip_prefix('@').map_or_else(|| word.to_owned(), at));
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "signal=none", "-o", &trace, env!("CARGO_BIN_EXE_netgrain")]).args(words);
        let output = run_command(&mut strace);
        assert_eq!(output.status, Some(0), "{line}: {output:?}");
        let calls = std::fs::read_to_string(&trace).expect("a trace");
        let filtered = calls.lines().skip_while(|l| !l.contains("seccomp(SECCOMP_SET_MODE_FILTER")).skip(1);
        assert!(filtered.clone().count() > 10, "{line}: the work is done under the filter");
        let rejected: Vec<&str> = filtered.filter(|l| l.contains("= -1 ENOSYS")).collect();
        assert!(rejected.is_empty(), "{line}: {rejected:?}");
    };
    for line in [
        "gen -w @x.pcap imix,flows=1k --packets 5000",
        "run -r @x.pcap --store @store --set capture.ring=8MiB",
        "record -r @x.pcap --store @other --ring 8MiB",
        "packets --store @store --count",
        "packets --store @store --limit 10 -w @found.pcapng",
        "flows --store @store --top 5",
        "series --store @store",
        "index @x.pcap",
        "verify --store @store",
        "repair --store @store",
        "convert @x.pcap -w @y.pcapng",
        "check @x.pcap",
        "retain --store @store --max-age 1d --dry-run",
    ] {
        trace_verb(line);
    }
}

#[test]
fn an_index_is_written_only_beside_its_capture() {
    let dir = TempDir::new("index-beside");
    for directory in ["a", "b", "into"] {
        std::fs::create_dir(dir.join(directory)).expect("a directory");
    }
    let (one, two) = (dir.join("a/one.pcap"), dir.join("b/two.pcap"));
    for file in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(file), "60", "--packets", "100"]).status, Some(0));
    }
    let output = run(&["index", arg(&one), arg(&two)]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!((walk(&dir.join("a")).len(), walk(&dir.join("b")).len()), (2, 2));
    let output = run(&["index", "--into", arg(&dir.join("into")), arg(&one)]);
    assert!(output.status == Some(0) && !walk(&dir.join("into")).is_empty(), "{output:?}");
    // A symbolic link in place of the index is not followed: its target outside of the directory is not written.
    let index = dir.join("b/two.pcap.ngi");
    let (inside, outside) = (walk(&dir.join("b")), dir.join("into/outside"));
    assert!(inside.contains(&index), "{inside:?}");
    std::fs::write(&outside, "untouched").expect("a file");
    std::fs::remove_file(&index).expect("an index");
    std::os::unix::fs::symlink(&outside, &index).expect("a link");
    run(&["index", "--force", arg(&two)]);
    assert_eq!(std::fs::read_to_string(&outside).expect("the file"), "untouched");
}
