//! Why there is no program for the kernel, and what to do instead.

use super::MAPS_MAX;
use crate::ir::VerifyError;
use std::fmt;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The program is not fit to run anywhere.
    Unfit(VerifyError),
    /// Its first stage is not one for the kernel.
    Nothing {
        /// The stage's text.
        stage: String,
        /// Why not.
        why: String,
    },
    /// Frames of the port do not begin with an Ethernet header.
    LinkType(u16),
    /// The program remembers or counts, and what it decided could not be told to user space.
    NoMetadata,
    /// More numbers are alive at once than the kernel's stack holds.
    Stack {
        /// Bytes needed.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// More maps than a program of the kernel may name.
    Maps {
        /// Maps needed.
        need: usize,
    },
    /// More instructions than a jump can cross.
    TooLong {
        /// How far a jump would go.
        distance: i64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(e) => write!(f, "the program cannot run: {e}"),
            Self::Nothing { stage, why } => {
                write!(f, "nothing to do in the kernel: `{stage}` {why}; the program runs in user space as a whole")
            }
            Self::LinkType(link_type) => {
                write!(f, "frames of link type {link_type} are not for XDP, which takes Ethernet (1)")
            }
            Self::NoMetadata => f.write_str(
                "the program counts or remembers, and this driver lets no record go along with a packet; \
                 run it in user space",
            ),
            Self::Stack { need, have } => write!(
                f,
                "the program needs {need} bytes of stack in the kernel, where there are {have}; make shorter stages of the longest"
            ),
            Self::Maps { need } => write!(
                f,
                "the program needs {need} maps in the kernel, where {MAPS_MAX} are possible; use fewer flow maps in its first stage"
            ),
            Self::TooLong { distance } => write!(
                f,
                "the program is too long for the kernel: a jump over {distance} instructions, at most 32767 are possible"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<VerifyError> for Refusal {
    fn from(e: VerifyError) -> Self {
        Self::Unfit(e)
    }
}
