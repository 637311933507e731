//! What a running netgrain may still do, as the kernel says; that it is enough for a port that comes back; and what is
//! said when it is too little to begin with.

use crate::common;

use common::{Open, Running, arg, netgrain, run, say, signal, until, walk};
use std::io::{BufRead, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use sys::privilege::{CAPTURE, CAPTURE_OPTIONAL, Capabilities, Capability, ThreadPrivileges, of_threads};
use testkit::{RawSender, Sandbox, TempDir};

const NOBODY: u32 = 65_534;

/// Every thread has these capabilities, and nothing that it starts can have any.
#[track_caller]
fn holds(child: &Child, expected: Capabilities, uid: u32) {
    let expected = ThreadPrivileges {
        effective: expected,
        permitted: expected,
        bounding: Capabilities::NONE,
        ambient: Capabilities::NONE,
        no_new_privileges: true,
        calls_filtered: true,
        uid,
    };
    // The filter comes once everything is open.
    until("no thread can make other calls", || of_threads(child.id()).iter().all(|held| held.calls_filtered));
    let threads = of_threads(child.id());
    assert!(!threads.is_empty());
    for held in threads {
        assert_eq!(held, expected, "effective: {}", held.effective);
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

/// What a running recorder says, as it says it.
struct Heard(Arc<Mutex<String>>);

impl Heard {
    fn listen(mut err: impl BufRead + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let reported = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut line = String::new();
            while err.read_line(&mut line).is_ok_and(|n| n > 0) {
                reported.lock().expect("no panic").push_str(&std::mem::take(&mut line));
            }
        });
        Self(text)
    }

    fn has(&self, words: &str) -> bool {
        self.0.lock().expect("no panic").contains(words)
    }
}

/// Takes the port away and makes it anew while `record` runs, with a hundred frames before and after. Returns its
/// report.
fn through_a_flap(
    sandbox: &Sandbox,
    store: &Path,
    (mut recorder, err): (Running, impl BufRead + Send + 'static),
    check: impl Fn(&Child),
) -> String {
    let heard = Heard::listen(err);
    check(&recorder.0);
    let index = sandbox.netlink().link("va").expect("a port").index;
    RawSender::new(&testkit::Port { name: "va".into(), index }).send(&frames(100));
    until("the first frames are recorded", || common::stored_packets(store) == 100);
    sandbox.netlink().delete_link(index).expect("it goes");
    until("it has seen the port go", || heard.has("vb went away"));
    let (a, _b) = sandbox.veth("va", "vb");
    until("it has the port back", || heard.has("vb is back"));
    RawSender::new(&a).send(&frames(100));
    until("the frames after it are recorded", || common::stored_packets(store) == 200);
    check(&recorder.0);
    signal(&recorder.0, "INT");
    let mut out = String::new();
    recorder.0.stdout.take().expect("caught").read_to_string(&mut out).expect("text");
    assert_eq!(recorder.0.wait().expect("it ends").code(), Some(0), "{out}");
    out
}

#[test]
fn a_recorder_keeps_what_a_port_that_comes_back_takes_and_nothing_else() {
    let test = "a_recorder_keeps_what_a_port_that_comes_back_takes_and_nothing_else";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let dir = TempDir::new(test);
    for kind in ["af-xdp", "tpacket"] {
        sandbox.veth("va", "vb");
        let store = dir.join(kind);
        let args =
            ["record", "-i", "vb", "--store", arg(&store), "--socket", "none", "--ring", "8MiB", "--source-kind", kind];
        let check = |child: &Child| holds(child, CAPTURE.with(CAPTURE_OPTIONAL), 0);
        let out = through_a_flap(&sandbox, &store, Running::start(&mut netgrain(&args)), check);
        let stored = out.lines().find_map(|l| l.trim().strip_prefix("stored")).expect("a count");
        assert!(stored.trim().starts_with("200 "), "{kind}: {out}");
        let mut netlink = sandbox.netlink();
        let index = netlink.link("va").expect("a port").index;
        netlink.delete_link(index).expect("it goes");
    }
}

#[test]
fn another_user_records_what_root_began() {
    let test = "another_user_records_what_root_began";
    let Some(sandbox) = Sandbox::new(test) else { return };
    sandbox.veth("va", "vb");
    let dir = Open::new("user");
    let store = dir.join("store");
    let args = ["record", "-i", "vb", "--store", arg(&store), "--socket", "none", "--ring", "8MiB", "--user", "nobody"];
    let refused = run(&args);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.err.contains(arg(&store)) && refused.err.contains("chown"), "{refused:?}");
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("given away");
    let unknown = run(&[&args[..9], &["--user", "nobody-of-this-name"]].concat());
    assert!(unknown.status == Some(2) && unknown.err.contains("/etc/passwd"), "{unknown:?}");

    let check = |child: &Child| holds(child, CAPTURE.with(CAPTURE_OPTIONAL), NOBODY);
    through_a_flap(&sandbox, &store, Running::start(&mut netgrain(&args)), check);
    let files = walk(&store);
    assert!(files.len() >= 2, "{files:?}");
    assert!(files.iter().all(|f| std::fs::metadata(f).expect("a file").uid() == NOBODY), "{files:?}");
}

#[test]
fn ambient_capabilities_are_enough_and_gone_afterwards() {
    let test = "ambient_capabilities_are_enough_and_gone_afterwards";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut command) = testkit::tool(test, "setpriv") else { return };
    let dir = Open::new("ambient");
    let store = dir.join("store");
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("given away");
    sandbox.veth("va", "vb");
    // As the service manager starts it.
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
    for held in of_threads(recorder.0.id()) {
        assert_eq!((held.effective, held.ambient), (CAPTURE.with(CAPTURE_OPTIONAL), Capabilities::NONE));
        assert!(held.no_new_privileges && held.uid == NOBODY);
        assert!(held.bounding.without(CAPTURE.with(CAPTURE_OPTIONAL)).is_empty(), "only root can make it smaller");
    }
    signal(&recorder.0, "INT");
    let said = recorder.end(err);
    assert_eq!(said.status, Some(0), "{said:?}");
}

