//! The reasons why a program cannot run in the kernel, with advice for the user.

use super::MAPS_MAX;
use ir::{UserSpaceReason, VerifyError};
use std::fmt;

/// The reason why a program cannot run in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The program failed verification, so neither the kernel nor user space can run it.
    Unfit(VerifyError),
    /// The kernel cannot run the first stage of the program.
    Nothing {
        /// The source text of the stage.
        stage: String,
        /// The reason.
        why: UserSpaceReason,
    },
    /// The link type of the interface is this number, which is not Ethernet.
    LinkType(u16),
    /// The program counts or uses maps, but the driver leaves no space for metadata, so user space could not learn
    /// which packets the kernel has already processed.
    NoMetadata,
    /// More values are live at the same time than the stack of a kernel program can store.
    Stack {
        /// Required bytes.
        need: usize,
        /// Available bytes.
        have: usize,
    },
    /// The program needs more maps than a kernel program may use.
    Maps {
        /// Required maps.
        need: usize,
    },
    /// A jump in the program spans more instructions than its 16-bit offset permits.
    TooLong {
        /// Distance of the jump, in instruction slots.
        distance: i64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(e) => write!(f, "the program failed verification: {e}"),
            Self::Nothing { stage, why } => {
                write!(f, "no stage can run in the kernel: `{stage}` {why}; the whole program runs in user space")
            }
            Self::LinkType(link_type) => {
                write!(f, "XDP programs accept Ethernet frames (link type 1), not frames of link type {link_type}")
            }
            Self::NoMetadata => f.write_str(
                "the program uses counters or maps, and this driver leaves no space for metadata before a packet; \
                 run it in user space",
            ),
            Self::Stack { need, have } => write!(
                f,
                "the program needs {need} bytes of stack in the kernel, which has {have}; split the longest stage"
            ),
            Self::Maps { need } => write!(
                f,
                "the program needs {need} maps in the kernel, which permits {MAPS_MAX}; use fewer flow maps in its \
                 first stage"
            ),
            Self::TooLong { distance } => write!(
                f,
                "the program is too long for the kernel: a jump spans {distance} instructions; at most 32767 are \
                 possible"
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
