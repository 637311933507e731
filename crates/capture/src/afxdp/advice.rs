//! Explanations and advice for the errors of the kernel.

use super::dispatcher::DispatcherError;
use crate::SourceError;
use bpf::AttachError;
use std::io;
use sys::privilege::{self, Capabilities, Capability};
use sys::xsk::StepError;

/// Capabilities required to load and attach a program.
const XDP: Capabilities = Capabilities::of(&[Capability::NetAdmin, Capability::Bpf]);

/// Returns the error for an AF_XDP socket of queue `queue` of the interface `name` that could not be opened.
pub(super) fn socket_error(name: &str, queue: u32, failure: StepError) -> SourceError {
    let StepError { step, error } = failure;
    let binding = step == "bind to the queue";
    let advice = match error.raw_os_error() {
        Some(errno::EPERM) => privilege::advice("an AF_XDP socket", Capabilities::of(&[Capability::NetRaw])),
        Some(errno::EAFNOSUPPORT) => {
            "this kernel was built without CONFIG_XDP_SOCKETS; use --source-kind tpacket".to_owned()
        }
        Some(errno::ENOBUFS | errno::ENOMEM) => {
            "the packet memory cannot be allocated: raise the limit of locked memory (ulimit -l), or use smaller rings \
             or fewer queues"
                .to_owned()
        }
        Some(errno::EBUSY) if binding => {
            format!("another AF_XDP socket uses queue {queue}; stop the program that opened it, or choose other queues")
        }
        Some(errno::EOPNOTSUPP) if binding => {
            "the driver does not support zero-copy (or not for frames of several buffers); use copy mode".to_owned()
        }
        Some(errno::EINVAL) if binding => {
            format!(
                "queue {queue} may be disabled (see ethtool -l {name}), or the driver does not support the ring sizes"
            )
        }
        Some(errno::ENETDOWN) => format!("bring it up: ip link set {name} up"),
        _ => String::new(),
    };
    SourceError::System { name: name.to_owned(), what: step, error, advice }
}

/// Returns the error for a program that could not be attached to the interface `name`.
pub(super) fn dispatcher_error(name: &str, failure: DispatcherError) -> SourceError {
    let system =
        |what, error: io::Error, advice: String| SourceError::System { name: name.to_owned(), what, error, advice };
    match failure {
        DispatcherError::Map(refused) => {
            let bpf::MapSpec { name: map, entries, .. } = &refused.spec;
            let advice = match refused.error.kind() {
                io::ErrorKind::PermissionDenied => privilege::advice("XDP", XDP),
                io::ErrorKind::OutOfMemory => {
                    format!("map {map} would have {entries} entries; limit them with `up_to`")
                }
                _ => format!("the map {map} has {entries} entries"),
            };
            system("create the maps of the XDP program", refused.error, advice)
        }
        DispatcherError::Fill(map, error) => {
            system("fill the maps of the XDP program", error, format!("the kernel refused an entry of the map {map}"))
        }
        DispatcherError::Unbound(what) => {
            SourceError::Unsupported { name: name.to_owned(), reason: format!("{what}; please report this") }
        }
        DispatcherError::Load(refusal) => {
            let advice = if refusal.error.kind() == io::ErrorKind::PermissionDenied && refusal.log.is_empty() {
                privilege::advice("XDP", XDP)
            } else if refusal.log.contains("prohibited for !root") {
                privilege::advice("a program of the packet language", XDP.with(privilege::PROGRAMS))
            } else {
                format!("the verifier's log:\n{}", refusal.log.trim_end())
            };
            system("load the XDP program", refusal.error, advice)
        }
        DispatcherError::Attach(AttachError::Busy { program, .. }) => {
            let which = program.map_or_else(|| "see ip link".to_owned(), |id| format!("id {id}"));
            SourceError::Unsupported {
                name: name.to_owned(),
                reason: format!(
                    "the interface is busy: another XDP program is attached ({which}); stop the process that attached \
                     it, or use --source-kind tpacket, which captures the frames that the other program passes"
                ),
            }
        }
        DispatcherError::Attach(AttachError::NotPermitted(error)) => system(
            "attach the XDP program",
            error,
            privilege::advice("attaching", Capabilities::of(&[Capability::NetAdmin])),
        ),
        DispatcherError::Swap(error) => {
            system("swap the program", error, "the previous program continues to run".to_owned())
        }
        DispatcherError::Promiscuous(error) => system(
            "enable promiscuous mode",
            error,
            privilege::advice("a packet socket", Capabilities::of(&[Capability::NetRaw])),
        ),
        DispatcherError::Attach(AttachError::Refused { mode, error }) => {
            let advice = match (mode, error.raw_os_error()) {
                (_, Some(errno::ENODEV | errno::ENOLINK)) => "the interface has disappeared".to_owned(),
                (bpf::XdpMode::Native, _) => {
                    "the driver does not support XDP programs, or not with this MTU or number of queues; use generic \
                     mode"
                        .to_owned()
                }
                (bpf::XdpMode::Generic, _) => String::new(),
            };
            system("attach the XDP program", error, advice)
        }
    }
}

