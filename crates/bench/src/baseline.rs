//! Other capture programs with their default settings, for comparison: tcpdump, dumpcap, netsniff-ng.

use crate::output::{Output, Stop};
use crate::process::{Helper, find};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sys::netns::Namespace;

/// Time limit for a program to open its socket, and to write its remaining packets at the end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program is ready when its socket is bound and it has used no processor time for this long. netsniff-ng prepares
/// its ring for seconds after it has opened the socket; without this wait, packets would be sent during the preparation
/// and count as lost.
const QUIET: Duration = Duration::from_millis(300);

/// An installed capture program.
pub struct Baseline {
    name: &'static str,
    program: PathBuf,
}

/// A running capture program.
pub struct Running {
    helper: Helper,
    /// Processor seconds that the process had used before the load.
    before: f64,
}

impl Baseline {
    /// The installed programs; a note names each missing program.
    pub fn installed(sheet: &mut Output<'_>) -> Result<Vec<Self>, Stop> {
        let mut baselines = Vec::new();
        for name in ["tcpdump", "dumpcap", "netsniff-ng"] {
            match find(name) {
                Some(program) => baselines.push(Self { name, program }),
                None => sheet.note(format_args!("{name} is not installed: its row is omitted"))?,
            }
        }
        Ok(baselines)
    }

    /// The program's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Starts the program on this interface and on processor `cpu`, and waits until it captures.
    pub fn start(&self, interface: &str, file: &Path, namespace: &Namespace, cpu: usize) -> Result<Running, Stop> {
        let mut command = Command::new(&self.program);
        command.stderr(Stdio::null());
        match self.name {
            // tcpdump must write as root, since only root may write to the directory.
            "tcpdump" => command.args(["-n", "-Z", "root", "-i", interface, "-w"]).arg(file),
            "dumpcap" => command.args(["-q", "-P", "-i", interface, "-w"]).arg(file),
            _ => command.args(["--silent", "--in", interface, "--out"]).arg(file),
        };
        // The child process inherits the namespace and the processor from the thread that starts it.
        let name = self.name;
        let helper = std::thread::scope(|s| {
            s.spawn(|| {
                namespace.enter().map_err(Stop::error)?;
                // If pinning fails, the program runs on any processor.
                let _ = sys::cpu::pin(cpu);
                Helper::start(command, name)
            })
            .join()
        });
        let mut helper = helper.map_err(|_| Stop::error("a starting thread panicked"))??;
        let before = wait_until_capturing(&mut helper, name)?;
        Ok(Running { helper, before })
    }
}

/// Waits until a program in the namespace of this thread captures, and returns the processor seconds that it has used
/// so far.
pub fn wait_until_capturing(helper: &mut Helper, name: &str) -> Result<f64, Stop> {
    let until = Instant::now() + TIMEOUT;
    let mut before = f64::NAN;
    loop {
        let used = helper.cpu_seconds();
        if is_port_taken() && used == before {
            return Ok(before);
        }
        if !helper.is_running() || Instant::now() > until {
            return Err(Stop::error(format_args!("{name} did not begin to capture")));
        }
        before = used;
        std::thread::sleep(QUIET);
    }
}

impl Running {
    /// Ends the program with SIGINT; returns the processor seconds that it used since the start of the load.
    pub fn end(self) -> Result<f64, Stop> {
        let cpu = self.helper.cpu_seconds() - self.before;
        self.helper.interrupt()?;
        self.helper.finish_with(TIMEOUT, &[0, 1])?;
        Ok(cpu)
    }
}

/// True if a packet socket of this thread's namespace is bound and running: column six (`R`) of `/proc/net/packet`,
/// packet(7).
fn is_port_taken() -> bool {
    std::fs::read_to_string("/proc/thread-self/net/packet")
        .is_ok_and(|text| text.lines().skip(1).any(|l| l.split_whitespace().nth(5) == Some("1")))
}

/// Number of packets in a capture file; an incomplete packet at the end does not count.
pub fn packets(file: &Path) -> Result<u64, Stop> {
    let with_path = |e: &dyn std::fmt::Display| Stop::error(format_args!("{}: {e}", file.display()));
    let mut reader = pcap::Reader::open(File::open(file).map_err(|e| with_path(&e))?).map_err(|e| with_path(&e))?;
    while matches!(reader.advance(), Ok(true)) {}
    Ok(reader.records())
}
