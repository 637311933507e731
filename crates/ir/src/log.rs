//! Prints the log lines of programs. The engine's log and the output of `netgrain lang run` use the same text.

use crate::interp::Execution;
use crate::{ANY_CLASS, Log, Program};
use std::fmt::{self, Write};
use wire::{FlowKey, Headers};

/// Number of packet bytes that the function `log_buff` prints, as in PFQ; enough for link header, network header and
/// ports.
const SHOWN: usize = 34;

/// The packet that a log line describes.
#[derive(Clone, Copy, Debug)]
pub struct LogSubject<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// The wire length.
    pub wire_len: u32,
    /// The pcap link type of the packet.
    pub link_type: u16,
    /// The verdict record at the time of the log instruction; `None` unless the line is a [`Log::Trace`].
    pub so_far: Option<&'a Execution>,
}

impl LogSubject<'_> {
    /// The text of the line.
    pub fn line(&self, log: Log, program: &Program) -> String {
        match log {
            Log::Message(n) => program.messages.get(usize::from(n)).map(|text| harmless(text)).unwrap_or_default(),
            Log::Packet => {
                let headers = Headers::of(self.bytes, self.wire_len, self.link_type);
                match FlowKey::of(self.bytes, &headers) {
                    Some(key) => format!("{key} length {}", self.wire_len),
                    None => format!("{} length {}", headers.ethertype(), self.wire_len),
                }
            }
            Log::Buffer => {
                let mut text = format!("{} of {} bytes:", self.bytes.len().min(SHOWN), self.wire_len);
                for byte in self.bytes.iter().take(SHOWN) {
                    let _ = write!(text, " {byte:02x}");
                }
                text
            }
            Log::Trace => self.so_far.map(Execution::to_string).unwrap_or_default(),
        }
    }
}

/// Escapes control characters in a text of a program. Another user may have written the program, so its text must
/// neither begin a new log line nor contain terminal control sequences.
fn harmless(text: &str) -> String {
    let one = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(one).collect()
}

/// The class numbers of a class mask, printed like `0`, `1,5`, or `all`.
pub fn classes(mask: u64) -> String {
    if mask == ANY_CLASS {
        return "all".to_owned();
    }
    (0..64).filter(|c| mask >> c & 1 == 1).map(|c| c.to_string()).collect::<Vec<_>>().join(",")
}

/// Prints the complete record.
impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, hash, hash2, mark, state, .. } = self;
        write!(f, "{kind} class {} hash {hash:08x} {hash2:08x} mark {mark} state {state}", classes(self.classes))?;
        if self.kernel { f.write_str(" kernel") } else { Ok(()) }
    }
}
