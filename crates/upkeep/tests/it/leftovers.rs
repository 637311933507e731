//! Tests of the files that recovery must not change and of the files that it only reports. They also test that recovery
//! distinguishes running recorders from killed ones.

use crate::common;

use base::Prng;
use common::{Stream, check, config, path, read_all, recover, run};
use netgrain_upkeep::recovery::{Event, Outcome, Recovery};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::DiskDevice;
use store::device::{Content, Device, MemoryDevice};

const NEXT: &str = "store/eth1/.next-q0-1.pcap.partial";
const HIDDEN: &str = "store/eth1/2026/11/21/19/.20261121T194000.000000000Z.pcap.partial";

/// A volume on which a recorder is writing its first file and has prepared its second file.
fn recording(stream: &mut Stream) -> MemoryDevice {
    let mut prng = Prng::new(1);
    for _ in 0..3 {
        stream.packet(&mut prng, 500, 0);
        stream.tick();
    }
    let device = MemoryDevice::new(1);
    run(stream, device.clone(), config(), &mut prng, |step, _, _| step < 50);
    assert!([NEXT, HIDDEN].iter().all(|n| device.files().contains_key(Path::new(n))), "{:#?}", device.files().keys());
    device
}

/// The files of a killed recorder on a real file system: an incomplete first file and a prepared second file.
fn leave(stream: &mut Stream, store: &Path) {
    let dead = recording(stream);
    dead.kill();
    for (path, bytes) in dead.files() {
        let path = store.join(path.strip_prefix("store").expect("below the store"));
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, bytes).expect("a file");
    }
}

#[test]
fn files_of_a_running_recorder_are_neither_changed_nor_reported() {
    let device = recording(&mut Stream::new(0));
    let before = device.files();
    assert_eq!(recover(device.clone()), [""; 0]);
    assert!(device.files() == before, "the files were changed");
}

#[test]
fn files_of_a_dead_recorder_are_published_and_prepared_ones_removed() {
    let mut stream = Stream::new(0);
    let device = recording(&mut stream);
    device.kill();
    let reported = recover(device.clone());
    assert_eq!(reported.len(), 2, "{reported:#?}");
    assert!(reported[0].contains("removed 1 empty file ") && reported[0].ends_with("1.00 MiB"), "{reported:#?}");
    assert!(reported[1].contains("recovered from a killed recorder, 3 packets"), "{reported:#?}");
    let published = check(&stream, &device.files(), "after the kill");
    assert_eq!((published.files, published.tally.stored, device.files().len()), (1, 3, 2));
    assert_eq!(recover(device), [""; 0], "a second recovery finds nothing");
}

#[test]
fn an_index_without_its_packet_file_is_reported_and_kept() {
    let mut device = recording(&mut Stream::new(0));
    device.kill();
    recover(device.clone());
    let packets = path(&HIDDEN.replace("/.2026", "/2026").replace(".partial", ""));
    device.remove(&packets).expect("the packets were published");
    let reported = recover(device.clone());
    assert!(reported.len() == 1 && reported[0].contains("an index without its packet file"), "{reported:#?}");
    assert!(device.exists(&packets.with_extension("ngi")));
}

#[test]
fn packets_without_an_index_are_published_as_unverified() {
    let mut stream = Stream::new(0);
    let mut device = recording(&mut stream);
    device.kill();
    device.remove(&path(&HIDDEN.replace(".pcap.", ".ngi."))).expect("the index is there");
    recover(device.clone());
    let published = check(&stream, &device.files(), "without an index");
    assert_eq!(published.tally.stored, 3);
    assert_eq!(published.tally.notes[base::Note::Unverified as usize], 3);
}

#[test]
fn foreign_directories_are_examined_after_hour_directories() {
    let mut stream = Stream::new(0);
    let dead = recording(&mut stream);
    dead.kill();
    let mut files = dead.files();
    for number in 0..2000 {
        files.insert(path(&format!("store/eth1/notes/{number:04}/readme")), b"by hand".to_vec());
    }
    let device = MemoryDevice::with(1, files);
    let reported = recover(device.clone());
    assert_eq!(check(&stream, &device.files(), "beside foreign directories").tally.stored, 3, "{reported:#?}");
}

#[test]
fn a_file_that_lost_its_name_is_recovered_beside_foreign_directories() {
    let mut stream = Stream::new(0);
    let dead = recording(&mut stream);
    dead.kill();
    let mut files = dead.files();
    let packets = files.remove(Path::new(HIDDEN)).expect("the packets");
    files.insert(path("store/eth1/.next-q0-0.pcap.partial"), packets);
    for name in ["lost+found", "notes", "tmp"] {
        files.insert(path(&format!("store/eth1/{name}/1/2/3/readme")), b"by hand".to_vec());
    }
    let device = MemoryDevice::with(1, files);
    let reported = recover(device.clone());
    let published = check(&stream, &device.files(), "the file is found");
    assert_eq!(
        (published.tally.stored, published.tally.notes[base::Note::Unverified as usize]),
        (3, 0),
        "{reported:#?}"
    );
}

#[test]
fn an_interrupted_publication_is_completed() {
    let mut stream = Stream::new(0);
    let mut device = recording(&mut stream);
    device.kill();
    recover(device.clone());
    let whole = device.files();
    let packets = path(&HIDDEN.replace("/.2026", "/2026").replace(".partial", ""));
    device.rename(&packets, Path::new(HIDDEN)).expect("the packets were published");
    let reported = recover(device.clone());
    assert!(reported.len() == 1 && reported[0].contains("3 packets"), "{reported:#?}");
    assert!(device.files() == whole, "the files differ from those before");
}

