//! What a program of the language is between being emitted and running on a port.

use bpf::{MapKind, MapSet, MapSpec, Program, RawMap};
use lang::ebpf::{MapKind as Kind, MapRequirement, Role};
use std::sync::Arc;

/// A map of the program that runs on a port.
pub type PortMap = Arc<RawMap>;

/// A program that the verifier accepted, with its maps made and filled.
#[derive(Clone, Debug)]
pub struct PreparedProgram {
    pub(super) program: Arc<Program>,
    pub(super) maps: MapSet,
    pub(super) roles: Vec<Role>,
    pub(super) kept: usize,
}

impl PreparedProgram {
    /// Instructions that the verifier went through, each as often as it had to.
    pub fn verified(&self) -> u32 {
        self.program.info().map_or(0, |info| info.verified_insns)
    }

    /// How many maps it takes over from the program before, with what is in them.
    pub fn kept(&self) -> usize {
        self.kept
    }
}

/// What the kernel is asked for. Names of interfaces mean other interfaces when ports come and go, so a map of devices is kept only
/// while it leads to the same ones.
pub(super) fn spec(need: &MapRequirement, devices: &[u32]) -> MapSpec {
    let meaning = match need.role {
        Role::Devices => format!("{} {devices:?}", need.semantics),
        _ => need.semantics.clone(),
    };
    MapSpec {
        name: need.name.clone(),
        kind: match need.kind {
            Kind::Hash => MapKind::Hash,
            Kind::LpmTrie => MapKind::LpmTrie,
            Kind::Array => MapKind::Array,
            Kind::PerCpuArray => MapKind::PerCpuArray,
            Kind::DevMap => MapKind::DevMap,
            Kind::XskMap => MapKind::XskMap,
        },
        key_bytes: need.key,
        value_bytes: need.value,
        entries: need.entries,
        semantics: meaning,
    }
}
