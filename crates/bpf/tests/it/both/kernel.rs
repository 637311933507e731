//! Runs a kernel program on single packets in the kernel (`BPF_PROG_TEST_RUN`).

use ir::{COUNTERS, MAX_MAPS, Program as Ir};
use kernel_programs::{
    COMPACT_BYTES, Clock, EmitOptions, KernelVerdict, METADATA_BYTES, MapKind as Kind, MapValue, Metadata, Object,
    PacketOutcome, QueueGenerations, Role, ToUser,
};
use netgrain_bpf::{Frames, MapKind, MapSpec, Program, RawMap};
use std::io;
use std::os::fd::AsFd;

/// The return value that means "to user space" in these tests; the program returns it in no other case.
pub const USER: u32 = 3;
/// The index of the loopback interface, which exists on every host.
const LOOPBACK: u32 = 1;

pub const OPTIONS: EmitOptions = EmitOptions {
    link_type: wire::link::ETHERNET,
    hash_key: 0x0123_4567_89ab_cdef,
    generation: 77,
    port: 2,
    ingress: 1,
    queues: 1,
    clock: Clock::Given,
    to_user: ToUser::Verdict(USER as u8),
    metadata: Metadata::Full,
};

pub struct Kernel {
    pub object: Object,
    maps: Vec<RawMap>,
    pub program: Program,
}

/// The result of a program for one packet.
#[derive(Debug, PartialEq, Eq)]
pub struct RunResult {
    pub verdict: u32,
    pub outcome: Option<PacketOutcome>,
    pub metadata: Option<KernelVerdict>,
}

/// A machine that runs a kernel program packet by packet. There are two machines: the kernel, and the eBPF interpreter.
pub trait Machine {
    fn object(&self) -> &Object;

    /// Runs one packet.
    fn run(&mut self, frame: &[u8], time: u64) -> RunResult;

    /// For each packet outcome, the number of packets with this outcome.
    fn outcomes(&self) -> Vec<u64>;

    /// The program generations that the kernel program has stored in its map for the queue of the test.
    fn seen(&self) -> QueueGenerations;

    /// Records, as user space does, that a packet of this generation was received.
    fn see(&mut self, generation: u32);

    /// The index of the egress interface through which the program sent the last packet, if the machine reports it.
    fn egress_interface(&self) -> Option<u32> {
        None
    }

    /// The counters of the group, and for each map the number of refused entries.
    fn counters(&self) -> (Vec<u64>, Vec<u64>);

    /// The entries of a map that have not expired at `now`. Removes expired entries from the map, as user space does.
    fn entries(&mut self, ir: &Ir, map: usize, now: u64) -> Vec<(Vec<u64>, u64)>;
}

/// Parses the metadata before a packet; `written` contains exactly the bytes that the program wrote.
pub fn metadata(written: &[u8]) -> Option<KernelVerdict> {
    let mut bytes = [0; METADATA_BYTES];
    bytes[METADATA_BYTES - written.len()..].copy_from_slice(written);
    KernelVerdict::read(&bytes, OPTIONS.generation)
}

impl Kernel {
    /// Loads the program. If this process may not load programs, reports that `test` is skipped and returns `None`.
    pub fn load(test: &str, object: Object) -> Option<Self> {
        let mut maps = Vec::new();
        for need in &object.maps {
            let spec = MapSpec {
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
                semantics: need.semantics.clone(),
            };
            let map = match RawMap::create(spec) {
                Ok(map) => map,
                Err(e) if e.error.kind() == io::ErrorKind::PermissionDenied => {
                    testkit::skip(test, &e.to_string());
                    return None;
                }
                Err(e) => panic!("{e}"),
            };
            for (key, value) in &need.content {
                map.set(key, value).expect("an entry");
            }
            if need.role == Role::EgressInterfaces {
                for interface in 0..need.entries {
                    map.set(&interface.to_ne_bytes(), &LOOPBACK.to_ne_bytes()).expect("the loopback interface");
                }
            }
            maps.push(map);
        }
        let fds: Vec<_> = maps.iter().map(AsFd::as_fd).collect();
        let code = object.code.with_maps(&fds).expect("a map for each slot");
        match Program::load("emitted", &code, Frames::Linear) {
            Ok(program) => Some(Self { object, maps, program }),
            Err(refusal) => panic!("{refusal}\n{:?}", object.code),
        }
    }

