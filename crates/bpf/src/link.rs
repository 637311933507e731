//! A link keeps a program attached to an interface and can replace the program between two frames.
//!
//! To replace a program, the crate never detaches it first: many drivers rebuild their queues on attach and detach, and
//! lose the packets in them. `BPF_LINK_UPDATE` exchanges a pointer instead (`bpf_xdp_link_update` in net/core/dev.c),
//! then waits until no CPU runs the old program. Programs that change often go into a program array
//! ([`crate::MapKind::ProgArray`]).

use crate::program::Program;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use sys::bpf::{self, LinkInfo};

/// The place in the kernel at which the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel allocates a socket buffer.
    Native,
    /// On socket buffers; works on every interface, but is slower.
    Generic,
}

impl XdpMode {
    /// `native` or `generic`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// The requested mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// Native if the driver supports it, else generic.
    #[default]
    Best,
    /// Only this mode.
    Only(XdpMode),
}

/// A program attached to an interface until this value is dropped, the process ends, or the interface disappears.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    program: Program,
    mode: XdpMode,
}

/// Reasons why a program could not be attached.
#[derive(Debug)]
pub enum AttachError {
    /// Another XDP program is attached.
    Busy {
        /// The kernel's error.
        error: io::Error,
        /// The id of the other program, if it is known.
        program: Option<u32>,
    },
    /// CAP_NET_ADMIN is missing.
    NotPermitted(io::Error),
    /// The driver refuses the program in this mode.
    Refused {
        /// The last mode tried.
        mode: XdpMode,
        /// The kernel's error.
        error: io::Error,
    },
}

impl Link {
    /// Attaches `program` to the interface.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(program: Program, ifindex: u32, options: AttachMode) -> Result<Self, AttachError> {
        let modes: &[XdpMode] = match options {
            AttachMode::Best => &[XdpMode::Native, XdpMode::Generic],
            AttachMode::Only(XdpMode::Native) => &[XdpMode::Native],
            AttachMode::Only(XdpMode::Generic) => &[XdpMode::Generic],
        };
        let mut refused = None;
        for &mode in modes {
            let flags = match mode {
                XdpMode::Native => bpf::XDP_NATIVE,
                XdpMode::Generic => bpf::XDP_GENERIC,
            };
            match bpf::link_xdp(program.as_fd(), ifindex, flags) {
                Ok(fd) => return Ok(Self { fd, program, mode }),
                // The other mode would fail for the same reason, and its error would hide the reason.
                Err(e) if matches!(e.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists) => {
                    return Err(AttachError::Busy { error: e, program: bpf::linked_program(ifindex) });
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(AttachError::NotPermitted(e)),
                Err(error) => refused = Some(AttachError::Refused { mode, error }),
            }
        }
        Err(refused.expect("at least one mode was tried"))
    }

    /// Replaces the running program by `program`: exactly one of the two processes each frame.
    ///
    /// # Errors
    /// An error of the kernel: `ENOLINK` if the interface has disappeared, `EINVAL` if only one of the programs accepts
    /// fragmented frames and the driver needs both to agree. The old program then stays.
    pub fn replace(&mut self, program: Program) -> io::Result<()> {
        bpf::update_link(self.fd.as_fd(), program.as_fd(), self.program.as_fd())?;
        self.program = program;
        Ok(())
    }

    /// The running program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The mode in which the program runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The kernel's information about the link; the interface is 0 after it has disappeared.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn info(&self) -> io::Result<LinkInfo> {
        bpf::link_info(self.fd.as_fd())
    }
}

/// Closing the descriptor detaches the program only if no other process has a descriptor of the link: a process that
/// lists links has one, and so has a child process until its `execve`. Hence the explicit detach; if the kernel refuses
/// it, the closing of the descriptor remains.
impl Drop for Link {
    fn drop(&mut self) {
        let _ = bpf::detach_link(self.fd.as_fd());
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { program: Some(id), .. } => write!(f, "another XDP program is attached (id {id})"),
            Self::Busy { error, program: None } => write!(f, "another XDP program is attached ({error})"),
            Self::NotPermitted(e) => write!(f, "attaching an XDP program needs CAP_NET_ADMIN ({e})"),
            Self::Refused { mode, error } => {
                write!(f, "the driver refuses the program in {} mode ({error})", mode.name())
            }
        }
    }
}

impl std::error::Error for AttachError {}
