//! A program that is kept ready, so that running it costs no more than what it does.
//!
//! Before and after a test run the kernel puts the program into the table of programs that XDP calls directly, and takes
//! it out again (`bpf_prog_change_xdp` in net/bpf/test_run.c). Both wait until every processor has gone by: 24 ms for each
//! call, however few frames it sends, on an idle machine of two cores. A program that is attached somewhere is in the
//! table anyway, and nobody waits. So this one is attached where nothing ever comes by: to the loopback port, which is
//! down, of a network namespace that nobody else can enter.

use bpf::{AttachError, AttachMode, Link, Program, XdpMode};
use std::io;
use std::thread;
use sys::netns::Namespace;

/// The program with what keeps it ready.
pub(super) struct PreparedRun {
    link: Link,
    /// The port lives as long as its namespace.
    _namespace: Namespace,
}

/// Every namespace numbers its loopback port so.
const LOOPBACK: u32 = 1;

impl PreparedRun {
    /// Keeps `program` ready until this is dropped.
    pub(super) fn keep(program: Program) -> io::Result<Self> {
        // On a thread of its own: a namespace belongs to the thread, and ours is that of the port.
        let attach = move || {
            let namespace = Namespace::unshare()?;
            let link = Link::attach(program, LOOPBACK, AttachMode::Only(XdpMode::Generic)).map_err(refusal)?;
            Ok(Self { link, _namespace: namespace })
        };
        thread::Builder::new().name("netgrain-ready".to_owned()).spawn(attach)?.join().expect("nothing there panics")
    }

    pub(super) fn get(&self) -> &Program {
        self.link.program()
    }
}

fn refusal(trouble: AttachError) -> io::Error {
    match trouble {
        AttachError::Busy { error, .. } | AttachError::NotPermitted(error) | AttachError::Refused { error, .. } => {
            error
        }
    }
}
