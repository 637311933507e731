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
        /// What the program does.
        operation: ImpossibleOperation,
    },
    /// An egress interface of the program cannot be opened.
    Egress(EgressError),
    /// The driver of this egress interface takes no frames from the kernel part.
    EgressDriver(String),
    /// The program would get only a part of the interface's packets.
    Queues {
        /// The interface.
        interface: String,
        /// Number of its queues.
        queues: u32,
        /// Number of queues that would be captured.
        captured: usize,
    },
    /// This interface does not exist at the moment.
    Away(String),
    /// The user part cannot run.
    UserPart(Refusal),
    /// The kernel refuses the kernel part; possibly with the verifier log.
    KernelPart(SourceError),
}

/// An operation of a program that is impossible at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImpossibleOperation {
    /// Writes logs.
    Log,
    /// Forwards packets of a file or a simulation, or passes them to the host.
    SendReplayed,
    /// Sends packets out of this interface, which captures them again.
    SendToItself(String),
    /// This stage copies packets to the host, and the interface is dedicated.
    CopyToHost(String),
    /// This stage passes packets to the host, and runs in user space.
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
                "interface {interface}: its driver takes no frames from the kernel part of a program now; for veth, switch on GRO at its \
                 other end (ethtool -K PEER gro on)"
            ),
            Self::Queues { interface, queues, captured } => write!(
                f,
                "a program needs the packets of all {queues} queues of {interface}, and {captured} would be captured; leave --queues out"
            ),
            Self::Away(interface) => write!(f, "{interface} does not exist at the moment; try again when it is back"),
            Self::UserPart(e) => e.fmt(f),
            Self::KernelPart(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for ImpossibleOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log => {
                f.write_str("an interface's program writes no logs; count with `inc`, or log in a group's program")
            }
            Self::SendReplayed => f.write_str(
                "it forwards packets that are only replayed, or passes them to the host; run it on an interface",
            ),
            Self::SendToItself(interface) => write!(
                f,
                "the packets that it sends out of {interface} would be captured again; dedicate the interface to capture \
                 (--dedicated), or forward to another interface"
            ),
            Self::CopyToHost(stage) => write!(
                f,
                "`{stage}` copies packets to the host, and an interface that is dedicated to capture gives it no copies; pass these \
                 packets to the host alone (`detour`), or write the stage into a group's program (docs/reference/groups.md)"
            ),
            Self::PassFromUserSpace(stage) => write!(
                f,
                "`{stage}` would run in user space, and from there nothing gets to the host; put it before the stages that the \
                 kernel cannot run (`netgrain lang explain`)"
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
