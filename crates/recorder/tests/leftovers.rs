//! What a recorder that was killed leaves, and what the next one makes of it.

mod common;

use base::Prng;
use common::{FakeFeed, Stream, config, read_all, run};
use netgrain_recorder::{Config, Recorder, Writer};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use store::DiskDevice;
use store::device::{Content, Device, MemoryDevice};

const NEXT: &str = "store/eth1/.next-q0-1.pcap.partial";
const HIDDEN: &str = "store/eth1/2026/11/21/19/.20261121T194000.000000000Z.pcap.partial";

/// A volume on which a recorder was killed while it wrote its first file and had made its second.
fn killed() -> MemoryDevice {
    let mut prng = Prng::new(1);
    let mut stream = Stream::new(0);
    stream.packet(&mut prng, 500, 0);
    stream.tick();
    let device = MemoryDevice::new(1);
    run(&stream, device.clone(), config(), &mut prng, |step, _, _| step < 50);
    let names: Vec<PathBuf> = device.files().into_keys().collect();
    assert!([NEXT, HIDDEN].iter().all(|n| names.contains(&PathBuf::from(n))), "{names:#?}");
    device
}

/// All that a recorder says of what it finds.
fn survey(device: &MemoryDevice, config: Config) -> Vec<String> {
    let mut writer = Writer::new(device.clone(), config);
    while writer.survey() {}
    writer.take_events().iter().map(ToString::to_string).collect()
}

#[test]
fn what_a_living_recorder_holds_is_neither_removed_nor_told_of() {
    let device = killed();
    assert_eq!(survey(&device, config()), [""; 0]);
    assert!(device.files().contains_key(Path::new(NEXT)));
}

#[test]
fn prepared_room_of_a_dead_recorder_is_given_back_and_its_packets_are_only_told_of() {
    let device = killed();
    device.kill();
    let before = device.files();
    let told = survey(&device, config());
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("removed 1 empty files") && told[0].ends_with("1048576 bytes"), "{told:#?}");
    assert!(
        told[1].contains("1 packet files") && told[1].contains(HIDDEN) && told[1].contains("capinfos"),
        "{told:#?}"
    );
    let mut after = device.files();
    assert!(after.insert(NEXT.into(), before[Path::new(NEXT)].clone()).is_none());
    assert!(after == before, "something else was changed");
}

#[test]
fn an_index_that_lost_its_packets_is_told_of_and_kept() {
    let mut device = killed();
    device.kill();
    let index = HIDDEN.replace(".pcap.partial", ".ngi").replace("/.2026", "/2026");
    device.rename(Path::new(&HIDDEN.replace(".pcap.", ".ngi.")), Path::new(&index)).expect("the index is there");
    let told = survey(&device, config());
    assert!(told.iter().any(|t| t.contains("1 indexes without their packet file") && t.contains(&index)), "{told:#?}");
    assert!(device.exists(Path::new(&index)));
    // The other half of the publication makes it whole.
    device.rename(Path::new(HIDDEN), Path::new(&index.replace(".ngi", ".pcap"))).expect("the packets are there");
    assert_eq!(survey(&device, config()), [""; 0]);
}

#[test]
fn each_hidden_file_is_told_of_by_one_of_several_queues_whatever_queues_there_were() {
    let mut device = MemoryDevice::new(3);
    for queue in ["", "-q0", "-q1", "-q2", "-q7", "-q9_3"] {
        let path = format!("store/eth1/2026/11/21/19/.20261121T194000.000000000Z{queue}.raw.partial");
        device.create(Path::new(&path), Content::Packets).expect("a new file");
    }
    device.kill();
    let of = |queue| {
        let mut config = Config { queues: 4, ..config() };
        config.header.queue = queue;
        survey(&device, config)
    };
    let files = |told: Vec<String>| -> u64 {
        told.iter().map(|t| t.split_once(": ").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!([0, 1, 2, 3].map(|queue| files(of(queue))), [2, 2, 1, 1]);
}

#[test]
fn locks_on_a_real_file_system_tell_the_living_from_the_dead() {
    let test = "locks_on_a_real_file_system_tell_the_living_from_the_dead";
    let dir = testkit::TempDir::new(test);
    let hour = dir.join("eth1/2026/11/20/03");
    let mut living = DiskDevice::plain();
    living.create_folder(&hour).expect("a folder");
    let alive = [dir.join("eth1/.next-q1-0.pcap.partial"), hour.join(".20261120T030000.000000000Z.pcap.partial")];
    let dead = [dir.join("eth1/.next-q0-0.pcap.partial"), hour.join(".20261120T031000.000000000Z.pcap.partial")];
    let ids = alive.each_ref().map(|path| living.create(path, Content::Packets).expect("a new file"));
    // A rename keeps the lock, as when a prepared file gets its place.
    let placed = hour.join(".20261120T032000.000000000Z.pcap.partial");
    living.rename(&alive[1], &placed).expect("renamed");
    dead.iter().for_each(|path| std::fs::write(path, [0; 9000]).expect("a file"));

    let stream = Stream::random(0, 50, &mut Prng::new(2));
    let record = || {
        let told = Mutex::new(Vec::new());
        let config = Config { store: dir.path().to_owned(), ..config() };
        let mut feed = FakeFeed::new(&stream);
        let recorder = Recorder::new(config, DiskDevice::new(8));
        recorder.run(&mut feed, |e| told.lock().expect("one thread").push(e.to_string())).expect("a thread");
        told.into_inner().expect("one thread")
    };
    let told = record();
    assert!(!dead[0].exists() && alive[0].exists() && placed.exists(), "{told:#?}");
    let found = told.iter().find(|t| t.contains("hidden names")).expect("the dead file is told of");
    assert!(found.contains("1 packet files") && found.contains(&dead[1].display().to_string()), "{found}");
    assert_eq!(read_all(dir.path())[&dead[1]], [0; 9000]);

    // What dies later is found later.
    ids.into_iter().for_each(|id| living.close(id));
    let told = record();
    assert!(!alive[0].exists(), "{told:#?}");
    assert!(told.iter().any(|t| t.contains("2 packet files")), "{told:#?}");
}