/// True if the error means that the interface does not exist (any more).
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::ENODEV | errno::ENXIO | errno::ENOLINK))
}

/// Linux error numbers that the functions above distinguish; equal on all supported architectures.
mod errno {
    pub const EPERM: i32 = 1;
    pub const ENXIO: i32 = 6;
    pub const ENOMEM: i32 = 12;
    pub const EBUSY: i32 = 16;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENOLINK: i32 = 67;
    pub const EOPNOTSUPP: i32 = 95;
    pub const EAFNOSUPPORT: i32 = 97;
    pub const ENETDOWN: i32 = 100;
    pub const ENOBUFS: i32 = 105;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(step: &'static str, error: i32) -> String {
        socket_error("eth1", 3, StepError { step, error: io::Error::from_raw_os_error(error) }).to_string()
    }

    #[test]
    fn a_missing_privilege_is_named_in_the_error() {
        let text = refused("open an AF_XDP socket", errno::EPERM);
        assert!(text.starts_with("eth1: cannot open an AF_XDP socket"), "{text}");
        assert!(text.contains("CAP_NET_RAW") && text.contains("run as root"), "{text}");
        let denied = || io::Error::from_raw_os_error(errno::EPERM);
        let load = bpf::LoadError { error: denied(), log: String::new() };
        let spec = bpf::MapSpec {
            name: "m".into(),
            kind: bpf::MapKind::Hash,
            key_bytes: 4,
            value_bytes: 4,
            entries: 1,
            semantics: String::new(),
        };
        let map = bpf::MapError { spec, error: denied() };
        for failure in [
            DispatcherError::Map(map),
            DispatcherError::Load(load),
            DispatcherError::Attach(AttachError::NotPermitted(denied())),
        ] {
            let text = dispatcher_error("eth1", failure).to_string();
            assert!(text.contains("CAP_NET_ADMIN") && text.contains("run as root"), "{text}");
        }
    }

    #[test]
    fn each_error_of_a_queue_has_its_advice() {
        let bind = "bind to the queue";
        assert!(refused(bind, errno::EBUSY).contains("another AF_XDP socket uses queue 3"));
        assert!(refused(bind, errno::EINVAL).contains("ethtool -l eth1"));
        assert!(refused(bind, errno::EOPNOTSUPP).contains("use copy mode"));
        assert!(refused("send", errno::ENETDOWN).contains("ip link set eth1 up"));
        assert!(refused("register packet memory", errno::ENOBUFS).contains("ulimit -l"));
    }

    #[test]
    fn the_error_of_a_busy_interface_names_the_program_or_ip_link() {
        let busy = |program| {
            let error = io::Error::from_raw_os_error(errno::EBUSY);
            dispatcher_error("eth1", DispatcherError::Attach(AttachError::Busy { error, program })).to_string()
        };
        assert!(busy(Some(42)).starts_with("eth1: the interface is busy: another XDP program is attached (id 42)"));
        assert!(busy(None).contains("(see ip link)"));
    }
}
