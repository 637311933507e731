//! What programs write, as text: the same for the engine's lines and for `netgrain lang run`.

use crate::interp::Execution;
use crate::ir::{ANY_CLASS, Log, Program};
use std::fmt::{self, Write};
use wire::{FlowKey, Headers};

/// Bytes of a packet that `log_buff` shows, as PFQ's did: link, network and the ports.
const SHOWN: usize = 34;

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub struct LogSubject<'a> {
    /// Of the packet.
    pub bytes: &'a [u8],
    /// On the wire.
    pub wire_len: u32,
    /// As pcap numbers it.
    pub link_type: u16,
    /// What the program had decided by then; only a [`Log::Trace`] has it.
    pub so_far: Option<&'a Execution>,
}

impl LogSubject<'_> {
    /// The line.
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

/// A program's words, which may be a stranger's: they neither begin a line of ours nor command a terminal.
fn harmless(text: &str) -> String {
    let one = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(one).collect()
}

/// Numbers of classes: `0`, `1,5`, or `all`.
pub fn classes(mask: u64) -> String {
    if mask == ANY_CLASS {
        return "all".to_owned();
    }
    (0..64).filter(|c| mask >> c & 1 == 1).map(|c| c.to_string()).collect::<Vec<_>>().join(",")
}

/// The record, all of it.
impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, hash, hash2, mark, state, .. } = self;
        write!(f, "{kind} class {} hash {hash:08x} {hash2:08x} mark {mark} state {state}", classes(self.classes))?;
        if self.kernel { f.write_str(" kernel") } else { Ok(()) }
    }
}
