//! Measurements: each stage by itself, with dummies in place of its neighbours, so that the bottleneck has a name.
#![forbid(unsafe_code)]

mod baseline;
mod capture;
mod columns;
mod conversations;
mod cpu_placement;
mod disk;
mod flow;
mod group;
mod idle;
mod lang;
mod live;
mod member_processes;
mod output;
mod process;
mod query;
mod record;
mod replay;
mod ring;
mod stats;
mod stenographer;
mod volume;
mod xdp;

pub use crate::capture::CaptureArgs;
pub use crate::columns::ColumnsArgs;
pub use crate::disk::DiskArgs;
pub use crate::flow::FlowArgs;
pub use crate::group::GroupArgs;
pub use crate::lang::LangArgs;
pub use crate::live::LiveArgs;
pub use crate::member_processes::MemberArgs;
pub use crate::query::QueryArgs;
pub use crate::record::RecordArgs;
pub use crate::replay::ReplayArgs;
pub use crate::ring::{ListenerArgs, RingArgs};
pub use crate::stenographer::StenographerArgs;
pub use crate::xdp::XdpArgs;
use output::Stop;
use std::io::Write;

/// What to measure.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Stage {
    /// The ring: one producer, and lossy listeners in other processes
    Ring(RingArgs),
    /// What `bench ring` starts
    #[command(hide = true)]
    RingListener(ListenerArgs),
    /// The engine: simulated frames, stamped and hashed into the ring, without listeners
    Capture(CaptureArgs),
    /// The volume: direct sequential writes, and what they are enough for
    Disk(DiskArgs),
    /// The whole recorder, from simulated frames to files, beside direct writing and fio
    Record(RecordArgs),
    /// Finding packets again in a store, beside tcpdump -r and the volume's own reading
    Query(QueryArgs),
    /// Flow metering: conversations and floods from memory, beside nfpcapd, softflowd and argus
    Flow(FlowArgs),
    /// A capture file through the whole program, packets, index, flows and rows, beside nfpcapd
    Replay(ReplayArgs),
    /// Flow records to Parquet and the greatest senders among them, beside nfdump
    Columns(ColumnsArgs),
    /// A group: a dispatcher that steers by flow, and members in other processes
    Group(GroupArgs),
    /// What `bench group` starts
    #[command(hide = true)]
    GroupMember(MemberArgs),
    /// Stenographer beside us: the same packets, the same questions (root)
    Stenographer(StenographerArgs),
    /// The packet language: programs as machine code and interpreted, filters beside libpcap's
    Lang(LangArgs),
    /// Programs in the kernel: what they cost an interface, and how they are swapped under load (root)
    Xdp(XdpArgs),
    /// A live interface under full load, recorded: AF_XDP, TPACKET, and other recorders beside them (root)
    Live(LiveArgs),
}

impl Stage {
    /// Measures and prints. Whoever closes the pipe has had enough, which is no error.
    ///
    /// # Errors
    /// In one line, what could not be measured and what to do.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), String> {
        let outcome = match self {
            Self::Ring(args) => ring::run(args, out),
            Self::RingListener(args) => ring::listen(args, out),
            Self::Capture(args) => capture::run(args, out),
            Self::Disk(args) => disk::run(args, out),
            Self::Record(args) => record::run(args, out),
            Self::Query(args) => query::run(args, out),
            Self::Flow(args) => flow::run(args, out),
            Self::Replay(args) => replay::run(args, out),
            Self::Columns(args) => columns::run(args, out),
            Self::Group(args) => group::run(args, out),
            Self::GroupMember(args) => member_processes::member(args, out),
            Self::Stenographer(args) => stenographer::run(args, out),
            Self::Lang(args) => lang::run(args, out),
            Self::Xdp(args) => xdp::run(args, out),
            Self::Live(args) => live::run(args, out),
        };
        match outcome {
            Ok(()) | Err(Stop::Closed) => Ok(()),
            Err(Stop::Said(text)) => Err(text),
        }
    }
}

/// A span in seconds that a measurement may last.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.001..=86_400.0).contains(&s) => Ok(s),
        _ => Err(format!("{text:?} is not a number of seconds from 0.001 to 86400")),
    }
}