#[test]
fn what_is_missing_is_named_with_the_command_that_gives_it() {
    let test = "what_is_missing_is_named_with_the_command_that_gives_it";
    let Some(sandbox) = Sandbox::new(test) else { return };
    sandbox.veth("va", "vb");
    let dir = Open::new("missing");
    std::fs::set_permissions(dir.join("store"), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let as_nobody = |more: &[&str]| {
        let mut command = Command::new(dir.join("netgrain"));
        command.args(["record", "-i", "vb", "--store", "store", "--ring", "8MiB", "--socket", "none"]).args(more);
        say(command.uid(NOBODY).gid(NOBODY).current_dir(&dir.0))
    };
    for kind in ["af-xdp", "tpacket"] {
        let said = as_nobody(&["--source-kind", kind]);
        assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
        assert!(
            said.err.contains("CAP_NET_RAW is missing") || said.err.contains("CAP_NET_ADMIN CAP_BPF is missing"),
            "{said:?}"
        );
        let command = format!(
            "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_sys_nice,cap_bpf,cap_perfmon+ep {}",
            arg(&dir.join("netgrain"))
        );
        assert!(said.err.contains(&command), "{said:?}");
    }
    let said = as_nobody(&["--user", "root"]);
    assert!(said.status == Some(2) && said.err.contains("CAP_SETUID"), "{said:?}");
}

#[test]
fn root_records_into_its_own_stores_only_and_says_what_it_keeps_to_write_elsewhere() {
    let test = "root_records_into_its_own_stores_only_and_says_what_it_keeps_to_write_elsewhere";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "only root may write everywhere");
    }
    let dir = Open::new("override");
    let store = dir.join("store");
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("given away");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let record = ["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(&store)];
    for verb in [&record[..], &["run", "--sim", "60,packets=100", "--store", arg(&store)]] {
        let said = run(verb);
        assert!(said.status == Some(2) && said.err.contains("--user 65534"), "{said:?}");
        assert!(walk(&store).is_empty(), "nothing was made there");
    }
    chown(&store, Some(0), Some(0)).expect("taken back");
    assert_eq!(run(&record).status, Some(0));
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("given away");
    // What others own and nobody else may read is read, and writing beside it is told alike.
    let file = walk(&store).into_iter().find(|f| f.extension().is_some_and(|e| e == "pcap")).expect("a file");
    chown(&file, Some(NOBODY), Some(NOBODY)).expect("given away");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let copy = store.join("copy.pcapng");
    let said = run(&["convert", arg(&file), "-w", arg(&copy)]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(copy.exists() && said.err.contains("keeps CAP_DAC_OVERRIDE"), "{said:?}");
    let said = run(&["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(&dir.join("own"))]);
    assert!(said.status == Some(0) && !said.err.contains("CAP_"), "{said:?}");
}

#[test]
fn a_recorder_of_root_follows_no_link_that_somebody_has_laid() {
    let test = "a_recorder_of_root_follows_no_link_that_somebody_has_laid";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "not root");
    }
    let dir = Open::new("links");
    let (interface, outside) = (dir.join("store/sim"), dir.join("outside"));
    for folder in [&interface, &outside] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let victim = outside.join("victim");
    std::fs::write(&victim, "untouched").expect("a file");
    let record =
        ["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(&dir.join("store"))].map(str::to_owned);
    let record: Vec<&str> = record.iter().map(String::as_str).collect();
    for name in [".recorder", ".recorder.new"] {
        std::os::unix::fs::symlink(&victim, interface.join(name)).expect("a link");
    }
    let said = run(&record);
    assert_eq!(said.status, Some(0), "links of these names are replaced: {said:?}");
    let year = std::fs::read_dir(&interface).expect("the folder").flatten().map(|e| e.path()).find(|p| p.is_dir());
    let year = year.expect("a year");
    std::fs::remove_dir_all(&year).expect("the year");
    std::os::unix::fs::symlink(&outside, &year).expect("a link");
    let said = run(&record);
    assert!(said.status != Some(0) && said.out.contains("a symbolic link is on this path"), "{said:?}");
    assert_eq!(walk(&outside), std::slice::from_ref(&victim), "nothing was made there");
    assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "untouched");
}

#[test]
fn a_verb_that_reads_has_nothing_left_but_reading() {
    let test = "a_verb_that_reads_has_nothing_left_but_reading";
    if !sys::cpu::is_root() {
        return testkit::skip(test, "only root has something to give up");
    }
    let dir = TempDir::new(test);
    let (store, socket) = (dir.join("store"), dir.join("s"));
    let record =
        ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--socket", arg(&socket)];
    let (recorder, err) = Running::start(&mut netgrain(&record));
    until("its socket", || socket.exists());
    let out = dir.join("out.pcap");
    let start = |command: &mut Command| {
        Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"))
    };
    let reading = Capabilities::of(&[Capability::DacReadSearch]);
    let listener = start(&mut netgrain(&["listen", "--socket", arg(&socket), "-w", arg(&out)]));
    let converter = start(&mut netgrain(&["convert", "-", "-w", arg(&dir.join("converted.pcap"))]));
    for child in [&listener.0, &converter.0] {
        until("it has given up what it had", || of_threads(child.id()).iter().all(|h| h.no_new_privileges));
        until("it has given up what it had", || of_threads(child.id()).iter().all(|h| h.effective == reading));
        holds(child, reading, 0);
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
fn no_verb_tries_a_call_that_it_has_given_up() {
    let test = "no_verb_tries_a_call_that_it_has_given_up";
    if testkit::tool(test, "strace").is_none() {
        return;
    }
    let dir = TempDir::new(test);
    let at = |name: &str| arg(&dir.join(name)).to_owned();
    let trace = at("trace");
    let traced = |line: &str| {
        let words = line.split(' ').map(|word| word.strip_prefix('@').map_or_else(|| word.to_owned(), at));
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "signal=none", "-o", &trace, env!("CARGO_BIN_EXE_netgrain")]).args(words);
        let said = say(&mut strace);
        assert_eq!(said.status, Some(0), "{line}: {said:?}");
        let calls = std::fs::read_to_string(&trace).expect("a trace");
        let behind = calls.lines().skip_while(|l| !l.contains("seccomp(SECCOMP_SET_MODE_FILTER")).skip(1);
        assert!(behind.clone().count() > 10, "{line}: most of the work comes behind the filter");
        let refused: Vec<&str> = behind.filter(|l| l.contains("= -1 ENOSYS")).collect();
        assert!(refused.is_empty(), "{line}: {refused:?}");
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
        traced(line);
    }
}

#[test]
fn an_index_is_written_beside_its_capture_and_nowhere_else() {
    let dir = TempDir::new("index-beside");
    for folder in ["a", "b", "into"] {
        std::fs::create_dir(dir.join(folder)).expect("a folder");
    }
    let (one, two) = (dir.join("a/one.pcap"), dir.join("b/two.pcap"));
    for file in [&one, &two] {
        assert_eq!(run(&["gen", "-w", arg(file), "60", "--packets", "100"]).status, Some(0));
    }
    let said = run(&["index", arg(&one), arg(&two)]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert_eq!((walk(&dir.join("a")).len(), walk(&dir.join("b")).len()), (2, 2));
    let said = run(&["index", "--into", arg(&dir.join("into")), arg(&one)]);
    assert!(said.status == Some(0) && !walk(&dir.join("into")).is_empty(), "{said:?}");
    // A link beside the capture that leads out of the folder is not followed to write there.
    let trap = dir.join("b/two.pcap.ngi");
    let (inside, outside) = (walk(&dir.join("b")), dir.join("into/outside"));
    assert!(inside.contains(&trap), "{inside:?}");
    std::fs::write(&outside, "untouched").expect("a file");
    std::fs::remove_file(&trap).expect("an index");
    std::os::unix::fs::symlink(&outside, &trap).expect("a link");
    run(&["index", "--force", arg(&two)]);
    assert_eq!(std::fs::read_to_string(&outside).expect("the file"), "untouched");
}
