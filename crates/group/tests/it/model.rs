//! Random operations on groups, members, programs and packets, compared with a simple model.
//!
//! The test calls the functions of the dispatcher and of the producer in a random order that the seed determines. The
//! model contains, for each member, the packets that the member must receive.

use base::{Prng, Timestamp};
use netgrain_group::{
    ClassCounts, CommandQueue, Delivery, Dispatcher, DispatcherCommand, Forwards, Generations, Group, GroupAccounting,
    Member, MemberFilter, Membership, Packet, Program, Steering, Swap, TurnResult, Verdict, class, steering,
};
use ring::{Branch, Config, Listener, OfferedRing, Producer, RingParameters};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::channel;

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

/// The verdict is a function of the program's seed and the packet's number, so the model can compute it.
fn verdict(seed: u64, n: u64) -> Verdict {
    let mut random = Prng::new(seed << 32 ^ n);
    let mut hash = || random.next_u64() as u32;
    let delivery = match hash() % 8 {
        0 => Delivery::Drop,
        1 | 2 => Delivery::Copy,
        3 => Delivery::DoubleSteer(hash(), hash()),
        4 => Delivery::Pick(hash()),
        _ => Delivery::Steer(hash()),
    };
    let classes = match hash() % 8 {
        0 => class::ANY,
        1 => 0b110,
        2 => 0b11_0000_0000,
        3 => 0,
        _ => 1 << (hash() % 4),
    };
    Verdict { delivery, classes, mark: hash(), kernel: hash() % 5 == 0, forwards: Forwards::default() }
}

struct SaltedProgram(u64, u64);

impl Program for SaltedProgram {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        for (packet, out) in batch.iter().zip(out) {
            assert_eq!(*out, Verdict::default(), "the contract of Program::evaluate");
            *out = verdict(self.0, u64::from_le_bytes(packet.bytes[40..48].try_into().unwrap()));
            self.1 += 1;
        }
    }

    fn counters(&self) -> Vec<u64> {
        vec![self.1]
    }
}

/// Passes packets whose source address has this last octet.
struct LastOctetFilter(&'static str);

impl MemberFilter for LastOctetFilter {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        packet.bytes[29].to_string() == self.0
    }

    fn text(&self) -> &str {
        self.0
    }
}

fn swap(seed: u64, generation: u64) -> Swap {
    let (ports, names, counters) = (Vec::new(), Vec::new(), vec!["evaluated".to_owned()]);
    Swap {
        program: Some(Box::new(SaltedProgram(seed, 0))),
        generation,
        ports,
        names,
        reads_direction: false,
        host: None,
        counters,
    }
}

/// A packet as a member must receive it: (number, mark, class, generation).
type Delivered = (u64, u32, u8, u64);

struct Session {
    member: Member,
    filter_text: Option<&'static str>,
    listener: Listener,
    generations: Generations,
    expected: VecDeque<Delivered>,
    delivered: u64,
    refused: u64,
}

#[derive(Default)]
struct Model {
    seed: u64,
    generation: u64,
    sessions: BTreeMap<u8, Session>,
    membership: Arc<Membership>,
    received: u64,
    dropped: u64,
    no_member: u64,
    copies: u64,
    kernel: u64,
    classes: BTreeMap<u8, ClassCounts>,
    steering: Steering,
}

impl Model {
    /// Returns the member that a hash is steered to, computed without a bucket table.
    fn winner(&self, eligible: &[u8], hash: u32) -> Option<u8> {
        let mut weights = [0; 64];
        self.sessions.iter().for_each(|(slot, s)| weights[usize::from(*slot)] = s.member.weight);
        let set = eligible.iter().fold(0, |set, p| set | 1u64 << p);
        match self.steering {
            Steering::Rendezvous => steering::winner(steering::bucket(hash), set, &weights),
            Steering::Fold => steering::fold(hash, set, &weights),
        }
    }

