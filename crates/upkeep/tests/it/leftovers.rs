//! What recovery leaves alone, what it only tells of, and how it knows the living from the dead.

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

/// A volume on which a recorder writes its first file and has made its second.
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

/// The same on a real file system, of a recorder that was killed.
fn leave(stream: &mut Stream, store: &Path) {
    let dead = recording(stream);
    dead.kill();
    for (path, bytes) in dead.files() {
        let path = store.join(path.strip_prefix("store").expect("below the store"));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    }
}

#[test]
fn what_a_living_recorder_holds_is_neither_touched_nor_told_of() {
    let device = recording(&mut Stream::new(0));
    let before = device.files();
    assert_eq!(recover(device.clone()), [""; 0]);
    assert!(device.files() == before, "something was changed");
}

#[test]
fn what_a_dead_recorder_left_is_published_and_its_prepared_room_given_back() {
    let mut stream = Stream::new(0);
    let device = recording(&mut stream);
    device.kill();
    let reported = recover(device.clone());
    assert_eq!(reported.len(), 2, "{reported:#?}");
    assert!(reported[0].contains("removed 1 empty files") && reported[0].ends_with("1048576 bytes"), "{reported:#?}");
    assert!(reported[1].contains("recovered from a killed recorder, 3 packets"), "{reported:#?}");
    let published = check(&stream, &device.files(), "after the kill");
    assert_eq!((published.files, published.tally.stored, device.files().len()), (1, 3, 2));
    assert_eq!(recover(device), [""; 0], "the second time there is nothing to do");
}

#[test]
fn an_index_that_lost_its_packets_is_told_of_and_kept() {
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
fn packets_without_an_index_are_published_with_a_note_that_nothing_vouches_for_them() {
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
fn folders_of_somebody_else_do_not_come_before_those_of_hours() {
    let mut stream = Stream::new(0);
    let dead = recording(&mut stream);
    dead.kill();
    let mut files = dead.files();
    for number in 0..2000 {
        files.insert(path(&format!("store/eth1/notes/{number:04}/readme")), b"by hand".to_vec());
    }
    let device = MemoryDevice::with(1, files);
    let reported = recover(device.clone());
    assert_eq!(check(&stream, &device.files(), "beside the notes").tally.stored, 3, "{reported:#?}");
}

#[test]
fn a_file_whose_name_the_power_took_finds_its_hour_beside_folders_of_somebody_else() {
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
    let published = check(&stream, &device.files(), "found again");
    assert_eq!(
        (published.tally.stored, published.tally.notes[base::Note::Unverified as usize]),
        (3, 0),
        "{reported:#?}"
    );
}

#[test]
fn a_half_done_publication_is_finished() {
    let mut stream = Stream::new(0);
    let mut device = recording(&mut stream);
    device.kill();
    recover(device.clone());
    let whole = device.files();
    let packets = path(&HIDDEN.replace("/.2026", "/2026").replace(".partial", ""));
    device.rename(&packets, Path::new(HIDDEN)).expect("the packets were published");
    let reported = recover(device.clone());
    assert!(reported.len() == 1 && reported[0].contains("3 packets"), "{reported:#?}");
    assert!(device.files() == whole, "not as it was before");
}

#[test]
fn what_is_not_ours_keeps_its_name_and_its_bytes() {
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
    assert!(reported.len() == 1 && reported[0].contains("left alone"), "{reported:#?}");
    assert!(device.files() == before, "something was changed");
}

#[test]
fn locks_on_a_real_file_system_tell_the_living_from_the_dead() {
    let dir = testkit::TempDir::new("locks_on_a_real_file_system_tell_the_living_from_the_dead");
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

    // What dies later is found later.
    ids.into_iter().for_each(|id| living.close(id));
    let reported = recovered();
    assert!(!alive.iter().any(|path| path.exists()), "{reported:#?}");
}

#[test]
fn a_file_that_is_let_go_of_late_is_mended_all_the_same() {
    let mut stream = Stream::new(0);
    let device = recording(&mut stream);
    device.kill();
    // As the kernel does, until the last write of the dead has ended.
    let mut kernel = device.clone();
    let held = kernel.take(Path::new(HIDDEN)).expect("it is there").expect("nobody has it");
    let mut recovery = Recovery::new(device.clone(), Path::new("store/eth1"));
    recovery.prepare();
    // Interface, year, month, day, hour; and once more.
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
fn a_folder_that_cannot_be_listed_is_told_of_and_one_that_is_gone_is_not() {
    let dir = testkit::TempDir::new("a_folder_that_cannot_be_listed_is_told_of");
    std::fs::write(dir.join("eth1"), b"no folder").expect("a file");
    let reported = |name: &str| {
        let mut recovery = Recovery::new(DiskDevice::plain(), &dir.join(name));
        while recovery.step() {}
        recovery.take_events()
    };
    assert!(matches!(&reported("eth1")[..], [Event::Trouble { path, .. }] if *path == dir.join("eth1")));
    assert!(reported("eth2").is_empty());
}

#[test]
fn a_recovery_that_is_told_to_stop_ends_at_once_and_the_next_one_does_the_rest() {
    let dir = testkit::TempDir::new("a_recovery_that_is_told_to_stop_ends_at_once");
    let mut stream = Stream::new(0);
    leave(&mut stream, dir.path());
    let stop = Arc::new(AtomicBool::new(true));
    let before = read_all(dir.path());
    // The device by itself, as when the word comes in the middle of a file: whatever was begun is as after a kill.
    for both in [true, false] {
        let mut recovery = Recovery::new(DiskDevice::plain().until(Arc::clone(&stop)), &dir.join("eth1"));
        if both {
            recovery = recovery.until(Arc::clone(&stop));
        }
        while recovery.step() {}
        let reported = recovery.take_events();
        assert_eq!(reported.is_empty(), both, "{reported:#?}");
        assert!(read_all(dir.path()) == before, "something was changed: {reported:#?}");
    }
    stop.store(false, Ordering::Relaxed);
    let mut recovery = Recovery::new(DiskDevice::plain(), &dir.join("eth1")).until(stop);
    recovery.run();
    assert_eq!(check(&stream, &read_all(dir.path()), "the next one").tally.stored, 3);
}
