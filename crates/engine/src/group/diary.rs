//! What programs write: a line each on standard error, at most [`MOST`] for each second of packets, because a program that
//! writes a line for each packet must not hold them up. All of them are counted, written or not.

use jit::Verdict;
use lang::ir::{Log, Program};
use std::fmt::Write as _;
use wire::{FlowKey, Headers};

/// Lines for each second of packets and worker.
const MOST: u32 = 10;

/// Bytes of a packet that `log_buff` shows, as PFQ's did: link, network and the ports.
const SHOWN: usize = 34;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Diary {
    second: u64,
    lines: u32,
    /// Lines that programs wanted.
    pub wanted: u64,
}

/// What a line may be about.
pub struct Subject<'a> {
    /// Of its port.
    pub port: &'a str,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Of the packet.
    pub bytes: &'a [u8],
    /// On the wire.
    pub wire_len: u32,
    /// As pcap numbers it.
    pub link_type: u16,
    /// What was decided.
    pub verdict: &'a Verdict,
}

impl Diary {
    /// One line more.
    pub fn write(&mut self, log: Log, program: &Program, about: &Subject<'_>) {
        if self.may(about.time) {
            sys::say!("netgrain: {}: {}", about.port, line(log, program, about));
        }
    }

    /// Whether there is room for a line at this time.
    fn may(&mut self, time: u64) -> bool {
        self.wanted += 1;
        if time / SECOND != self.second {
            (self.second, self.lines) = (time / SECOND, 0);
        }
        self.lines += 1;
        self.lines <= MOST
    }
}

/// A program's words, which may be a stranger's: they neither begin a line of ours nor command a terminal.
fn harmless(text: &str) -> String {
    let one = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(one).collect()
}

fn line(log: Log, program: &Program, about: &Subject<'_>) -> String {
    match log {
        Log::Message(n) => program.messages.get(usize::from(n)).map(|text| harmless(text)).unwrap_or_default(),
        Log::Packet => {
            let headers = Headers::of(about.bytes, about.wire_len, about.link_type);
            match FlowKey::of(about.bytes, &headers) {
                Some(key) => format!("{key} length {}", about.wire_len),
                None => format!("{} length {}", headers.ethertype(), about.wire_len),
            }
        }
        Log::Buffer => {
            let mut text = format!("{} of {} bytes:", about.bytes.len().min(SHOWN), about.wire_len);
            for byte in about.bytes.iter().take(SHOWN) {
                let _ = write!(text, " {byte:02x}");
            }
            text
        }
        Log::Trace => {
            let v = about.verdict;
            format!(
                "{} classes {:x} hash {:08x} {:08x} mark {} state {}{}",
                v.kind(),
                v.classes,
                v.hash,
                v.hash2,
                v.mark,
                v.state,
                if v.kernel() { " kernel" } else { "" }
            )
        }
    }
}