    fn packet(&mut self, n: u64) {
        let v = verdict(self.seed, n);
        self.received += 1;
        self.kernel += u64::from(v.kernel);
        let reachable = |s: &Session| s.member.classes & v.classes & class::ANY != 0;
        let eligible: Vec<u8> = self.sessions.iter().filter(|(_, s)| reachable(s)).map(|(p, _)| *p).collect();
        let mut targets: Vec<u8> = match v.delivery {
            Delivery::Drop => {
                self.dropped += 1;
                return;
            }
            Delivery::Copy => eligible,
            Delivery::Steer(hash) => self.winner(&eligible, hash).into_iter().collect(),
            Delivery::DoubleSteer(a, b) => [a, b].iter().filter_map(|hash| self.winner(&eligible, *hash)).collect(),
            Delivery::Pick(_) if eligible.is_empty() => Vec::new(),
            Delivery::Pick(n) => vec![eligible[n as usize % eligible.len()]],
        };
        targets.sort_unstable();
        targets.dedup();
        for class in (0..64).filter(|c| v.classes >> c & 1 == 1) {
            let part = self.classes.entry(class).or_default();
            part.packets += 1;
            part.no_member += u64::from(targets.is_empty());
        }
        if targets.is_empty() {
            self.no_member += 1;
        }
        self.copies += targets.len() as u64;
        for slot in targets {
            let generation = self.generation;
            let session = self.sessions.get_mut(&slot).unwrap();
            let class = (session.member.classes & v.classes).trailing_zeros() as u8;
            self.classes.entry(class).or_default().copies += 1;
            // Packets with an even number are from 10.0.0.1, the others from 10.0.0.2.
            let matches = match session.filter_text {
                None => true,
                Some(filter_text) => (filter_text == "1") == n.is_multiple_of(2),
            };
            if !matches {
                session.refused += 1;
                continue;
            }
            session.expected.push_back((n, v.mark, class, generation));
            session.delivered += 1;
        }
    }
}

/// Checks that a member has received exactly the packets that the model expects so far.
fn check_deliveries(session: &mut Session) {
    let (mut descs, mut bytes) = (Vec::new(), Vec::new());
    while session.listener.lag() > 0 {
        session.listener.next(777, &mut descs);
        for d in &descs {
            let Some(generation) = session.generations.follow(d).expect("consistent generations") else { continue };
            let bytes = session.listener.packet(d, &mut bytes).expect("the ring still holds the packet");
            let n = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
            assert_eq!(session.expected.pop_front(), Some((n, d.mark, d.class(), generation)));
        }
    }
    assert_eq!(session.expected.len(), 0, "expected packets are missing");
}

struct TestEngine {
    producer: Producer,
    dispatcher: Dispatcher,
    commands: Arc<CommandQueue>,
    shape: RingParameters,
    n: u64,
}

impl TestEngine {
    fn new() -> Self {
        let config = Config { name: "test".into(), bytes: 32 << 20, ..Config::default() };
        let producer = Producer::new(config).expect("memory");
        let shape = RingParameters { queue: 3, ..OfferedRing::of(&producer).shape };
        let commands = Arc::<CommandQueue>::default();
        let dispatcher = Dispatcher::new(&OfferedRing::of(&producer), Arc::clone(&commands), true);
        Self { producer, dispatcher, commands, shape, n: 0 }
    }

    /// Runs the dispatcher until it has no command and no packet. The producer serves join requests meanwhile, because
    /// the dispatcher may join the ring.
    fn turn(&mut self) {
        let Self { producer, dispatcher, .. } = self;
        std::thread::scope(|scope| {
            let working = scope.spawn(move || while let TurnResult::Batch(_) = dispatcher.turn() {});
            while !working.is_finished() {
                producer.service();
                std::thread::yield_now();
            }
            working.join().expect("no panic");
        });
    }

    fn push(&mut self, models: &mut BTreeMap<u32, Model>) {
        let mut bytes = [0; 64];
        wire::build::Frame::udp4([10, 0, 0, 1 + (self.n % 2) as u8], 1000, [10, 0, 0, 9], 53).fill(&mut bytes[..60]);
        bytes[40..48].copy_from_slice(&self.n.to_le_bytes());
        let ts = Timestamp::from_nanos(START.nanos() + self.n * 1_000_000);
        let packet = ring::Packet {
            hash: self.n as u32,
            mark: 99,
            l3: 14,
            l4: 34,
            wire_len: 64,
            ..ring::Packet::whole(&bytes, ts)
        };
        self.producer.push(&packet).expect("the dispatcher keeps up");
        models.values_mut().for_each(|m| m.packet(self.n));
        self.n += 1;
    }

    fn accounting(&mut self) -> Vec<GroupAccounting> {
        let (reply, answer) = channel();
        self.commands.push(DispatcherCommand::Report(reply));
        self.turn();
        answer.recv().expect("a response")
    }
}

