//! A table that is divided into shards, as several threads share it.

use crate::traffic::{detect, mix, owned};
use base::Prng;
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::{Class, Classes, Detector, Duplicate, Settings};
use testkit::copies::{Copied, plant};

/// Packets with copies, of which some arrive on another interface.
fn packets(prng: &mut Prng) -> Vec<OwnedPacket> {
    let mut packets = owned(&plant(mix(3000, prng), &Copied::ALL, (1000, 3, 400_000), prng));
    packets.iter_mut().for_each(|packet| packet.interface = prng.below(3) as u16);
    packets
}

/// The results of a table that is divided into this number of shards.
fn sharded(settings: &Settings, packets: &[OwnedPacket], count: usize) -> Vec<Option<Duplicate>> {
    let detector = || Detector::new(settings.clone(), 7).expect("valid settings");
    let mut shards: Vec<Detector> = (0..count).map(|_| detector()).collect();
    let mut preparer = shards[0].preparer();
    let inspect = |packet: &OwnedPacket| {
        let packet = packet.packet();
        let prepared = preparer.prepare(&packet);
        let shard = &mut shards[prepared.shard(count)];
        shard.prefetcher().prefetch(&prepared);
        shard.inspect_prepared(&packet, &prepared)
    };
    packets.iter().map(inspect).collect()
}

#[test]
fn a_divided_table_gives_the_results_of_a_single_table() {
    let seed = testkit::seed("a_divided_table_gives_the_results_of_a_single_table");
    let mut prng = Prng::new(seed);
    let packets = packets(&mut prng);
    for classes in ["switching", "switching,routing", "routing,nat", "all"] {
        let classes: Classes = classes.parse().expect("classes");
        // The rule about retransmissions counts packets, of which a shard has fewer than the whole table.
        let retransmission_window = std::time::Duration::ZERO;
        let settings = Settings { classes, unordered_interfaces: true, retransmission_window, ..Settings::default() };
        let (expected, _) = detect(&settings, &packets, None);
        let found = sharded(&settings, &packets, settings.shards());
        let key = |result: &Option<Duplicate>| result.map(|found| (found.class, found.time));
        assert!(found.iter().map(key).eq(expected.iter().map(key)), "seed {seed}, {classes}");
        assert!(found.iter().flatten().count() > 100, "{classes}");
    }
}

#[test]
fn classes_whose_copies_have_other_hashes_have_a_single_shard() {
    let shards = |classes: Classes| Settings { classes, ..Settings::default() }.shards();
    for class in Class::ALL {
        let is_divisible = matches!(class, Class::Switching | Class::Routing);
        assert_eq!(shards(Classes::USUAL.with(class)) > 1, is_divisible, "{class}");
    }
}
