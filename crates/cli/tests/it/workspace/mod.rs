//! A test bed that runs command lines as the documentation prints them: in a network namespace with the interface names
//! of the pages, and with an empty `/run`.

#![allow(dead_code, reason = "each test program uses its own part")]

use crate::common::{Output, Running, arg, objects, run_command, signal, until};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::{Port, Sandbox, TempDir};

/// A network namespace with veth pairs: tests send into `feed`, whose peer is `eth1`, and receive at `sink`, whose peer
/// is `eth2`. An example also forwards packets from `eth3` and `eth4`.
pub struct Testbed {
    _sandbox: Sandbox,
    /// The other end of `eth1`.
    pub feed: Port,
    /// The other end of `eth2`.
    pub sink: Port,
    /// The process that keeps the mount namespace with the empty `/run`.
    holder: Running,
    /// The working directory of the commands; it contains a link to `examples`.
    pub dir: TempDir,
}

/// An engine that a command line of a documentation page has started.
pub struct Engine {
    running: Running,
    err: BufReader<std::process::ChildStderr>,
}

impl Testbed {
    pub fn new(test: &str) -> Option<Self> {
        let mut unshare = testkit::tool(test, "unshare")?;
        testkit::tool(test, "nsenter")?;
        let sandbox = Sandbox::new(test)?;
        let (feed, _) = sandbox.veth("feed", "eth1");
        let (_, sink) = sandbox.veth("eth2", "sink");
        sandbox.veth("eth3", "sink3");
        sandbox.veth("eth4", "sink4");
        let dir = TempDir::new(test);
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::os::unix::fs::symlink(repository.join("examples"), dir.join("examples")).expect("a link");
        let holder = unshare.args(["--mount", "sh", "-c", "mount -t tmpfs none /run && echo ready && exec sleep 1000"]);
        let mut holder = Running(holder.stdout(Stdio::piped()).spawn().expect("the process starts"));
        let mut ready = String::new();
        BufReader::new(holder.0.stdout.take().expect("a pipe")).read_line(&mut ready).expect("text");
        assert_eq!(ready, "ready\n", "the mount of /run");
        Some(Self { _sandbox: sandbox, feed, sink, holder, dir })
    }

    /// A command line of a page. The store `/data/store` is replaced by a directory of the test.
    pub fn shell(&self, line: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_netgrain")).parent().expect("a directory");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let line = line.replace("/data/store", arg(&self.dir.join("store")));
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.0.id()));
        command.args(["sh", "-c", &format!("cd {} && {line}", self.dir.path().display())]);
        command.env("PATH", path).stdin(Stdio::null());
        command
    }

    /// Starts an engine and waits until it accepts group requests.
    pub fn engine(&self, line: &str) -> Engine {
        let (running, err) = Running::start(&mut self.shell(&format!("exec {line}")));
        until("the engine accepts group requests", || self.run("netgrain group list -i eth1").status != Some(2));
        Engine { running, err }
    }

    /// Runs a command line to its end.
    pub fn run(&self, line: &str) -> Output {
        run_command(&mut self.shell(line))
    }

    /// Runs a command line that must succeed.
    pub fn run_ok(&self, line: &str) -> Output {
        let output = self.run(line);
        assert_eq!(output.status, Some(0), "{line}: {output:?}");
        output
    }

    /// Starts a shell with these command lines in the background; their output is discarded.
    pub fn spawn(&self, line: &str) -> Running {
        let child: Child =
            self.shell(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the process starts");
        Running(child)
    }

    /// Removes the files that members of an earlier group wrote, because members replace no existing file.
    pub fn remove_captures(&self) {
        let entries = std::fs::read_dir(self.dir.path()).expect("a directory").flatten().map(|entry| entry.path());
        let captures = entries.filter(|path| path.extension().is_some_and(|ending| ending == "pcap"));
        captures.for_each(|path| std::fs::remove_file(path).expect("a capture"));
    }

    /// The statistics of a group, after a check of their equations.
    pub fn stats(&self, group: &str) -> serde_json::Value {
        let output = self.run(&format!("netgrain group stats -i eth1 {group} --json"));
        let stats = objects(&output.out).pop().unwrap_or_else(|| panic!("no statistics: {output:?}"));
        assert_accounting_balances(&stats);
        stats
    }

    /// Waits until the group has `count` members.
    pub fn wait_for_members(&self, group: &str, count: usize) {
        until("members", || self.stats(group)["members"].as_array().map_or(0, Vec::len) == count);
    }

    /// Waits until the group has received `count` packets.
    pub fn wait_for_packets(&self, group: &str, count: u64) {
        until("packets", || self.stats(group)["received"] == count);
    }
}

impl Engine {
    /// Ends the engine, which must have lost no packet.
    pub fn end(self) {
        signal(&self.running.0, "INT");
        let output = self.running.end(self.err);
        assert_eq!(output.status, Some(0), "{output:?}");
    }
}

/// Asserts the accounting equations of docs/reference/groups.md.
pub fn assert_accounting_balances(stats: &serde_json::Value) {
    let number = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("no {key}: {stats}"));
    let group = |key| number(stats, key);
    assert_eq!(stats["accounting_errors"], serde_json::json!([]), "{stats}");
    assert_eq!(group("received"), group("dropped") + group("no_member") + group("passed"), "{stats}");
    let members = stats["members"].as_array().expect("members").iter().chain([&stats["departed"]]);
    let copies: u64 =
        members.map(|member| ["delivered", "refused", "lost"].iter().map(|k| number(member, k)).sum::<u64>()).sum();
    assert_eq!(group("copies"), copies, "{stats}");
}

/// The frames in a file that a member wrote.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = pcap::Reader::open(BufReader::new(file)).expect("a capture");
    let mut out = Vec::new();
    while let Some(packet) = reader.next().expect("a complete capture") {
        out.push(packet.data.to_vec());
    }
    out
}
