//! The services that an engine provides to its groups: programs, member filters, and packet sinks.

use crate::counts::SinkCounts;
use crate::dispatch::CommandQueue;
use crate::ingress_interface::IngressInterface;
use crate::service_error::ServiceError;
use crate::verdict::{Compiled, MemberFilter};
use ring::{Branch, OfferedRing};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// One ring with its dispatcher.
pub struct RingHandle {
    /// The interface whose packets the ring contains.
    pub source: IngressInterface,
    /// The number of the queue of this interface.
    pub queue: u16,
    /// The commands for the dispatcher.
    pub commands: Arc<CommandQueue>,
    /// The ring.
    pub offer: OfferedRing,
}

/// A destination to which the engine itself writes a member's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketSink {
    /// The interface of this name.
    Port(String),
    /// A capture file.
    File {
        /// The path of the file, which must not exist yet.
        path: PathBuf,
        /// The size limit of the file in bytes. Packets that would exceed the limit are counted as failed.
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

/// The services of an engine; the crate's tests replace them.
pub trait EngineServices: Send + Sync {
    /// Compiles a program for frames of this link type from these interfaces.
    ///
    /// # Errors
    /// The program does not compile. The error text contains the position in the source and a correction.
    fn compile(&self, text: &str, link_type: u32, from: &[IngressInterface])
    -> Result<Arc<dyn Compiled>, ServiceError>;

    /// Compiles a member filter.
    ///
    /// # Errors
    /// The filter is not valid. The error text contains the position in the filter.
    fn compile_filter(&self, text: &str, link_type: u32) -> Result<Arc<dyn MemberFilter>, ServiceError>;

    /// Starts a thread that writes the packets of these branches (each with its ingress interface) to a sink until the
    /// branches end, and returns the counters of the sink. The sink writes packets that this host sent to an egress
    /// interface only if `outgoing` is true. It never writes a packet to the interface on which the packet was
    /// captured, because such a packet would circulate without end.
    ///
    /// # Errors
    /// The sink cannot be opened. The error text contains the reason.
    fn open(
        &self,
        to: &PacketSink,
        branches: &[(&IngressInterface, &Branch)],
        outgoing: bool,
    ) -> Result<Arc<SinkCounts>, ServiceError>;

    /// True if the interface is dedicated to capture: the host receives a packet of the interface only if a program
    /// passes the packet to the host.
    fn is_dedicated(&self, _port: &IngressInterface) -> bool {
        false
    }

    /// Returns the host interface of the captured interface `port`, which passes packets to the host, or `None` if the
    /// host receives the packets of the captured interface without the engine.
    ///
    /// # Errors
    /// Packets cannot be passed to the host. The error text contains the reason.
    fn host(&self, port: &IngressInterface) -> Result<Option<String>, ServiceError>;
}
