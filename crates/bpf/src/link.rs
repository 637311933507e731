//! A link keeps a program attached to an interface, and lets another take its place between two frames.
//!
//! A program is never taken off to put another on: many drivers rebuild their queues for that and lose what is in them.
//! `BPF_LINK_UPDATE` exchanges a pointer instead (`bpf_xdp_link_update` in net/core/dev.c), and then waits until the old program is
//! left everywhere; what is exchanged often goes into a program array ([`crate::MapKind::ProgArray`]).

use crate::program::Program;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use sys::bpf::{self, LinkInfo};

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel makes a socket buffer.
    Native,
    /// On socket buffers; works on every interface, and is slower.
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

/// Where the program should run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// Native where the driver can, else generic.
    #[default]
    Best,
    /// This one or none.
    Only(XdpMode),
}

/// A program attached to an interface until this is dropped, or the process ends, or the interface goes away.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    program: Program,
    mode: XdpMode,
}

/// A program that could not be attached.
#[derive(Debug)]
pub enum AttachError {
    /// Another XDP program is there.
    Busy {
        /// The kernel's answer.
        error: io::Error,
        /// Its number, if it can be found out.
        program: Option<u32>,
    },
    /// CAP_NET_ADMIN is missing.
    NotPermitted(io::Error),
    /// The interface does not take the program in this mode.
    Refused {
        /// The mode that was tried last.
        mode: XdpMode,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl Link {
    /// Attaches `program` to the interface.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(program: Program, ifindex: u32, wish: AttachMode) -> Result<Self, AttachError> {
        let modes: &[XdpMode] = match wish {
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
                // Another mode would not help against these, and would hide the reason.
                Err(e) if matches!(e.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists) => {
                    return Err(AttachError::Busy { error: e, program: bpf::linked_program(ifindex) });
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(AttachError::NotPermitted(e)),
                Err(error) => refused = Some(AttachError::Refused { mode, error }),
            }
        }
        Err(refused.expect("at least one mode was tried"))
    }

    /// Lets `program` take over from the one that runs: each frame sees exactly one of the two.
    ///
    /// # Errors
    /// The kernel's: `ENOLINK` when the interface has gone, `EINVAL` when only one of the programs takes fragmented
    /// frames and the driver minds. The old program then stays.
    pub fn replace(&mut self, program: Program) -> io::Result<()> {
        bpf::update_link(self.fd.as_fd(), program.as_fd(), self.program.as_fd())?;
        self.program = program;
        Ok(())
    }

    /// The program that runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Where it runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// What the kernel says; the interface is 0 once it has gone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn info(&self) -> io::Result<LinkInfo> {
        bpf::link_info(self.fd.as_fd())
    }
}

/// Closing the descriptor detaches the program only if nobody else has a descriptor of the link: a process that lists links
/// has, and so has a child process until its `execve`. Where the kernel refuses to detach, closing is all that is left.
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
