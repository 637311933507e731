//! Commands to a running replay, and the state of the replay. The sending loop and other threads share both.

use crate::pace::{Pace, ParsePaceError};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A command to a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// Stop sending until [`Command::Resume`]. The rest of the interval before the next frame passes after the pause.
    Pause,
    /// Continue after a pause.
    Resume,
    /// Pause if the replay runs, otherwise resume.
    Toggle,
    /// Change the pace.
    Pace(Pace),
    /// End the replay.
    Stop,
    /// Only report the state.
    Status,
}

/// The error for a text that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseCommandError {
    /// There is no such command.
    Unknown(String),
    /// The command `speed` has no valid speed.
    Speed(ParsePaceError),
}

impl fmt::Display for ParseCommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(f, "{text:?} is no command: write pause, resume, stop, status or speed SPEED, as in speed 2x")
            }
            Self::Speed(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ParseCommandError {}

impl FromStr for Command {
    type Err = ParseCommandError;

    fn from_str(text: &str) -> Result<Self, ParseCommandError> {
        match text.trim() {
            "pause" => Ok(Self::Pause),
            "resume" => Ok(Self::Resume),
            "stop" => Ok(Self::Stop),
            "status" => Ok(Self::Status),
            text => match text.split_once(' ') {
                Some(("speed", pace)) => pace.trim().parse().map(Self::Pace).map_err(ParseCommandError::Speed),
                _ => Err(ParseCommandError::Unknown(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause => f.write_str("pause"),
            Self::Resume => f.write_str("resume"),
            Self::Toggle => f.write_str("toggle"),
            Self::Stop => f.write_str("stop"),
            Self::Status => f.write_str("status"),
            Self::Pace(Pace::Original(factor)) => write!(f, "speed {factor}x"),
            Self::Pace(Pace::Rate(base::units::Rate::Flat)) => f.write_str("speed flat"),
            Self::Pace(Pace::Rate(base::units::Rate::Packets(rate))) => write!(f, "speed {rate}pps"),
            Self::Pace(Pace::Rate(base::units::Rate::Bits(rate))) => write!(f, "speed {rate}bit"),
        }
    }
}

/// The state of a replay.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Status {
    /// `running`, `paused` or `stopped`.
    pub state: &'static str,
    /// The pace.
    pub speed: String,
    /// Frames passed to the interfaces so far.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Number of the pass over the capture, from 1.
    pub pass: u64,
}

/// The settings that commands change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The pace.
    pub pace: Pace,
    /// True while the replay pauses.
    pub is_paused: bool,
}

/// Flags that signal handlers set.
#[derive(Clone, Debug, Default)]
pub struct SignalFlags {
    /// Set to end the replay.
    pub stop: Arc<AtomicBool>,
    /// Set when the process continues after it was stopped (SIGTSTP, SIGSTOP). The time of the stop counts as a pause.
    pub continued: Arc<AtomicBool>,
    /// Set to pause the replay, or to resume it if it is paused.
    pub toggle: Arc<AtomicBool>,
}

/// The state of a replay that the sending loop shares with the threads that pass commands to it.
#[derive(Debug)]
pub struct Control {
    settings: Mutex<Settings>,
    /// Incremented after each change of the settings.
    generation: AtomicU64,
    signals: SignalFlags,
    frames: AtomicU64,
    bytes: AtomicU64,
    pass: AtomicU64,
}

impl Control {
    /// The control of a replay that begins with this pace.
    pub fn new(pace: Pace, signals: SignalFlags) -> Self {
        Self {
            settings: Mutex::new(Settings { pace, is_paused: false }),
            generation: AtomicU64::new(0),
            signals,
            frames: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            pass: AtomicU64::new(1),
        }
    }

    /// Carries out a command and returns the state after it.
    pub fn apply(&self, command: Command) -> Status {
        let mut settings = self.locked();
        let before = *settings;
        match command {
            Command::Pause => settings.is_paused = true,
            Command::Resume => settings.is_paused = false,
            Command::Toggle => settings.is_paused = !settings.is_paused,
            Command::Pace(pace) => settings.pace = pace,
            Command::Stop => self.signals.stop.store(true, Ordering::Relaxed),
            Command::Status => {}
        }
        if *settings != before {
            self.generation.fetch_add(1, Ordering::Release);
        }
        let state = match settings.is_paused {
            _ if self.is_stopped() => "stopped",
            true => "paused",
            false => "running",
        };
        Status {
            state,
            speed: settings.pace.to_string(),
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            pass: self.pass.load(Ordering::Relaxed),
        }
    }

    /// The stop flag.
    pub fn stop(&self) -> &AtomicBool {
        &self.signals.stop
    }

    /// True if the replay must end.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
    }

    /// Returns the settings if they have changed since the generation `seen`, and sets `seen` to the present
    /// generation.
    #[inline]
    pub(crate) fn changed(&self, seen: &mut u64) -> Option<Settings> {
        let generation = self.generation.load(Ordering::Acquire);
        (generation != *seen).then(|| {
            *seen = generation;
            *self.locked()
        })
    }

    /// The present settings.
    pub(crate) fn settings(&self) -> Settings {
        *self.locked()
    }

    /// Returns true once after each time that the process was continued.
    #[inline]
    pub(crate) fn take_continued(&self) -> bool {
        take(&self.signals.continued)
    }

    /// Carries out a toggle that a signal handler requested.
    #[inline]
    pub(crate) fn obey_signals(&self) {
        if take(&self.signals.toggle) {
            self.apply(Command::Toggle);
        }
    }

    /// Publishes the progress of the sending loop.
    pub(crate) fn publish(&self, frames: u64, bytes: u64, pass: u64) {
        self.frames.store(frames, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.pass.store(pass, Ordering::Relaxed);
    }

    fn locked(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clears a flag and returns its former value.
#[inline]
fn take(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_and_other_texts_are_refused_with_the_list() {
        for command in ["pause", "resume", "stop", "status", "speed 2x", "speed 1000pps", "speed flat", "speed 8bit"] {
            assert_eq!(command.parse::<Command>().map(|c| c.to_string()), Ok(command.to_owned()));
        }
        assert!("go".parse::<Command>().unwrap_err().to_string().contains("write pause, resume"));
        assert!("speed".parse::<Command>().is_err());
        assert!("speed fast".parse::<Command>().unwrap_err().to_string().contains("write original, 2x"));
    }

    #[test]
    fn a_command_changes_the_settings_once() {
        let control = Control::new(Pace::ORIGINAL, SignalFlags::default());
        let mut seen = 0;
        assert_eq!(control.apply(Command::Status).state, "running");
        assert_eq!(control.changed(&mut seen), None);
        assert_eq!(control.apply(Command::Toggle).state, "paused");
        assert_eq!(control.apply(Command::Pace(Pace::FLAT)).speed, "flat");
        assert_eq!(control.changed(&mut seen), Some(Settings { pace: Pace::FLAT, is_paused: true }));
        assert_eq!(control.changed(&mut seen), None);
        assert_eq!(control.apply(Command::Stop).state, "stopped");
        assert!(control.is_stopped());
    }
}
