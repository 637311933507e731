//! The reasons why an interface cannot run a program.

use capture::SourceError;
use capture::egress::EgressError;
use jit::Refusal;
use std::fmt;

/// The reason why an interface cannot run a program.
#[derive(Debug)]
pub enum ProgramError {
    /// The text is not a program of the packet language.
    Language {
        /// The name of the program.
        name: String,
        /// The error and its position.
        error: lang::Error,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The program does something that is impossible at this interface.
    Impossible {
        /// The name of the program.
        name: String,
        /// The operation of the program that is impossible.
        operation: ImpossibleOperation,
    },
    /// An egress interface of the program cannot be opened.
    Egress(EgressError),
    /// The driver of this egress interface does not accept XDP frames from the kernel part.
    EgressDriver(String),
    /// The program would process only a part of the interface's packets.
    Queues {
        /// The interface.
        interface: String,
        /// Number of its queues.
        queues: u32,
        /// Number of queues that would be captured.
        captured: usize,
    },
    /// The interface with this name does not exist at the moment.
    Away(String),
    /// The user part cannot run.
    UserPart(Refusal),
    /// The kernel rejects the kernel part of the program. The error may include the verifier log.
    KernelPart(SourceError),
}

/// An operation of a program that is impossible at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImpossibleOperation {
    /// The program writes log lines.
    Log,
    /// The program forwards packets of a file or a simulation, or passes them to the host.
    SendReplayed,
    /// The program sends packets out of this interface, which would capture them again.
    SendToItself(String),
    /// This stage copies packets to the host, which is impossible on an interface that is dedicated to capture.
    CopyToHost(String),
    /// This stage passes packets to the host, but would run in user space, which cannot pass packets to the host.
    PassFromUserSpace(String),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Language { name, error, line, column } => {
                write!(f, "{name}, line {line}, column {column}: {}", error.what)?;
                error.help.iter().try_for_each(|help| write!(f, "; {help}"))
            }
            Self::Impossible { name, operation } => write!(f, "{name}: {operation}"),
            Self::Egress(e) => e.fmt(f),
            Self::EgressDriver(interface) => write!(
                f,
                "interface {interface}: its driver does not accept XDP frames from the kernel part of a program; for \
                 veth, enable GRO at its other end (ethtool -K PEER gro on)"
            ),
            Self::Queues { interface, queues, captured } => write!(
                f,
                "a program needs the packets of all {queues} queues of {interface}, but only {captured} would be \
                captured; omit --queues"
            ),
            Self::Away(interface) => write!(f, "{interface} does not exist at the moment; try again when it exists"),
            Self::UserPart(e) => e.fmt(f),
            Self::KernelPart(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for ImpossibleOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log => f.write_str(
                "a program of an interface cannot write log lines; count packets with `inc`, or log in a \
                group's program",
            ),
            Self::SendReplayed => f.write_str(
                "the program forwards packets or passes them to the host, which is impossible for replayed or \
                simulated packets; run it on an interface",
            ),
            Self::SendToItself(interface) => write!(
                f,
                "the packets that it sends out of {interface} would be captured again; dedicate the interface to \
                 capture (--dedicated), or forward to another interface"
            ),
            Self::CopyToHost(stage) => write!(
                f,
                "`{stage}` copies packets to the host, which is impossible on an interface that is dedicated to \
                 capture; pass these packets to the host without storing them (`detour`), or move the stage to a \
                 group's program (docs/reference/groups.md)"
            ),
            Self::PassFromUserSpace(stage) => write!(
                f,
                "`{stage}` would run in user space, which cannot pass packets to the host; move it before the stages \
                 that the kernel cannot run (`netgrain lang explain`)"
            ),
        }
    }
}

impl std::error::Error for ProgramError {}

impl From<EgressError> for ProgramError {
    fn from(e: EgressError) -> Self {
        Self::Egress(e)
    }
}

impl From<Refusal> for ProgramError {
    fn from(e: Refusal) -> Self {
        Self::UserPart(e)
    }
}
