//! What an engine lends to its groups: programs, filters, and the places that packets can go to beside processes.

use crate::counts::SinkCounts;
use crate::dispatch::CommandQueue;
use crate::verdict::{Compiled, MemberFilter};
use ring::{Branch, OfferedRing};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A port that packets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressInterface {
    /// Its name.
    pub name: String,
    /// And its number, in records and rows.
    pub number: u16,
}

/// One ring with its dispatcher.
pub struct RingHandle {
    /// Where its packets come from.
    pub source: IngressInterface,
    /// Number of the queue there.
    pub queue: u16,
    /// Where the dispatcher takes orders.
    pub commands: Arc<CommandQueue>,
    /// The ring.
    pub offer: OfferedRing,
}

/// Where the engine itself puts packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketSink {
    /// They go out of a port of this name.
    Port(String),
    /// They are written to a file.
    File {
        /// Which; it must not be there yet.
        path: PathBuf,
        /// Most bytes of it; what comes then is counted as failed.
        max_bytes: u64,
    },
}

impl fmt::Display for PacketSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(name) => write!(f, "interface {name}"),
            Self::File { path, .. } => write!(f, "file {}", path.display()),
        }
    }
}

/// See the module's text.
pub trait EngineServices: Send + Sync {
    /// Makes a program of its text, for frames of this link type that come from these ports.
    ///
    /// # Errors
    /// In words, with the place in the source and what to write instead.
    fn compile(&self, text: &str, link_type: u32, from: &[IngressInterface]) -> Result<Arc<dyn Compiled>, String>;

    /// Makes a member's filter.
    ///
    /// # Errors
    /// In words, with the place in the text.
    fn compile_filter(&self, text: &str, link_type: u32) -> Result<Arc<dyn MemberFilter>, String>;

    /// Begins to empty these branches, each with the port that its packets come from, into a place, until they end; the books of
    /// it. Into a port goes what this host sent itself only if `outgoing`, and never out of the port that it was seen on, where it
    /// would circle for ever.
    ///
    /// # Errors
    /// In words, why nothing can be put there.
    fn open(
        &self,
        to: &PacketSink,
        branches: &[(&IngressInterface, &Branch)],
        outgoing: bool,
    ) -> Result<Arc<SinkCounts>, String>;

    /// Whether the host does not get what arrives by this port, unless a program hands it over.
    fn shuts_host_out(&self, _port: &IngressInterface) -> bool {
        false
    }

    /// The port through which packets from `port` are brought to the host; `None` where the host has them anyway.
    ///
    /// # Errors
    /// In words, why they cannot be brought there.
    fn host(&self, port: &IngressInterface) -> Result<Option<String>, String>;
}
