//! A walk of groups, members, programs and packets beside a model that does everything the obvious way.
//!
//! The dispatcher is turned by hand, the ring's writer on the same thread: whatever happens, happens in one order that
//! the seed decides. The model knows, for each member, the very packets that it must have been given.

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

/// The verdict is a function of the packet's number and the program's: anybody can know it.
fn verdict(salt: u64, n: u64) -> Verdict {
    let mut random = Prng::new(salt << 32 ^ n);
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

struct Salted(u64, u64);

impl Program for Salted {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        for (packet, out) in batch.iter().zip(out) {
            assert_eq!(*out, Verdict::default(), "as the contract says");
            *out = verdict(self.0, u64::from_le_bytes(packet.bytes[40..48].try_into().unwrap()));
            self.1 += 1;
        }
    }

    fn counters(&self) -> Vec<u64> {
        vec![self.1]
    }
}

/// The last octet of the only sender that passes.
struct From(&'static str);

impl MemberFilter for From {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        packet.bytes[29].to_string() == self.0
    }

    fn text(&self) -> &str {
        self.0
    }
}

fn swap(salt: u64, generation: u64) -> Swap {
    let (ports, names, counters) = (Vec::new(), Vec::new(), vec!["judged".to_owned()]);
    Swap {
        program: Some(Box::new(Salted(salt, 0))),
        generation,
        ports,
        names,
        knows_direction: false,
        host: None,
        counters,
    }
}

/// What one member must hear: (packet, mark, class, generation).
type Heard = (u64, u32, u8, u64);

struct Seat {
    member: Member,
    text: Option<&'static str>,
    listener: Listener,
    generations: Generations,
    due: VecDeque<Heard>,
    delivered: u64,
    refused: u64,
}

#[derive(Default)]
struct Model {
    salt: u64,
    generation: u64,
    seats: BTreeMap<u8, Seat>,
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
    /// Who wins, the obvious way: nobody looks at a table here.
    fn winner(&self, eligible: &[u8], hash: u32) -> Option<u8> {
        let mut weights = [0; 64];
        self.seats.iter().for_each(|(place, s)| weights[usize::from(*place)] = s.member.weight);
        let set = eligible.iter().fold(0, |set, p| set | 1u64 << p);
        match self.steering {
            Steering::Rendezvous => steering::winner(steering::slot(hash), set, &weights),
            Steering::Fold => steering::fold(hash, set, &weights),
        }
    }

    fn packet(&mut self, n: u64) {
        let v = verdict(self.salt, n);
        self.received += 1;
        self.kernel += u64::from(v.kernel);
        let reachable = |s: &Seat| s.member.classes & v.classes & class::ANY != 0;
        let eligible: Vec<u8> = self.seats.iter().filter(|(_, s)| reachable(s)).map(|(p, _)| *p).collect();
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
        for place in targets {
            let generation = self.generation;
            let seat = self.seats.get_mut(&place).unwrap();
            let class = (seat.member.classes & v.classes).trailing_zeros() as u8;
            self.classes.entry(class).or_default().copies += 1;
            // Even packets are from 10.0.0.1, odd ones from 10.0.0.2.
            let wanted = match seat.text {
                None => true,
                Some(text) => (text == "1") == n.is_multiple_of(2),
            };
            if !wanted {
                seat.refused += 1;
                continue;
            }
            seat.due.push_back((n, v.mark, class, generation));
            seat.delivered += 1;
        }
    }
}

/// Everything a member can hear by now is what it must hear.
fn listen(seat: &mut Seat) {
    let (mut descs, mut bytes) = (Vec::new(), Vec::new());
    while seat.listener.lag() > 0 {
        seat.listener.next(777, &mut descs);
        for d in &descs {
            let Some(generation) = seat.generations.follow(d).expect("generations go on") else { continue };
            let bytes = seat.listener.packet(d, &mut bytes).expect("the ring holds it");
            let n = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
            assert_eq!(seat.due.pop_front(), Some((n, d.mark, d.class(), generation)));
        }
    }
    assert_eq!(seat.due.len(), 0, "nothing more is due");
}

struct World {
    producer: Producer,
    dispatcher: Dispatcher,
    orders: Arc<CommandQueue>,
    shape: RingParameters,
    n: u64,
}

impl World {
    fn new() -> Self {
        let config = Config { name: "test".into(), bytes: 32 << 20, ..Config::default() };
        let producer = Producer::new(config).expect("memory");
        let shape = RingParameters { queue: 3, ..OfferedRing::of(&producer).shape };
        let orders = Arc::<CommandQueue>::default();
        let dispatcher = Dispatcher::new(&OfferedRing::of(&producer), Arc::clone(&orders), true);
        Self { producer, dispatcher, orders, shape, n: 0 }
    }

