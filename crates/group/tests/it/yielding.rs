//! Tests of slow programs: a slow program must not make the recording lose packets.
//!
//! The programs of these tests have access to the producer and write packets to the ring during each evaluation. A real
//! producer also writes packets while a slow program runs.

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
struct SharedProducer(Arc<Mutex<Producer>>);

impl SharedProducer {
    fn write(&self, packets: usize) {
        let mut producer = self.0.lock().expect("no panic");
        let ts = Timestamp::from_secs_nanos(1_700_000_000, 0);
        let packet = ring::Packet::whole(&[0; FRAME], ts);
        for _ in 0..packets {
            // If the ring has no free space, the packet is lost, and the producer counts it.
            let _ = producer.push(&packet);
        }
        producer.publish();
    }

    fn lost(&self) -> u64 {
        self.0.lock().expect("no panic").tally().lost_total()
    }
}

/// A program that writes this number of packets to the ring during each evaluation.
struct Slow(SharedProducer, usize);

impl Program for Slow {
    fn evaluate(&mut self, _: &[Packet<'_>], _: &mut [Verdict]) {
        self.0.write(self.1);
    }
}

/// Makes a dispatcher with one group for each element of `packets_per_evaluation`. The program of the group writes this
/// number of packets to the ring in each evaluation.
fn slow_groups(packets_per_evaluation: &[usize], grace: Duration) -> (Dispatcher, Arc<CommandQueue>, SharedProducer) {
    let config = Config { name: "test".into(), bytes: BYTES, ..Config::default() };
    let mut producer = Producer::new(config).expect("memory");
    let commands = Arc::<CommandQueue>::default();
    let mut dispatcher = Dispatcher::new(&OfferedRing::of(&producer), Arc::clone(&commands), true).with_grace(grace);
    dispatcher.join_ring(&mut producer).expect("a lossless reader");
    let producer = SharedProducer(Arc::new(Mutex::new(producer)));
    for (id, packets) in (1..).zip(packets_per_evaluation) {
        let program = Some(Box::new(Slow(producer.clone(), *packets)) as Box<dyn Program>);
        let (ports, names, counters) = (Vec::new(), Vec::new(), Vec::new());
        let swap = Swap { program, generation: 1, ports, names, reads_direction: false, host: None, counters };
        let group = Box::new(Group::new(id, Arc::<Membership>::default(), swap));
        commands.push(DispatcherCommand::Add { group, joined: channel().0 });
    }
    (dispatcher, commands, producer)
}

/// Returns the numbers of received and of skipped packets of each group.
fn accounting(dispatcher: &mut Dispatcher, commands: &CommandQueue) -> Vec<(u64, u64)> {
    let (reply, reported) = channel();
    commands.push(DispatcherCommand::Report(reply));
    dispatcher.turn();
    reported.recv().expect("a report").iter().map(|b| (b.counts.received, b.counts.skipped)).collect()
}

/// Returns the number of packets that fill a fraction `1 / of` of the ring.
fn part(of: u64) -> usize {
    (BYTES / of) as usize / (FRAME + 16)
}

#[test]
fn load_is_shed_within_a_batch_so_a_slow_program_loses_no_packet_of_the_ring() {
    let (mut dispatcher, _commands, producer) = slow_groups(&[part(3)], Duration::MAX);
    producer.write(256);
    // After two chunks of the batch, more than half of the ring is full. If all four chunks were evaluated, the ring
    // would overflow.
    for _ in 0..500 {
        dispatcher.turn();
        assert_eq!(producer.lost(), 0);
    }
}

#[test]
fn a_slow_group_does_not_starve_the_other_groups() {
    let (mut dispatcher, commands, producer) = slow_groups(&[part(2), 0], Duration::MAX);
    producer.write(64);
    for _ in 0..2000 {
        dispatcher.turn();
    }
    let accounting = accounting(&mut dispatcher, &commands);
    assert_eq!(producer.lost(), 0);
    // If the dispatcher stops at a group, this group evaluates its packets first in the next batch. If the slow group
    // were always first, the other group would skip every batch.
    assert!(accounting[0].1 > 0 && accounting[1].0 >= accounting[0].0 / 2, "received, skipped: {accounting:?}");
}

#[test]
fn the_rest_of_a_live_stream_is_evaluated_for_the_grace_time_only() {
    for (grace, judged) in [(Duration::ZERO, 0), (Duration::from_secs(600), 3000)] {
        let (mut dispatcher, commands, producer) = slow_groups(&[0], grace);
        producer.write(3000);
        assert!(producer.0.lock().expect("no panic").finish(Timestamp::from_secs_nanos(1_700_000_001, 0)));
        let seen = accounting(&mut dispatcher, &commands);
        while dispatcher.turn() != TurnResult::End {}
        assert_eq!(seen.len(), 1);
        drop(dispatcher);
        let last = commands.last_accounting().expect("the dispatcher has ended");
        assert_eq!((last[0].counts.received, last[0].counts.skipped), (judged, 3000 - judged), "{grace:?}");
    }
}
