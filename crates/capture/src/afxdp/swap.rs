//! An eBPF program of the packet language after loading and before it runs on an interface.

use bpf::{MapKind, MapSet, MapSpec, Program, RawMap};
use kernel_programs::{MapKind as Kind, MapRequirement, Role};
use std::sync::Arc;

/// A map of the program that runs on an interface.
pub type PortMap = Arc<RawMap>;

/// A program that the verifier accepted, with its maps created and filled.
#[derive(Clone, Debug)]
pub struct PreparedProgram {
    pub(super) program: Arc<Program>,
    pub(super) maps: MapSet,
    pub(super) roles: Vec<Role>,
    pub(super) kept: usize,
}

impl PreparedProgram {
    /// Number of instructions that the verifier processed. An instruction counts once for each time that the verifier
    /// processed it.
    pub fn verified(&self) -> u32 {
        self.program.info().map_or(0, |info| info.verified_insns)
    }

    /// Number of maps that are transferred, with their contents, from the previous program.
    pub fn kept(&self) -> usize {
        self.kept
    }
}

/// The specification of the map to create. When interfaces are removed and added, the same names may refer to other
/// interfaces. So a map of egress interfaces is retained only if it refers to the same interfaces.
pub(super) fn spec(need: &MapRequirement, egress: &[u32]) -> MapSpec {
    let meaning = match need.role {
        Role::EgressInterfaces => format!("{} {egress:?}", need.semantics),
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