    /// The dispatcher works off everything; while it joins, the ring's writer answers, as in life.
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

    fn books(&mut self) -> Vec<GroupAccounting> {
        let (reply, answer) = channel();
        self.orders.leave(DispatcherCommand::Report(reply));
        self.turn();
        answer.recv().expect("an answer")
    }
}

fn check(books: &[GroupAccounting], models: &BTreeMap<u32, Model>) {
    assert_eq!(books.len(), models.len());
    for book in books {
        let (m, c) = (&models[&book.id], &book.counts);
        assert_eq!(c.contradictions(), Vec::<String>::new());
        assert_eq!((c.received, c.dropped, c.no_member), (m.received, m.dropped, m.no_member));
        assert_eq!((c.copies, c.to_kernel, c.skipped), (m.copies, m.kernel, 0));
        for class in 0..64 {
            assert_eq!(c.of_class(class), m.classes.get(&class).copied().unwrap_or_default(), "class {class}");
        }
        for (place, seat) in &m.seats {
            let part = &c.members[usize::from(*place)];
            assert_eq!((part.delivered, part.refused, part.lost), (seat.delivered, seat.refused, 0));
        }
        assert_eq!(book.counters, [("judged".to_owned(), m.received)], "counters survive every swap");
        assert_eq!(book.generation, m.generation);
    }
}

fn a_member(random: &mut Prng) -> (Member, Option<&'static str>) {
    let text = [None, None, Some("1"), Some("2")][random.below(4) as usize];
    let classes = match random.below(4) {
        0 => 1,
        1 => 0b1111,
        2 => 1 << random.below(4) | 1 << 8,
        _ => 1 << random.below(4),
    };
    let filter = text.map(|t| Arc::new(From(t)) as Arc<dyn MemberFilter>);
    (Member { classes, weight: 1 + random.below(3) as u8, filter }, text)
}

#[test]
fn a_walk_of_groups_beside_a_model_that_does_it_the_obvious_way() {
    let mut random = Prng::new(testkit::seed("a_walk_of_groups_beside_a_model_that_does_it_the_obvious_way"));
    let mut world = World::new();
    let mut models: BTreeMap<u32, Model> = BTreeMap::new();
    let mut id = 0;
    for _ in 0..700 {
        let some = random.below(models.len().max(1) as u64) as usize;
        let some = models.keys().nth(some).copied();
        let (done, _) = channel();
        match (random.below(12), some) {
            (0, _) if models.len() < 4 => {
                id += 1;
                let steering = if random.below(3) == 0 { Steering::Fold } else { Steering::Rendezvous };
                let membership = Arc::new(Membership::new(steering));
                let model = Model { salt: id.into(), generation: 1, steering, membership, ..Model::default() };
                let group = Group::new(id, Arc::clone(&model.membership), swap(model.salt, 1));
                models.insert(id, model);
                world.orders.leave(DispatcherCommand::Add { group: Box::new(group), seated: channel().0 });
            }
            (1, Some(id)) if random.below(6) == 0 => {
                models.remove(&id);
                let (reply, last) = channel();
                world.orders.leave(DispatcherCommand::Remove(id, reply));
                world.turn();
                assert!(last.recv().expect("an answer").is_some());
            }
            (2 | 3, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                let free = (0..64).find(|place| model.membership.member(*place).is_none());
                let Some(place) = free.filter(|_| model.seats.len() < 6) else { continue };
                let (member, text) = a_member(&mut random);
                let (memory, shape) = (world.producer.memory(), &world.shape);
                let (writer, branch) = Branch::grow(memory, shape, "test", 0).expect("memory");
                model.membership = Arc::new(model.membership.with(place, Some(member.clone())));
                let membership = Arc::clone(&model.membership);
                let (listener, generations) = (branch.listen(), Generations::default());
                let (due, delivered, refused) = (VecDeque::new(), 0, 0);
                model.seats.insert(place, Seat { member, text, listener, generations, due, delivered, refused });
                world.orders.leave(DispatcherCommand::Change {
                    group: id,
                    membership,
                    slot: place,
                    branch: Some(writer),
                    done,
                });
            }
            (4, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                let Some(place) = model.seats.keys().next().copied() else { continue };
                let mut seat = model.seats.remove(&place).unwrap();
                model.membership = Arc::new(model.membership.with(place, None));
                let membership = Arc::clone(&model.membership);
                world.orders.leave(DispatcherCommand::Change {
                    group: id,
                    membership,
                    slot: place,
                    branch: None,
                    done,
                });
                world.turn();
                listen(&mut seat);
                assert!(seat.listener.ended(), "who leaves is told the end");
            }
            (5, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                let Some((place, seat)) = model.seats.iter_mut().next_back() else { continue };
                seat.member.weight = 1 + random.below(4) as u8;
                model.membership = Arc::new(model.membership.with(*place, Some(seat.member.clone())));
                let (membership, place) = (Arc::clone(&model.membership), *place);
                world.orders.leave(DispatcherCommand::Change {
                    group: id,
                    membership,
                    slot: place,
                    branch: None,
                    done,
                });
            }
            (6, Some(id)) => {
                let model = models.get_mut(&id).unwrap();
                model.generation += 1;
                model.salt += 1000;
                let swap = swap(model.salt, model.generation);
                world.orders.leave(DispatcherCommand::Swap { group: id, swap, done: channel().0 });
            }
            (7, _) => {
                let books = world.books();
                check(&books, &models);
            }
            _ => {
                for _ in 0..random.below(900) {
                    world.push(&mut models);
                }
                world.producer.publish();
            }
        }
        world.turn();
        models.values_mut().flat_map(|m| m.seats.values_mut()).for_each(listen);
    }
    let books = world.books();
    check(&books, &models);
    while !world.producer.finish(START.after(std::time::Duration::from_secs(100_000))) {
        world.turn();
    }
    world.turn();
    let World { dispatcher, orders, .. } = world;
    drop(dispatcher);
    check(&orders.last_accounting().expect("the last books"), &models);
    for seat in models.values_mut().flat_map(|m| m.seats.values_mut()) {
        listen(seat);
        assert!(seat.listener.ended());
    }
    assert!(books.iter().any(|b| b.counts.copies > 1000), "the walk had something to deliver");
}

