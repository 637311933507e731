//! Other people's recorders, with their own defaults: tcpdump, dumpcap, netsniff-ng.

use crate::live::TO;
use crate::output::{Output, Stop};
use crate::process::{Helper, find};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sys::netns::Namespace;

/// How long a rival may take to open its socket, and to write what it still has.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A rival is ready when its socket listens and it has used no processor time for this long: netsniff-ng spends seconds on
/// its ring after it has opened the socket, and would be charged with everything that was sent meanwhile.
const QUIET: Duration = Duration::from_millis(300);

/// One installed program.
pub struct Baseline {
    name: &'static str,
    program: PathBuf,
}

/// A program under load.
pub struct Running {
    helper: Helper,
    /// Processor seconds it had used before the load.
    before: f64,
}

impl Baseline {
    /// Those that are here; the others are named.
    pub fn installed(sheet: &mut Output<'_>) -> Result<Vec<Self>, Stop> {
        let mut rivals = Vec::new();
        for name in ["tcpdump", "dumpcap", "netsniff-ng"] {
            match find(name) {
                Some(program) => rivals.push(Self { name, program }),
                None => sheet.remark_line(format_args!("{name} is not installed: its row is left out"))?,
            }
        }
        Ok(rivals)
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Starts it on the port, on this processor, and waits until it listens.
    pub fn start(&self, file: &Path, namespace: &Namespace, cpu: usize) -> Result<Running, Stop> {
        let mut command = Command::new(&self.program);
        command.stderr(Stdio::null());
        match self.name {
            // Root writes the file, since the folder is root's.
            "tcpdump" => command.args(["-n", "-Z", "root", "-i", TO, "-w"]).arg(file),
            "dumpcap" => command.args(["-q", "-P", "-i", TO, "-w"]).arg(file),
            _ => command.args(["--silent", "--in", TO, "--out"]).arg(file),
        };
        // Namespace and processor are inherited from the thread that starts it.
        let name = self.name;
        let helper = std::thread::scope(|s| {
            s.spawn(|| {
                namespace.enter().map_err(Stop::say)?;
                // Anywhere, if the processor is not to be had.
                let _ = sys::cpu::pin(cpu);
                Helper::start(command, name)
            })
            .join()
        });
        let mut helper = helper.map_err(|_| Stop::say("a starting thread panicked"))??;
        let until = Instant::now() + TIMEOUT;
        let mut before = f64::NAN;
        loop {
            let used = helper.cpu_seconds();
            if is_port_taken() && used == before {
                return Ok(Running { helper, before });
            }
            if !helper.runs() || Instant::now() > until {
                return Err(Stop::say(format_args!("{name} did not begin to capture")));
            }
            before = used;
            std::thread::sleep(QUIET);
        }
    }
}

impl Running {
    /// Ends it as Ctrl-C would, and says how many processor seconds the load has cost it.
    pub fn end(self) -> Result<f64, Stop> {
        let cpu = self.helper.cpu_seconds() - self.before;
        self.helper.interrupt()?;
        self.helper.finish_with(TIMEOUT, &[0, 1])?;
        Ok(cpu)
    }
}

/// Whether a packet socket of this thread's namespace is bound to its port: packet(7), one line each under a head, of
/// which the sixth word says so.
fn is_port_taken() -> bool {
    std::fs::read_to_string("/proc/thread-self/net/packet")
        .is_ok_and(|text| text.lines().skip(1).any(|l| l.split_whitespace().nth(5) == Some("1")))
}

/// Packets in a capture file; what follows the last whole one does not count.
pub fn packets(file: &Path) -> Result<u64, Stop> {
    let said = |e: &dyn std::fmt::Display| Stop::say(format_args!("{}: {e}", file.display()));
    let mut reader = pcap::Reader::open(File::open(file).map_err(|e| said(&e))?).map_err(|e| said(&e))?;
    while matches!(reader.advance(), Ok(true)) {}
    Ok(reader.records())
}
