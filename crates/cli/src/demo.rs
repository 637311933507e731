//! `netgrain demo`: the whole path on this machine in less than a minute. With root, in a network namespace of its own
//! with a veth pair: `gen` on one side, `record` on the other, each a process. Without, the same pipeline from the
//! simulation. While it records, a further process asks for the packets of one host. The namespace belongs to this
//! process alone, so nothing is left behind however it ends.

use crate::args::DemoArgs;
use crate::outcome::{Failure, Outcome};
use crate::record::{json, watch};
use crate::screen::{Ticker, summary};
use crate::signals;
use base::units::{Rate, show_count};
use capture::auto::Kind;
use engine::{Capture, EngineError, Format, InterfacePlan, Plan, Report, Sent, SocketPlan, SourcePlan, StorePlan};
use r#gen::Spec;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The two ends of the pair.
const FROM: &str = "ng-demo0";
const TO: &str = "ng-demo1";

/// Enough for a volume that stalls for a second; a larger one would take longer to make.
const RING: u64 = 1 << 30;

/// Small files, so that little more room is taken than there are packets.
const SEGMENT: u64 = 256 << 20;

/// Where listeners attach, in the folder of the store.
const SOCKET: &str = ".listen";

/// After the generator has ended: frames still on their way arrive within this.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs the verb. No if a packet was lost or the checker finds fault.
pub fn run(args: &DemoArgs) -> Result<Outcome, Failure> {
    let mut spec: Spec = args.traffic.parse().map_err(Failure::say)?;
    (spec.truth, spec.rate, spec.duration) = (true, args.rate, Some(args.duration));
    let scratch = Scratch::new(args.keep.as_deref())?;
    let stop = signals::stop_flag();
    let live = !args.sim && can_make_a_network(args);
    let mut question = Question::about(&spec, scratch.path());
    let (report, sent) = if live {
        over_veth(args, &spec, scratch.path(), &mut question, &stop)?
    } else {
        simulated(args, spec, scratch.path(), &mut question, &stop)?
    };
    let verdict =
        checker::check(&[scratch.path().to_owned()], checker::Options { sent: Some(sent.sent), ..Default::default() })
            .map_err(Failure::say)?;
    let answer = question.answer;
    // A demonstration cut short has asked nothing, and that is no fault.
    let answered = answer.as_ref().is_none_or(|a| a.found);
    let good = report.is_healthy() && verdict.is_complete() && answered;
    if args.json {
        let verdict: serde_json::Value = serde_json::from_str(&verdict.to_json()).map_err(Failure::say)?;
        json(&serde_json::json!({ "report": report, "sent": sent, "verdict": verdict, "asked": answer }))?;
    } else {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{}", summary(&report))?;
        writeln!(out, "{verdict}")?;
        writeln!(
            out,
            "\n{} frames sent, {} stored, {} lost",
            show_count(sent.sent),
            show_count(report.counts.stored),
            report.counts.lost_total
        )?;
        if let Some(answer) = answer {
            writeln!(out, "\nasked while recording, answered {:.0} ms later:\n  {}", answer.ms, answer.command)?;
            answer.text.lines().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        if args.keep.is_some() {
            writeln!(
                out,
                "the store is in {}; any tool reads its files: tcpdump -r, Wireshark, tshark",
                scratch.path().display()
            )?;
        }
    }
    Ok(Outcome::of(good))
}

/// Enters a network namespace of our own, if we may.
fn can_make_a_network(args: &DemoArgs) -> bool {
    match engine::private_pair(FROM, TO, 1500) {
        Ok(()) => true,
        Err(e) => {
            if !args.json {
                eprintln!(
                    "netgrain: no network of its own for the demo ({e}); simulating the traffic instead (run as root for the real path)"
                );
            }
            false
        }
    }
}

fn plan(source: SourcePlan, store: &Path) -> Plan {
    Plan {
        store: Some(StorePlan { dir: store.to_owned(), format: Format::Pcap, depth: engine::WRITE_DEPTH }),
        ring: Some(RING),
        segment: SEGMENT,
        // The last second of the answer comes from here.
        socket: Some(SocketPlan { path: store.join(SOCKET), mode: 0o600, uid: None, gid: None, gates: false }),
        ..Plan::new(source)
    }
}

fn over_veth(
    args: &DemoArgs,
    spec: &Spec,
    store: &Path,
    question: &mut Question,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<(Report, Sent), Failure> {
    let cpus = sys::cpu::allowed();
    let start = |kind| {
        let mut plan = plan(SourcePlan::Interface(InterfacePlan::new(TO, kind)), store);
        plan.cpus = cpus.last().copied().into_iter().collect();
        Capture::start(&plan)
    };
    let mut capture = match start(Kind::AfXdp) {
        Err(EngineError::Source(e)) => {
            eprintln!("netgrain: no AF_XDP here ({e}); taking TPACKET");
            start(Kind::Tpacket)?
        }
        other => other?,
    };
    if !args.json {
        for source in capture.sources() {
            eprintln!("netgrain: {source}");
        }
    }
    let mut generator = Generator::start(args, spec, cpus.first().copied())?;
    let mut ticker = Ticker::new();
    while !generator.ended()? && !stop.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        question.ask_when_due();
        if ticker.is_due() {
            ticker.skip();
            if !args.json {
                ticker.show(capture.report());
            }
        }
    }
    ticker.done();
    let sent = generator.finish()?;
    let until = Instant::now() + SETTLE;
    while Instant::now() < until && capture.report().counts.offered < sent.sent {
        std::thread::sleep(Duration::from_millis(10));
    }
    capture.stop();
    capture.wait()?;
    Ok((capture.report(), sent))
}

fn simulated(
    args: &DemoArgs,
    spec: Spec,
    store: &Path,
    question: &mut Question,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<(Report, Sent), Failure> {
    let mut capture = Capture::start(&plan(SourcePlan::Sim { spec, start: None }, store))?;
    let mut ticker = Ticker::new();
    watch(&capture, stop, |r| {
        if !args.json {
            ticker.show(r);
        }
        question.ask_when_due();
        Ok(())
    })?;
    ticker.done();
    capture.stop();
    capture.wait()?;
    let report = capture.report();
    let made = report.counts.offered;
    Ok((report, Sent { made, sent: made, ..Sent::default() }))
}

/// One host of the traffic, asked for once, when three fifths of the time have passed.
struct Question {
    store: PathBuf,
    host: String,
    after: Duration,
    /// Known once the capture runs.
    due: Option<Instant>,
    answer: Option<Answer>,
}

/// What came of it.
#[derive(serde::Serialize)]
struct Answer {
    command: String,
    /// From the start of the process to its end.
    ms: f64,
    found: bool,
    text: String,
}

impl Question {
    fn about(spec: &Spec, store: &Path) -> Self {
        let mut traffic = r#gen::Traffic::new(spec);
        let mut frame = vec![0; traffic.max_len()];
        let len = traffic.fill(&mut frame, base::Timestamp::ZERO);
        let headers = wire::Headers::of(&frame[..len], len as u32, wire::link::ETHERNET);
        let host =
            wire::FlowKey::of(&frame[..len], &headers).map_or_else(String::new, |key| format!("host {}", key.src));
        let after = spec.duration.unwrap_or_default().mul_f64(0.6);
        Self { store: store.to_owned(), host, after, due: None, answer: None }
    }

    fn ask_when_due(&mut self) {
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.after);
        if self.answer.is_some() || Instant::now() < due {
            return;
        }
        let arguments = ["--from", "-2s", &self.host, "--count", "--explain"];
        let command =
            format!("netgrain packets --store {} --from -2s '{}' --count --explain", self.store.display(), self.host);
        let started = Instant::now();
        let program = std::env::current_exe();
        let output = program
            .and_then(|p| Command::new(p).args(["packets", "--store"]).arg(&self.store).args(arguments).output());
        let ms = started.elapsed().as_secs_f64() * 1e3;
        self.answer = Some(match output {
            Ok(output) => {
                let text = [&output.stdout[..], &output.stderr[..]].concat();
                let text = String::from_utf8_lossy(&text).trim_end().to_owned();
                Answer { command, ms, found: output.status.success(), text }
            }
            Err(e) => Answer { command, ms, found: false, text: format!("the question could not be asked: {e}") },
        });
    }
}

/// `netgrain gen` in a process of its own, in our namespace.
struct Generator(Child);

impl Generator {
    fn start(args: &DemoArgs, spec: &Spec, cpu: Option<usize>) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::say)?;
        let mut command = Command::new(program);
        command.args(["gen", "-i", FROM, &args.traffic, "--json"]);
        command.args(["--duration", &format!("{}ns", spec.duration.unwrap_or_default().as_nanos())]);
        match args.rate {
            Rate::Flat => {}
            Rate::Packets(r) => {
                command.args(["--rate", &format!("{r}pps")]);
            }
            Rate::Bits(r) => {
                command.args(["--rate", &format!("{r}bit")]);
            }
        }
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command.stdout(Stdio::piped());
        Ok(Self(command.spawn().map_err(|e| Failure::Said(format!("the generator does not start: {e}")))?))
    }

    fn ended(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait().map_err(Failure::say)?.is_some())
    }

    fn finish(mut self) -> Result<Sent, Failure> {
        let _ = self.0.wait();
        let last = self.0.stdout.take().and_then(|out| BufReader::new(out).lines().map_while(Result::ok).last());
        last.and_then(|line| serde_json::from_str(&line).ok()).ok_or_else(|| {
            Failure::Said("the generator ended without saying what it sent; see its message above".into())
        })
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // After an error nobody waits for it; after an orderly end it has already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that goes away unless it is to be kept.
struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    fn new(keep: Option<&Path>) -> Result<Self, Failure> {
        let path = match keep {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("netgrain-demo-{}", std::process::id())),
        };
        std::fs::create_dir_all(&path).map_err(|e| Failure::Said(format!("{}: {e}", path.display())))?;
        Ok(Self { path, keep: keep.is_some() })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
