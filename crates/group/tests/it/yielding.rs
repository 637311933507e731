//! Slow programs: the recording comes first, whatever they cost.
//!
//! A program here is slow in that the ring's writer goes on while it judges: it has the writer, and writes itself.

use base::Timestamp;
use netgrain_group::{
    CommandQueue, Dispatcher, DispatcherCommand, Group, Membership, Packet, Program, Swap, TurnResult, Verdict,
};
use ring::{Config, OfferedRing, Producer};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BYTES: u64 = 16 << 20;
const FRAME: usize = 1000;

#[derive(Clone)]
struct Writer(Arc<Mutex<Producer>>);

impl Writer {
    fn write(&self, packets: usize) {
        let mut producer = self.0.lock().expect("no panic");
        let ts = Timestamp::from_secs_nanos(1_700_000_000, 0);
        let packet = ring::Packet::whole(&[0; FRAME], ts);
        for _ in 0..packets {
            // What finds no room is lost, and counted.
            let _ = producer.push(&packet);
        }
        producer.publish();
    }

    fn lost(&self) -> u64 {
        self.0.lock().expect("no panic").tally().lost_total()
    }
}

/// While it judges some packets, so many others come.
struct Slow(Writer, usize);

impl Program for Slow {
    fn evaluate(&mut self, _: &[Packet<'_>], _: &mut [Verdict]) {
        self.0.write(self.1);
    }
}

/// Groups whose programs let so many packets come meanwhile, and a writer.
fn world(meanwhile: &[usize], grace: Duration) -> (Dispatcher, Arc<CommandQueue>, Writer) {
    let config = Config { name: "test".into(), bytes: BYTES, ..Config::default() };
    let mut producer = Producer::new(config).expect("memory");
    let orders = Arc::<CommandQueue>::default();
    let mut dispatcher = Dispatcher::new(&OfferedRing::of(&producer), Arc::clone(&orders), true).with_grace(grace);
    dispatcher.slot(&mut producer).expect("a gate");
    let writer = Writer(Arc::new(Mutex::new(producer)));
    for (id, packets) in (1..).zip(meanwhile) {
        let program = Some(Box::new(Slow(writer.clone(), *packets)) as Box<dyn Program>);
        let (ports, names, counters) = (Vec::new(), Vec::new(), Vec::new());
        let swap = Swap { program, generation: 1, ports, names, knows_direction: false, host: None, counters };
        let group = Box::new(Group::new(id, Arc::<Membership>::default(), swap));
        orders.leave(DispatcherCommand::Add { group, seated: channel().0 });
    }
    (dispatcher, orders, writer)
}

/// Received and skipped, by group.
fn books(dispatcher: &mut Dispatcher, orders: &CommandQueue) -> Vec<(u64, u64)> {
    let (tell, reported) = channel();
    orders.leave(DispatcherCommand::Report(tell));
    dispatcher.turn();
    reported.recv().expect("told").iter().map(|b| (b.counts.received, b.counts.skipped)).collect()
}

/// Packets that fill this part of the ring.
fn part(of: u64) -> usize {
    (BYTES / of) as usize / (FRAME + 16)
}

#[test]
fn a_slow_program_is_cut_short_within_a_batch_and_the_ring_loses_nothing() {
    let (mut dispatcher, _orders, writer) = world(&[part(3)], Duration::MAX);
    writer.write(256);
    // Two pieces of the batch, and half of the ring is full; four would fill more than there is.
    for _ in 0..500 {
        dispatcher.turn();
        assert_eq!(writer.lost(), 0);
    }
}

#[test]
fn one_slow_group_does_not_have_all_the_time_of_the_others() {
    let (mut dispatcher, orders, writer) = world(&[part(2), 0], Duration::MAX);
    writer.write(64);
    for _ in 0..2000 {
        dispatcher.turn();
    }
    let books = books(&mut dispatcher, &orders);
    assert_eq!(writer.lost(), 0);
    // They take turns; were the slow one always first, the other would come too late each time.
    assert!(books[0].1 > 0 && books[1].0 >= books[0].0 / 2, "received, skipped: {books:?}");
}

#[test]
fn what_is_left_of_a_live_stream_is_judged_for_a_while_and_no_longer() {
    for (grace, judged) in [(Duration::ZERO, 0), (Duration::from_secs(600), 3000)] {
        let (mut dispatcher, orders, writer) = world(&[0], grace);
        writer.write(3000);
        assert!(writer.0.lock().expect("no panic").finish(Timestamp::from_secs_nanos(1_700_000_001, 0)));
        let seen = books(&mut dispatcher, &orders);
        while dispatcher.turn() != TurnResult::End {}
        assert_eq!(seen.len(), 1);
        drop(dispatcher);
        let last = orders.last_accounting().expect("it has ended");
        assert_eq!((last[0].counts.received, last[0].counts.skipped), (judged, 3000 - judged), "{grace:?}");
    }
}
