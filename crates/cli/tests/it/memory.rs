//! Tests the memory use of a run in control groups and in address spaces with a small limit.

use crate::common;

use common::{Output, arg, objects, run, run_command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{Sandbox, TempDir};

/// A control group with a memory limit, which is removed on drop.
struct Group(PathBuf);

impl Group {
    /// Returns `None` and reports a skipped test if this user may not create control groups.
    fn new(test: &str, bytes: u64) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let of = |controllers: &str, root: &str| {
            let path =
                groups.lines().find_map(|l| l.split_once(':')?.1.strip_prefix(controllers)?.strip_prefix(":/"))?;
            Some(Path::new(root).join(path))
        };
        let places = [
            (of("memory", "/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            (of("", "/sys/fs/cgroup"), "memory.max"),
        ];
        for (place, limit) in places {
            let Some(place) = place else { continue };
            let group = Self(place.join(format!("netgrain-{test}-{}", std::process::id())));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        testkit::skip(test, "this user can make no control group with a memory limit");
        None
    }

    /// Runs the binary in the control group to its end.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\"", arg(&self.0.join("cgroup.procs"))]);
        run_command(command.arg(env!("CARGO_BIN_EXE_netgrain")).args(args).stdin(std::process::Stdio::null()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The processes of the group have ended, but the kernel may remove them from the group a little later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn in_a_small_control_group_the_default_ring_fits_and_a_larger_one_fails() {
    let test = "in_a_small_control_group_the_default_ring_fits_and_a_larger_one_fails";
    let Some(group) = Group::new(test, 800 << 20) else { return };
    let Some(sandbox) = Sandbox::new(test) else { return };
    sandbox.veth("va", "vb");
    let dir = TempDir::new(test);
    let store = dir.join("store");
    let args = ["-i", "vb", "--source-kind", "tpacket", "--store", arg(&store), "--duration", "2s", "-q"];
    for (verb, socket) in [("run", ["--set", "listen.socket=none"]), ("record", ["--socket", "none"])] {
        let output = group.run(&[&[verb][..], &args, &socket].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(output.err.contains("a ring of 64.0 MiB") && output.err.contains("control group"), "{output:?}");
        let output = group.run(&[&[verb][..], &args, &socket, &["--ring", "2GiB"]].concat());
        assert_eq!(output.status, Some(2), "{output:?}");
        for word in ["2.50 GiB", "800 MiB", "512 MiB would fit", "--ring"] {
            assert!(output.err.contains(word), "{word}: {output:?}");
        }
    }
    let output = group
        .run(&[&["run"][..], &args, &["--set", "listen.socket=none", "--set", "flow.capacity=100000000"]].concat());
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.err.contains("flow.capacity=N, at most"), "{output:?}");
}

#[test]
fn a_small_capture_is_replayed_into_all_data_types_within_100_mib() {
    let test = "a_small_capture_is_replayed_into_all_data_types_within_100_mib";
    let dir = TempDir::new(test);
    let (file, store) = (dir.join("a.pcap"), dir.join("store"));
    let generated = run(&["gen", "-w", arg(&file), "imix,flows=1000,rate=10kpps,packets=8000"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    let replay = ["run", "-r", arg(&file), "--store", arg(&store), "--json", "-q"];
    let output = run(&replay);
    assert_eq!(output.status, Some(0), "{output:?}");
    let report = objects(&output.out).pop().expect("a report")["report"].clone();
    assert_eq!(report["stored"], 8000);
    let memory = report["memory_bytes"].as_u64().expect("bytes");
    assert!((1 << 20..100 << 20).contains(&memory), "{memory}");
    let ring = report["queues"][0]["ring"].as_str().expect("a ring");
    assert!(ring.starts_with("8.00 MiB") && ring.ends_with("allocated when written"), "{ring}");
    // In this control group the kernel kills a process that uses more than 100 MiB at any moment, which would fail the
    // test.
    let Some(group) = Group::new(test, 100 << 20) else { return };
    let again = dir.join("again");
    let output = group.run(&["run", "-r", arg(&file), "--store", arg(&again), "-q"]);
    assert_eq!(output.status, Some(0), "{output:?}");
}

/// The peak of the anonymous memory (`RssAnon` of proc_pid_status(5)) of the binary in KiB, sampled until its end. The
/// shared ring, whose size depends on that of the capture, is not part of it.
fn peak_anonymous_kib(args: &[&str]) -> u64 {
    let mut child =
        common::netgrain(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the process starts");
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let status = loop {
        // The status file of a zombie process has no line `RssAnon:`.
        let text = fs::read_to_string(&path).unwrap_or_default();
        let kib = text.lines().find_map(|l| l.strip_prefix("RssAnon:")?.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0));
        if let Some(status) = child.try_wait().expect("a status") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.success(), "{args:?}: {status}");
    peak
}

#[test]
fn the_anonymous_memory_of_a_replay_does_not_grow_with_its_duration() {
    const PACKETS: u64 = 60_000;
    let dir = TempDir::new("memory-slow-capture");
    let file = dir.join("slow.pcap");
    let generated = run(&["gen", "-w", arg(&file), &format!("60,flows={PACKETS},rate=0.5pps,packets={PACKETS}")]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    for (verb, kib_max) in [("record", 16 << 10), ("run", 40 << 10)] {
        let store = dir.join(verb);
        let kib = peak_anonymous_kib(&[verb, "-r", arg(&file), "--store", arg(&store), "-q"]);
        assert!((1..kib_max).contains(&kib), "{verb}: {kib} KiB for {PACKETS} packets in twice as many seconds");
    }
}

#[test]
fn flags_of_run_override_ring_rotation_and_retention_of_the_file() {
    let dir = TempDir::new("run-flags");
    let (file, config) = (dir.join("a.pcap"), dir.join("a.toml"));
    let generated = run(&["gen", "-w", arg(&file), "60,flows=10,rate=100pps,packets=500"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    fs::write(&config, "[capture]\nring = \"16MiB\"\n[packets]\nrotate = \"1h\"\nmax_size = \"100GB\"\n")
        .expect("a file");
    let replay = |store: &Path, more: &[&str]| {
        let output =
            run(&[&["run", "-r", arg(&file), "--store", arg(store), "--config", arg(&config), "--json", "-q"], more]
                .concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        objects(&output.out).pop().expect("a report")
    };
    let flags = ["--ring", "32MiB", "--rotate", "1s", "--max-age", "10y", "--max-size", "1TB", "--keep-free", "none"];
    for (store, flags, ring, files) in [("one", &flags[..], "32.0 MiB", 5..=6), ("two", &[], "16.0 MiB", 1..=2)] {
        let store = dir.join(store);
        let reported = replay(&store, flags);
        let queue = &reported["report"]["queues"][0];
        assert!(queue["ring"].as_str().expect("a ring").starts_with(ring), "{queue}");
        let published = queue["recorder"]["files"].as_u64().expect("a count");
        assert!(files.contains(&published), "{published} files");
        assert!(reported["retention"].is_object(), "{reported}");
    }
}

#[test]
fn a_replay_fits_a_small_address_space_or_fails_with_the_sizes() {
    let dir = TempDir::new("memory-address-space");
    let (file, store) = (dir.join("a.pcap"), dir.join("store"));
    let generated = run(&["gen", "-w", arg(&file), "imix,flows=2000,rate=10kpps,packets=20000"]);
    assert_eq!(generated.status, Some(0), "{generated:?}");
    let (run, record) = (["run", "-q", "--name", "a", "-r"], ["record", "-r"]);
    for kib in [100_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000] {
        for verb in [&run[..], &record, &["flows", "--top", "3", "-r"]] {
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string(), env!("CARGO_BIN_EXE_netgrain")]);
            command.args(verb).arg(&file);
            if verb[0] != "flows" {
                command.args(["--store", arg(&store)]);
            }
            let output = run_command(command.stdin(std::process::Stdio::null()));
            if output.status == Some(0) {
                assert!(fs::remove_dir_all(&store).is_ok() || verb[0] == "flows", "{kib} {verb:?}");
                continue;
            }
            assert_eq!(output.status, Some(2), "{kib} {verb:?}: {output:?}");
            assert!(kib < 200_000 && verb[0] == "run", "{kib} {verb:?}: {output:?}");
            for word in ["ulimit -v", "MiB", "--ring"] {
                assert!(output.err.contains(word), "{kib} {verb:?}: {word}: {output:?}");
            }
        }
    }
}