fn check(accounting: &[GroupAccounting], models: &BTreeMap<u32, Model>) {
    assert_eq!(accounting.len(), models.len());
    for accounting_of_group in accounting {
        let (m, c) = (&models[&accounting_of_group.id], &accounting_of_group.counts);
        assert_eq!(c.contradictions(), Vec::<String>::new());
        assert_eq!((c.received, c.dropped, c.no_member), (m.received, m.dropped, m.no_member));
        assert_eq!((c.copies, c.to_kernel, c.skipped), (m.copies, m.kernel, 0));
        for class in 0..64 {
            assert_eq!(c.of_class(class), m.classes.get(&class).copied().unwrap_or_default(), "class {class}");
        }
        for (slot, session) in &m.sessions {
            let part = &c.members[usize::from(*slot)];
            assert_eq!((part.delivered, part.refused, part.lost), (session.delivered, session.refused, 0));
        }
        assert_eq!(accounting_of_group.counters, [("evaluated".to_owned(), m.received)], "counters persist over swaps");
        assert_eq!(accounting_of_group.generation, m.generation);
    }
}

fn random_member(random: &mut Prng) -> (Member, Option<&'static str>) {
    let filter_text = [None, None, Some("1"), Some("2")][random.below(4) as usize];
    let classes = match random.below(4) {
        0 => 1,
        1 => 0b1111,
        2 => 1 << random.below(4) | 1 << 8,
        _ => 1 << random.below(4),
    };
    let filter = filter_text.map(|t| Arc::new(LastOctetFilter(t)) as Arc<dyn MemberFilter>);
    (Member { classes, weight: 1 + random.below(3) as u8, filter }, filter_text)
}

#[test]
fn groups_agree_with_a_simple_model_on_a_random_walk() {
    let mut random = Prng::new(testkit::seed("groups_agree_with_a_simple_model_on_a_random_walk"));
    let mut engine = TestEngine::new();
    let mut models: BTreeMap<u32, Model> = BTreeMap::new();
    let mut id = 0;
    for _ in 0..700 {
        let chosen = random.below(models.len().max(1) as u64) as usize;
        let chosen = models.keys().nth(chosen).copied();
        let (done, _) = channel();
        match (random.below(12), chosen) {
            (0, _) if models.len() < 4 => {
                id += 1;
                let steering = if random.below(3) == 0 { Steering::Fold } else { Steering::Rendezvous };
                let membership = Arc::new(Membership::new(steering));
                let model = Model { seed: id.into(), generation: 1, steering, membership, ..Model::default() };
                let group = Group::new(id, Arc::clone(&model.membership), swap(model.seed, 1));
                models.insert(id, model);
                engine.commands.push(DispatcherCommand::Add { group: Box::new(group), joined: channel().0 });
            }
            (1, Some(id)) if random.below(6) == 0 => {
                models.remove(&id);
                let (reply, last) = channel();
                engine.commands.push(DispatcherCommand::Remove(id, reply));
                engine.turn();
                assert!(last.recv().expect("a response").is_some());
            }
            (2 | 3, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                let free = (0..64).find(|slot| model.membership.member(*slot).is_none());
                let Some(slot) = free.filter(|_| model.sessions.len() < 6) else { continue };
                let (member, filter_text) = random_member(&mut random);
                let (memory, shape) = (engine.producer.memory(), &engine.shape);
                let (writer, branch) = Branch::grow(memory, shape, "test", 0).expect("memory");
                model.membership = Arc::new(model.membership.with(slot, Some(member.clone())));
                let membership = Arc::clone(&model.membership);
                let (listener, generations) = (branch.listen(), Generations::default());
                let (expected, delivered, refused) = (VecDeque::new(), 0, 0);
                model
                    .sessions
                    .insert(slot, Session { member, filter_text, listener, generations, expected, delivered, refused });
                engine.commands.push(DispatcherCommand::Change {
                    group: id,
                    membership,
                    slot,
                    branch: Some(writer),
                    done,
                });
            }
            (4, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                let Some(slot) = model.sessions.keys().next().copied() else { continue };
                let mut session = model.sessions.remove(&slot).unwrap();
                model.membership = Arc::new(model.membership.with(slot, None));
                let membership = Arc::clone(&model.membership);
                engine.commands.push(DispatcherCommand::Change { group: id, membership, slot, branch: None, done });
                engine.turn();
                check_deliveries(&mut session);
                assert!(session.listener.ended(), "the branch of a member that left has ended");
            }
            (5, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                let Some((slot, session)) = model.sessions.iter_mut().next_back() else { continue };
                session.member.weight = 1 + random.below(4) as u8;
                model.membership = Arc::new(model.membership.with(*slot, Some(session.member.clone())));
                let (membership, slot) = (Arc::clone(&model.membership), *slot);
                engine.commands.push(DispatcherCommand::Change { group: id, membership, slot, branch: None, done });
            }
            (6, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                model.generation += 1;
                model.seed += 1000;
                let swap = swap(model.seed, model.generation);
                engine.commands.push(DispatcherCommand::Swap { group: id, swap, done: channel().0 });
            }
            (7, _) => {
                let accounting = engine.accounting();
                check(&accounting, &models);
            }
            _ => {
                for _ in 0..random.below(900) {
                    engine.push(&mut models);
                }
                engine.producer.publish();
            }
        }
        engine.turn();
        models.values_mut().flat_map(|m| m.sessions.values_mut()).for_each(check_deliveries);
    }
    let accounting = engine.accounting();
    check(&accounting, &models);
    while !engine.producer.finish(START.after(std::time::Duration::from_secs(100_000))) {
        engine.turn();
    }
    engine.turn();
    let TestEngine { dispatcher, commands, .. } = engine;
    drop(dispatcher);
    check(&commands.last_accounting().expect("the final accounting"), &models);
    for session in models.values_mut().flat_map(|m| m.sessions.values_mut()) {
        check_deliveries(session);
        assert!(session.listener.ended());
    }
    assert!(accounting.iter().any(|b| b.counts.copies > 1000), "the walk delivered packets");
}

