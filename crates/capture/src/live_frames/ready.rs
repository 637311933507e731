//! Keeps a program attached to an unused interface, so that the kernel need not change its table of XDP programs for
//! each test run.
//!
//! Before and after a test run the kernel adds the program to the table of programs that XDP calls directly, and
//! removes it again (`bpf_prog_change_xdp` in net/bpf/test_run.c). Both operations wait for a grace period of all CPUs:
//! 24 ms per call, for any number of frames, on an idle machine of two cores. A program that is attached to any
//! interface is in the table already, so the kernel does not wait. Therefore this module attaches the program to an
//! interface without traffic: the loopback interface, which is down, of a network namespace that no other thread can
//! enter.

use bpf::{AttachError, AttachMode, Link, Program, XdpMode};
use std::io;
use std::thread;
use sys::netns::Namespace;

/// An XDP program that is attached to an interface in a network namespace of its own. As long as it is attached, it
/// stays in the kernel's table of programs that XDP calls directly.
pub(super) struct PreparedRun {
    link: Link,
    /// The interface to which the link is attached exists as long as this namespace.
    _namespace: Namespace,
}

/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;

impl PreparedRun {
    /// Attaches `program` to the loopback interface of a new namespace until the value is dropped.
    pub(super) fn keep(program: Program) -> io::Result<Self> {
        // The attachment is made on a new thread, because a namespace belongs to a thread, and the present thread must
        // remain in the namespace of its interface.
        let attach = move || {
            let namespace = Namespace::unshare()?;
            let link = Link::attach(program, LOOPBACK, AttachMode::Only(XdpMode::Generic)).map_err(attach_refusal)?;
            Ok(Self { link, _namespace: namespace })
        };
        thread::Builder::new()
            .name("netgrain-ready".to_owned())
            .spawn(attach)?
            .join()
            .expect("the thread does not panic")
    }

    pub(super) fn get(&self) -> &Program {
        self.link.program()
    }
}

fn attach_refusal(error: AttachError) -> io::Error {
    match error {
        AttachError::Busy { error, .. } | AttachError::NotPermitted(error) | AttachError::Refused { error, .. } => {
            error
        }
    }
}