    fn map(&self, role: Role) -> Option<&RawMap> {
        self.object.maps.iter().position(|m| m.role == role).map(|i| &self.maps[i])
    }

    fn sum(&self, role: Role) -> Option<Vec<u64>> {
        let map = self.map(role)?;
        let value = map.get(&[0; 4]).expect("an array").expect("its first value");
        let width = map.spec().value_bytes as usize;
        let mut sums = vec![0_u64; width / 8];
        for of_cpu in value.chunks_exact(width) {
            for (sum, n) in sums.iter_mut().zip(of_cpu.chunks_exact(8)) {
                *sum += u64::from_ne_bytes(n.try_into().expect("eight bytes"));
            }
        }
        Some(sums)
    }
}

impl Machine for Kernel {
    fn object(&self) -> &Object {
        &self.object
    }

    fn run(&mut self, frame: &[u8], time: u64) -> RunResult {
        if let Some(clock) = self.map(Role::Clock) {
            clock.set(&[0; 4], &time.to_ne_bytes()).expect("a clock");
        }
        let before = self.outcomes();
        let mut out = vec![0; frame.len() + METADATA_BYTES];
        let run = self.program.run(frame, &mut out, 0, 0).expect("a test run");
        let after = self.outcomes();
        let incremented: Vec<_> =
            PacketOutcome::ALL.into_iter().filter(|f| after[*f as usize] != before[*f as usize]).collect();
        let sum = |outcomes: &[u64]| outcomes.iter().sum::<u64>();
        assert_eq!((incremented.len(), sum(&after)), (1, sum(&before) + 1), "each packet has exactly one outcome");
        let metadata_bytes = run.bytes_out as usize - frame.len();
        assert!(
            [0, COMPACT_BYTES, METADATA_BYTES].contains(&metadata_bytes),
            "{metadata_bytes} bytes before the packet"
        );
        assert_eq!(&out[metadata_bytes..run.bytes_out as usize], frame, "the packet is unchanged");
        let metadata = metadata(&out[..metadata_bytes]);
        RunResult { verdict: run.verdict, outcome: incremented.first().copied(), metadata }
    }

    fn outcomes(&self) -> Vec<u64> {
        self.sum(Role::Outcomes).expect("every object counts outcomes")
    }

    fn seen(&self) -> QueueGenerations {
        let value = self.map(Role::Generations).map(|map| map.get(&[0; 4]).expect("an array").expect("its value"));
        value.map_or(QueueGenerations::default(), |value| {
            QueueGenerations::read(value.first_chunk().expect("one queue"))
        })
    }

    fn see(&mut self, generation: u32) {
        let now = QueueGenerations { by_user: generation, ..self.seen() };
        if let Some(map) = self.map(Role::Generations) {
            map.set(&[0; 4], &now.bytes()).expect("an array");
        }
    }

    fn counters(&self) -> (Vec<u64>, Vec<u64>) {
        let all = self.sum(Role::Counters).unwrap_or_else(|| vec![0; usize::from(COUNTERS) + MAX_MAPS]);
        let (counters, refused) = all.split_at(COUNTERS.into());
        (counters.to_vec(), refused.to_vec())
    }

    fn entries(&mut self, ir: &Ir, map: usize, now: u64) -> Vec<(Vec<u64>, u64)> {
        let Some(held) = self.map(Role::Flow(map as u16)) else { return vec![] };
        let mut all = Vec::new();
        for key in held.keys().expect("a hash table") {
            let Some(value) = held.get(&key).expect("a hash table") else { continue };
            let entry = MapValue::read(value.as_slice().try_into().expect("an entry"));
            if entry.expired(ir.maps[map].expiry, now) {
                held.remove(&key).expect("a hash table");
                continue;
            }
            let words = key.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().expect("a word"))).collect();
            all.push((words, entry.number));
        }
        all.sort_unstable();
        all
    }
}
