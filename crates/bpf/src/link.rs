//! A link attaches a program to an interface. It can replace the program by another without a loss of frames.
//!
//! To replace a program, this crate does not detach the old program first: many drivers rebuild their queues when a
//! program is attached or detached, and lose the packets in these queues. Instead, `BPF_LINK_UPDATE` exchanges a
//! pointer (`bpf_xdp_link_update` in net/core/dev.c) and then waits until no CPU runs the old program. If programs
//! change often, they can be stored in a program array ([`crate::MapKind::ProgArray`]).

use crate::program::Program;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use sys::bpf::{self, LinkInfo};

/// The part of the kernel in which an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// Native mode: the program runs in the network driver, before the kernel allocates a socket buffer.
    Native,
    /// Generic mode: the program runs after the kernel has allocated a socket buffer. This works on every interface,
    /// but is slower.
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
    /// Native mode if the driver supports it, otherwise generic mode.
    #[default]
    Best,
    /// Only this mode.
    Only(XdpMode),
}

/// An attached program. It remains attached until this value is dropped, the process ends, or the interface disappears.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    program: Program,
    mode: XdpMode,
}

/// The reasons why a program could not be attached.
#[derive(Debug)]
pub enum AttachError {
    /// Another XDP program is attached.
    Busy {
        /// The kernel's error.
        error: io::Error,
        /// The id of the program that is already attached, if it is known.
        program: Option<u32>,
    },
    /// CAP_NET_ADMIN is missing.
    NotPermitted(io::Error),
    /// The driver refuses to attach the program in this mode.
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
                // After an error of this kind, the other mode is not tried: the attempt would fail for the same reason,
                // with a less specific error.
                Err(e) if matches!(e.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists) => {
                    return Err(AttachError::Busy { error: e, program: bpf::linked_program(ifindex) });
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(AttachError::NotPermitted(e)),
                Err(error) => refused = Some(AttachError::Refused { mode, error }),
            }
        }
        Err(refused.expect("the list of modes is not empty"))
    }

    /// Replaces the running program by `program`; each frame is processed by exactly one of the two programs.
    ///
    /// # Errors
    /// An error of the kernel: `ENOLINK` if the interface has disappeared; `EINVAL` if only one of the two programs
    /// accepts fragmented frames and the driver does not permit this change. After an error, the old program continues
    /// to run.
    pub fn replace(&mut self, program: Program) -> io::Result<()> {
        bpf::update_link(self.fd.as_fd(), program.as_fd(), self.program.as_fd())?;
        self.program = program;
        Ok(())
    }

    /// The running program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The mode in which the attached program runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The kernel's information about the link. After the interface has disappeared, the interface index in it is 0.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn info(&self) -> io::Result<LinkInfo> {
        bpf::link_info(self.fd.as_fd())
    }
}

/// Detaches the program explicitly. Closing the descriptor alone is not sufficient, because the kernel detaches the
/// program only when no process has a descriptor of the link. Another process has one while it lists links, and a child
/// process has one until its `execve`. If the kernel refuses the detach, the descriptor is still closed.
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