/// A swap after which the group has no program, so that every packet is copied to the default class.
fn swap_to_no_program() -> Swap {
    let (ports, names, counters) = (Vec::new(), Vec::new(), Vec::new());
    Swap { program: None, generation: 1, ports, names, reads_direction: false, host: None, counters }
}

#[test]
fn a_full_branch_loses_only_packets_of_its_member_and_all_are_counted() {
    let mut engine = TestEngine::new();
    let membership = Arc::new(Membership::default());
    let first = swap_to_no_program();
    let group = Box::new(Group::new(1, Arc::clone(&membership), first));
    engine.commands.push(DispatcherCommand::Add { group, joined: channel().0 });
    let mut all = (*membership).clone();
    let mut listeners = Vec::new();
    for slot in 0..2 {
        let (writer, branch) = Branch::grow(engine.producer.memory(), &engine.shape, "test", 0).expect("memory");
        all = all.with(slot, Some(Member { classes: 1, weight: 1, filter: None }));
        listeners.push(branch.listen());
        let (done, _) = channel();
        let membership = Arc::new(all.clone());
        engine.commands.push(DispatcherCommand::Change { group: 1, membership, slot, branch: Some(writer), done });
    }
    engine.turn();
    let (mut descs, mut seen) = (Vec::new(), 0);
    for _ in 0..400 {
        for _ in 0..250 {
            engine.push(&mut BTreeMap::new());
        }
        engine.producer.publish();
        engine.turn();
        listeners[0].next(10_000, &mut descs);
        seen += descs.iter().filter(|d| d.is_packet()).count() as u64;
    }
    let counts = engine.accounting()[0].counts.clone();
    assert_eq!(counts.contradictions(), Vec::<String>::new());
    assert_eq!((seen, counts.members[0].delivered, counts.members[0].lost), (100_000, 100_000, 0));
    assert_eq!(counts.members[1].delivered + counts.members[1].lost, 100_000);
    assert!(counts.members[1].lost > 30_000, "{}", counts.members[1].lost);
}

#[test]
fn a_dispatcher_that_is_too_far_behind_skips_packets_and_counts_them() {
    let mut engine = TestEngine::new();
    let first = swap_to_no_program();
    let group = Box::new(Group::new(1, Arc::default(), first));
    engine.commands.push(DispatcherCommand::Add { group, joined: channel().0 });
    engine.turn();
    // The test fills three quarters of the ring while the dispatcher does not run.
    let bytes = vec![0; 1000];
    let mut pushed = 0;
    for n in 0..24_000u64 {
        let ts = Timestamp::from_nanos(START.nanos() + n);
        let packet = ring::Packet { wire_len: 1000, ..ring::Packet::whole(&bytes, ts) };
        pushed += u64::from(engine.producer.push(&packet).is_ok());
    }
    engine.producer.publish();
    engine.turn();
    let counts = engine.accounting()[0].counts.clone();
    assert_eq!(counts.received + counts.skipped, pushed);
    assert!(counts.skipped > 10_000 && counts.received > 5_000, "{} skipped", counts.skipped);
    assert_eq!(counts.no_member, counts.received);
    assert_eq!(engine.producer.tally().lost_total(), 0, "the ring lost nothing");
}