/// No program: everything is copied.
fn nothing() -> Swap {
    let (ports, names, counters) = (Vec::new(), Vec::new(), Vec::new());
    Swap { program: None, generation: 1, ports, names, knows_direction: false, host: None, counters }
}

#[test]
fn a_member_that_leaves_no_room_loses_its_own_packets_and_the_books_close() {
    let mut world = World::new();
    let membership = Arc::new(Membership::default());
    let first = nothing();
    let group = Box::new(Group::new(1, Arc::clone(&membership), first));
    world.orders.leave(DispatcherCommand::Add { group, seated: channel().0 });
    let mut all = (*membership).clone();
    let mut listeners = Vec::new();
    for place in 0..2 {
        let (writer, branch) = Branch::grow(world.producer.memory(), &world.shape, "test", 0).expect("memory");
        all = all.with(place, Some(Member { classes: 1, weight: 1, filter: None }));
        listeners.push(branch.listen());
        let (done, _) = channel();
        let membership = Arc::new(all.clone());
        world.orders.leave(DispatcherCommand::Change { group: 1, membership, slot: place, branch: Some(writer), done });
    }
    world.turn();
    let (mut descs, mut seen) = (Vec::new(), 0);
    for _ in 0..400 {
        for _ in 0..250 {
            world.push(&mut BTreeMap::new());
        }
        world.producer.publish();
        world.turn();
        listeners[0].next(10_000, &mut descs);
        seen += descs.iter().filter(|d| d.is_packet()).count() as u64;
    }
    let counts = world.books()[0].counts.clone();
    assert_eq!(counts.contradictions(), Vec::<String>::new());
    assert_eq!((seen, counts.members[0].delivered, counts.members[0].lost), (100_000, 100_000, 0));
    assert_eq!(counts.members[1].delivered + counts.members[1].lost, 100_000);
    assert!(counts.members[1].lost > 30_000, "{}", counts.members[1].lost);
}

#[test]
fn a_dispatcher_that_is_too_far_behind_lets_packets_go_and_says_so() {
    let mut world = World::new();
    let first = nothing();
    let group = Box::new(Group::new(1, Arc::default(), first));
    world.orders.leave(DispatcherCommand::Add { group, seated: channel().0 });
    world.turn();
    // Nobody turns the dispatcher while three quarters of the ring fill.
    let bytes = vec![0; 1000];
    let mut pushed = 0;
    for n in 0..24_000u64 {
        let ts = Timestamp::from_nanos(START.nanos() + n);
        let packet = ring::Packet { wire_len: 1000, ..ring::Packet::whole(&bytes, ts) };
        pushed += u64::from(world.producer.push(&packet).is_ok());
    }
    world.producer.publish();
    world.turn();
    let counts = world.books()[0].counts.clone();
    assert_eq!(counts.received + counts.skipped, pushed);
    assert!(counts.skipped > 10_000 && counts.received > 5_000, "{} skipped", counts.skipped);
    assert_eq!(counts.no_member, counts.received);
    assert_eq!(world.producer.tally().lost_total(), 0, "and the ring lost nothing because of it");
}
