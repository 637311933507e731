//! The programs that send, with their commands.

use crate::generator;
use crate::output::{Output, Stop};
use crate::process::{find, netgrain};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The timers of tcpreplay (`--timer`).
const TIMERS: [&str; 4] = ["nano", "select", "ioport", "gtod"];

/// Time for which the frames that the kernel makes are measured.
const KERNEL_TIME: Duration = Duration::from_secs(1);

/// What a program is measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only the rate.
    Rate,
    /// Only the timing.
    Timing,
    /// Rate and timing.
    Both,
}

/// A program that sends.
#[derive(Clone, Debug)]
pub enum Program {
    /// netgrain replay with this method.
    Netgrain(PathBuf, &'static str),
    /// tcpreplay with the flag of a method, which may be empty.
    Tcpreplay(PathBuf, Option<&'static str>),
    /// tcpreplay with a timer.
    TcpreplayTimer(PathBuf, &'static str),
    /// trafgen.
    Trafgen(PathBuf),
    /// Frames that the kernel makes (`netgrain gen --method live-frames`).
    LiveFrames,
}

impl Program {
    /// The programs that are installed; a note names those that are not.
    pub fn all(with_baselines: bool, sheet: &mut Output<'_>) -> Result<Vec<Self>, Stop> {
        let path = netgrain()?;
        let mut all = vec![Self::Netgrain(path.clone(), "af-xdp"), Self::Netgrain(path, "packet-socket")];
        if with_baselines {
            match find("tcpreplay") {
                Some(path) => {
                    all.push(Self::Tcpreplay(path.clone(), None));
                    if has_xdp(&path) {
                        all.push(Self::Tcpreplay(path.clone(), Some("--xdp")));
                    } else {
                        sheet.note("this tcpreplay has no AF_XDP mode (since 4.5): its row is omitted")?;
                    }
                    all.extend(TIMERS.map(|timer| Self::TcpreplayTimer(path.clone(), timer)));
                }
                None => sheet.note("tcpreplay is not installed: its rows are omitted")?,
            }
            match find("trafgen") {
                Some(path) => {
                    all.push(Self::Trafgen(path));
                    sheet.note("trafgen sends no capture with its timing: it has a row for the rate only")?;
                }
                None => sheet.note("trafgen (netsniff-ng) is not installed: its row is omitted")?,
            }
        }
        all.push(Self::LiveFrames);
        Ok(all)
    }

    /// What the program is measured for.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Netgrain(..) => Kind::Both,
            Self::TcpreplayTimer(..) => Kind::Timing,
            Self::Tcpreplay(..) | Self::Trafgen(_) | Self::LiveFrames => Kind::Rate,
        }
    }

    /// True for programs that are not part of netgrain.
    pub fn is_baseline(&self) -> bool {
        matches!(self, Self::Tcpreplay(..) | Self::TcpreplayTimer(..) | Self::Trafgen(_))
    }

    /// The name of the program in the table.
    pub fn name(&self) -> String {
        match self {
            Self::Netgrain(_, method) => format!("netgrain replay {method}"),
            Self::Tcpreplay(_, flag) => {
                format!("tcpreplay --topspeed{}", flag.map_or(String::new(), |f| format!(" {f}")))
            }
            Self::TcpreplayTimer(_, timer) => format!("tcpreplay --timer={timer}"),
            Self::Trafgen(_) => "trafgen".to_owned(),
            Self::LiveFrames => "kernel-made frames".to_owned(),
        }
    }

    /// Sends a capture of `frames` frames of `size` bytes `passes` times, as fast as possible. Returns the duration in
    /// seconds.
    pub fn send_flat(&self, interface: &str, capture: &Path, size: u16, passes: u64, frames: u64) -> Result<f64, Stop> {
        let passes_text = passes.to_string();
        match self {
            Self::Netgrain(path, method) => {
                let mut command = Command::new(path);
                command.arg("replay").arg(capture).args(["-i", interface, "--speed", "flat", "--loop", &passes_text]);
                self.run(command.args(["--method", method, "--json"]))
            }
            Self::Tcpreplay(path, flag) => {
                let mut command = Command::new(path);
                command.args(["-q", "--topspeed", "--preload-pcap", "--loop", &passes_text, "-i", interface]);
                self.run(command.args(flag.iter()).arg(capture))
            }
            Self::Trafgen(path) => {
                let config = capture.with_extension("trafgen");
                std::fs::write(&config, trafgen_packet(size)).map_err(Stop::error)?;
                let mut command = Command::new(path);
                command.arg("--conf").arg(&config).args(["--out", interface, "--cpus", "1", "--num"]);
                self.run(command.arg((passes * frames).to_string()))
            }
            Self::LiveFrames => {
                let process = generator::start(interface, &size.to_string(), "flat", KERNEL_TIME, None)?;
                let output = process.finish(KERNEL_TIME + Duration::from_secs(30))?;
                let sent: generator::Sent = serde_json::from_str(&output).map_err(Stop::error)?;
                Ok(sent.nanos as f64 / 1e9)
            }
            Self::TcpreplayTimer(..) => Err(Stop::error("this program is measured for its timing only")),
        }
    }

    /// Sends a capture of this length with its timing.
    pub fn send_timed(&self, interface: &str, capture: &Path, seconds: f64) -> Result<(), Stop> {
        let mut command = match self {
            Self::Netgrain(path, method) => {
                let mut command = Command::new(path);
                command.arg("replay").arg(capture).args(["-i", interface, "--method", method, "--json"]);
                command
            }
            Self::TcpreplayTimer(path, timer) => {
                let mut command = Command::new(path);
                command.args(["-q", "--preload-pcap", "-i", interface]).arg(format!("--timer={timer}")).arg(capture);
                command
            }
            _ => return Err(Stop::error("this program is measured for its rate only")),
        };
        let took = self.run(&mut command)?;
        if took < seconds / 2.0 {
            return Err(Stop::error(format_args!("{} did not keep the timing of the capture", self.name())));
        }
        Ok(())
    }

    /// Runs a command to its end and returns the duration in seconds.
    fn run(&self, command: &mut Command) -> Result<f64, Stop> {
        let begun = Instant::now();
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|e| Stop::error(format_args!("{} cannot be started: {e}", self.name())))?;
        let seconds = begun.elapsed().as_secs_f64();
        // The exit status 1 of netgrain means that the driver dropped frames, which the table shows.
        match (self, output.status.code()) {
            (_, Some(0)) | (Self::Netgrain(..), Some(1)) => Ok(seconds),
            _ => {
                let text = String::from_utf8_lossy(&output.stderr);
                let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                Err(Stop::error(format_args!("{} failed: {}: {last}", self.name(), output.status)))
            }
        }
    }
}

/// True if this tcpreplay can send through AF_XDP.
fn has_xdp(path: &Path) -> bool {
    let help = Command::new(path).arg("--help").stdin(Stdio::null()).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--xdp"))
}

/// A configuration of trafgen for frames of `size` bytes, with the MAC addresses and the ethertype of the other frames.
fn trafgen_packet(size: u16) -> String {
    format!("{{ 0x02, 0x6e, 0x67, 0, 0, 2, 0x02, 0x6e, 0x67, 0, 0, 1, 0x08, 0x00, fill(0x5a, {}) }}\n", size - 14)
}