#[test]
fn foreign_files_are_not_changed() {
    let hour = "store/eth1/2026/11/21/19/";
    let files = [
        (".20261121T194000.000000000Z.pcap.partial", vec![7u8; 9000]),
        ("notes.txt", b"by hand".to_vec()),
        (".hidden", vec![1]),
        (".rsync.pcap.ABC", vec![2]),
        ("20261121T194000.000000000Z.pcap", vec![3; 100]),
    ];
    let files = files.map(|(name, bytes)| (path(&format!("{hour}{name}")), bytes)).into();
    let device = MemoryDevice::with(1, files);
    let before = device.files();
    let reported = recover(device.clone());
    assert!(reported.len() == 1 && reported[0].contains("not changed"), "{reported:#?}");
    assert!(device.files() == before, "the files were changed");
}

#[test]
fn locks_distinguish_running_from_dead_recorders() {
    let dir = testkit::TempDir::new("locks_distinguish_running_from_dead_recorders");
    let mut stream = Stream::new(0);
    leave(&mut stream, dir.path());
    let mut living = DiskDevice::plain();
    let alive = [
        dir.join("eth1/.next-q1-0.pcap.partial"),
        dir.join("eth1/2026/11/21/19/.20261121T195000.000000000Z.pcap.partial"),
        dir.join("eth1/2026/11/21/19/.20261121T195000.000000000Z.ngi.partial"),
    ];
    let ids = alive.each_ref().map(|path| living.create(path, Content::Index).expect("a new file"));
    let recovered = || {
        let mut recovery = Recovery::new(DiskDevice::plain(), &dir.join("eth1"));
        recovery.run();
        recovery.take_events()
    };
    let reported = recovered();
    assert!(alive.iter().all(|path| path.exists()), "{reported:#?}");
    assert!(matches!(reported[0], Event::Released { files: 1, .. }), "{reported:#?}");
    assert!(matches!(reported[1], Event::Recovered { outcome: Outcome::Published { .. }, .. }), "{reported:#?}");
    assert_eq!(check(&stream, &read_all(dir.path()), "on a real file system").tally.stored, 3);

    // After the running recorder has lost its locks as in a kill, the next recovery finds its files.
    ids.into_iter().for_each(|id| living.close(id));
    let reported = recovered();
    assert!(!alive.iter().any(|path| path.exists()), "{reported:#?}");
}

#[test]
fn a_file_whose_lock_ends_late_is_recovered() {
    let mut stream = Stream::new(0);
    let device = recording(&mut stream);
    device.kill();
    // Simulates the kernel, which releases the locks of a killed process only after its last write has ended.
    let mut kernel = device.clone();
    let held = kernel.take(Path::new(HIDDEN)).expect("the file").expect("an unlocked file");
    let mut recovery = Recovery::new(device.clone(), Path::new("store/eth1"));
    recovery.prepare();
    // The recovery examines five directories (interface, year, month, day, hour), and then again the file that was
    // locked.
    assert!((0..6).all(|_| recovery.step()), "{:#?}", recovery.take_events());
    assert!(device.files().contains_key(Path::new(HIDDEN)));
    kernel.close(held);
    while recovery.step() {}
    let reported = recovery.take_events();
    assert!(
        reported.iter().any(|e| matches!(e, Event::Recovered { outcome: Outcome::Published { .. }, .. })),
        "{reported:#?}"
    );
    assert_eq!(check(&stream, &device.files(), "late").tally.stored, 3);
}

#[test]
fn an_unlistable_directory_is_reported_and_a_missing_one_is_not() {
    let dir = testkit::TempDir::new("an_unlistable_directory_is_reported");
    std::fs::write(dir.join("eth1"), b"no directory").expect("a file");
    let reported = |name: &str| {
        let mut recovery = Recovery::new(DiskDevice::plain(), &dir.join(name));
        while recovery.step() {}
        recovery.take_events()
    };
    assert!(matches!(&reported("eth1")[..], [Event::Trouble { path, .. }] if *path == dir.join("eth1")));
    assert!(reported("eth2").is_empty());
}

#[test]
fn a_stopped_recovery_is_completed_by_the_next_recovery() {
    let dir = testkit::TempDir::new("a_stopped_recovery_ends_at_once");
    let mut stream = Stream::new(0);
    leave(&mut stream, dir.path());
    let stop = Arc::new(AtomicBool::new(true));
    let before = read_all(dir.path());
    // In the test, only the device has the stop flag and the recovery has none, so reads fail while a file is being
    // recovered. Afterwards the files must be as after a kill.
    for is_flag_set in [true, false] {
        let mut recovery = Recovery::new(DiskDevice::plain().until(Arc::clone(&stop)), &dir.join("eth1"));
        if is_flag_set {
            recovery = recovery.until(Arc::clone(&stop));
        }
        while recovery.step() {}
        let reported = recovery.take_events();
        assert_eq!(reported.is_empty(), is_flag_set, "{reported:#?}");
        assert!(read_all(dir.path()) == before, "the files were changed: {reported:#?}");
    }
    stop.store(false, Ordering::Relaxed);
    let mut recovery = Recovery::new(DiskDevice::plain(), &dir.join("eth1")).until(stop);
    recovery.run();
    assert_eq!(check(&stream, &read_all(dir.path()), "the next one").tally.stored, 3);
}
