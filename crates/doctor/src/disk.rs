//! Checks of the volume of a store: its free space, write access, block device and write speed. A probe measures the
//! write speed with the disk code of the recorder.

use crate::Request;
use crate::checks;
use crate::finding::{Finding, State, Subject};
use base::units::{show_bytes, show_si};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::Slice;
use store::device::{Content, Device, DiskDevice, FileId, Op};
use sys::sysfs::Tree;
use sys::timex::{self, FsSpace};

/// The size of a write in bytes, the same as in the recorder.
const BLOCK: usize = 1 << 20;
/// The maximum number of bytes that the probe writes.
const PROBE_MAX: u64 = 256 << 20;
/// The time after which the probe starts no further write.
const PROBE_TIME: Duration = Duration::from_secs(2);
/// The maximum number of writes that the probe has in flight.
const DEPTH: usize = 16;
/// The test file of the probe has at most the size of the free space divided by this number.
const PROBE_SHARE: u64 = 4;

/// Names of file systems whose files are in memory. [`REMOTE`] has the names of file systems that access their files
/// through a network or a process.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];
const REMOTE: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "fuse", "glusterfs"];

/// Inspects the volume of the directory `store`, which need not exist yet.
pub fn examine(store: &Path, request: &Request, fastest: Option<u32>, tree: &Tree) -> Vec<Finding> {
    let s = Subject::Store(store.display().to_string());
    let Some(directory) = existing(store) else {
        return vec![
            Finding::new(&checks::DIRECTORY, &s, State::Bad, "neither the directory nor a directory above it exists")
                .fix("check the path"),
        ];
    };
    let mut all = Vec::new();
    let room = timex::fs_space(&directory).unwrap_or(FsSpace { total: 0, free: 0 });
    all.push(file_system(&s, &directory, tree));
    all.push(space(&s, room, request.segment, fastest));
    all.push(queue(&s, &directory, tree));
    let speed = request.includes(&[&checks::WRITE_SPEED]);
    let most = if speed { PROBE_MAX.min(room.free / PROBE_SHARE) } else { BLOCK as u64 };
    match probe(&directory, most) {
        Ok(probe) => {
            let there = if directory == store { "is writable" } else { "will be created by the recorder" };
            all.insert(0, Finding::good(&checks::DIRECTORY, &s, there));
            all.insert(2, direct(&s, &probe));
            if speed {
                all.push(write_speed(&s, &probe, fastest));
            }
        }
        Err(e) => all.insert(
            0,
            Finding::new(&checks::DIRECTORY, &s, State::Bad, format!("{}: not writable: {e}", directory.display()))
                .fix("give the recording user write permission there, or name another directory"),
        ),
    }
    all
}

/// Returns the directory itself, or its nearest ancestor that exists.
fn existing(store: &Path) -> Option<PathBuf> {
    let whole = std::path::absolute(store).ok()?;
    whole.ancestors().find(|p| p.is_dir()).map(Path::to_owned)
}

/// Returns the type of the file system that contains `directory`. Of all mount points that are `directory` or its
/// ancestors, the one with the longest path determines this file system (proc_pid_mountinfo(5)).
fn mounted(directory: &Path, mountinfo: &str) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mut best: Option<(usize, &str)> = None;
    for line in mountinfo.lines() {
        let Some((front, back)) = line.split_once(" - ") else { continue };
        let Some(point) = front.split(' ').nth(4) else { continue };
        // mountinfo writes spaces in names as octal numbers.
        let point = point.replace("\\040", " ");
        let kind = back.split(' ').next().unwrap_or_default();
        // Of two mounts at the same point, the later mount hides the earlier.
        if directory.starts_with(&point) && best.is_none_or(|(len, _)| len <= point.len()) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|b| b.1.to_owned())
}

fn file_system(s: &Subject, directory: &Path, tree: &Tree) -> Finding {
    let mountinfo = tree.text("proc/self/mountinfo").unwrap_or_default();
    match mounted(directory, &mountinfo) {
        None => Finding::new(&checks::FILE_SYSTEM, s, State::Unknown, "the file system is unknown"),
        Some(kind) if IN_MEMORY.contains(&kind.as_str()) => Finding::new(
            &checks::FILE_SYSTEM,
            s,
            State::Warning,
            format!("{kind}, whose files are in memory and lost at a restart"),
        )
        .fix("use a directory on a disk"),
        Some(kind) if REMOTE.iter().any(|f| kind == *f || kind.starts_with("fuse.")) => {
            Finding::new(&checks::FILE_SYSTEM, s, State::Bad, format!("{kind}, not a local disk"))
                .fix("use a directory on a local disk (ext4, XFS); only an archive may be remote")
        }
        Some(kind) => Finding::good(&checks::FILE_SYSTEM, s, kind),
    }
}

fn space(s: &Subject, room: FsSpace, segment: u64, fastest: Option<u32>) -> Finding {
    /// The share of free space below which file systems slow down, whatever their size.
    const LITTLE: f64 = 0.05;
    /// The check gives a warning if the volume will be full after fewer minutes than this, because an operator cannot
    /// react in so short a time.
    const SHORT: f64 = 5.0;
    if room.total == 0 {
        return Finding::new(&checks::SPACE, s, State::Unknown, "the file system does not report its size");
    }
    let share = room.free as f64 / room.total as f64;
    let minutes = fastest.map(|m| room.free as f64 / (f64::from(m) * 1e6 / 8.0) / 60.0);
    let lasts = minutes
        .map_or_else(String::new, |minutes| format!(", enough for {minutes:.1} min at the full rate of the link"));
    let found = format!("{} free of {}{lasts}", show_bytes(room.free), show_bytes(room.total));
    let fix_text = "remove old files, or set retention rules (docs/reference/retention.md)";
    if room.free < segment.max(BLOCK as u64) {
        return Finding::new(&checks::SPACE, s, State::Bad, format!("{found}: less than one packet file"))
            .fix(fix_text);
    }
    if share < LITTLE || minutes.is_some_and(|minutes| minutes < SHORT) {
        return Finding::new(&checks::SPACE, s, State::Warning, found).fix(fix_text);
    }
    Finding::good(&checks::SPACE, s, found)
}

/// Inspects the block device of the volume. A file system without a block device of its own gets a finding of state
/// good.
fn queue(s: &Subject, directory: &Path, tree: &Tree) -> Finding {
    let device = directory.metadata().map(|m| m.dev()).unwrap_or(0);
    // `st_dev` has the encoding of Linux (include/linux/kdev_t.h, new_encode_dev).
    let (major, minor) = (device >> 8 & 0xfff | device >> 32 & 0xffff_f000, device & 0xff | device >> 12 & 0xffff_ff00);
    let base = format!("sys/dev/block/{major}:{minor}");
    // The directory of a partition has no `queue`; the request queue is in the directory of its disk.
    let queue = [format!("{base}/queue"), format!("{base}/../queue")].into_iter().find(|q| tree.has(q));
    let Some(queue) = queue else {
        return Finding::good(&checks::DEVICE, s, "the file system has no block device of its own");
    };
    let file = |name: &str| tree.text(&format!("{queue}/{name}")).unwrap_or_default();
    let schedulers = file("scheduler");
    let chosen = schedulers.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
    let rotates = file("rotational") == "1";
    let found = format!(
        "{}, scheduler {chosen}, read-ahead {} kB, write cache: {}",
        if rotates { "reported as rotating" } else { "not rotating" },
        file("read_ahead_kb"),
        file("write_cache")
    );
    if matches!(chosen.as_str(), "bfq" | "cfq") {
        return Finding::new(&checks::DEVICE, s, State::Warning, found)
            .fix(format!("echo mq-deadline > /{queue}/scheduler (none for NVMe)"));
    }
    Finding::good(&checks::DEVICE, s, found)
}

/// The result of the probe.
struct Probe {
    how: String,
    best: bool,
    bytes: u64,
    seconds: f64,
}

/// Deletes the test file when this value is dropped, also after an error.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        // An error means that the test file was not created, so there is no file to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a test file of up to `most` bytes as the recorder writes packet files, and removes it.
fn probe(directory: &Path, most: u64) -> io::Result<Probe> {
    let mut device = DiskDevice::new(DEPTH as u32 * 2);
    let path = directory.join(format!(".netgrain-doctor-{}", std::process::id()));
    let file = device.create(&path, Content::Packets)?;
    let _cleared = Cleared(path);
    let outcome = write(&mut device, file, most.max(BLOCK as u64) / BLOCK as u64);
    device.close(file);
    let (bytes, seconds) = outcome?;
    Ok(Probe { how: device.describe(), best: device.is_best(), bytes, seconds })
}

fn write(device: &mut DiskDevice, file: FileId, blocks: u64) -> io::Result<(u64, f64)> {
    const ALLOCATE: u64 = u64::MAX;
    const SYNC: u64 = u64::MAX - 1;
    let mut done = Vec::new();
    let mut settle = |device: &mut DiskDevice, in_flight: &mut usize, until: usize| -> io::Result<()> {
        while *in_flight > until {
            device.reap(Duration::from_millis(100), &mut done)?;
            for end in done.drain(..) {
                *in_flight -= 1;
                match end.result {
                    // An error of the preallocation is ignored, because not every file system supports preallocation.
                    Err(_) if end.token == ALLOCATE => {}
                    result => drop(result?),
                }
            }
        }
        Ok(())
    };
    let mut in_flight = 1;
    device.start(file, Op::Allocate(blocks * BLOCK as u64), ALLOCATE)?;
    settle(device, &mut in_flight, 0)?;
    let content: Vec<u8> = (0..BLOCK).map(|i| base::hash::mix64(i as u64) as u8).collect();
    let begun = Instant::now();
    let mut written = 0;
    while written < blocks && begun.elapsed() < PROBE_TIME {
        settle(device, &mut in_flight, DEPTH - 1)?;
        let offset = written * BLOCK as u64;
        device.start(file, Op::Write { offset, slice: Slice::copied(&content) }, written)?;
        (written, in_flight) = (written + 1, in_flight + 1);
    }
    settle(device, &mut in_flight, 0)?;
    device.start(file, Op::Sync, SYNC)?;
    in_flight += 1;
    settle(device, &mut in_flight, 0)?;
    Ok((written * BLOCK as u64, begun.elapsed().as_secs_f64()))
}

fn direct(s: &Subject, probe: &Probe) -> Finding {
    if probe.best {
        return Finding::good(&checks::DIRECT, s, &*probe.how);
    }
    Finding::new(&checks::DIRECT, s, State::Warning, &*probe.how)
        .fix("use a local file system with direct writes (ext4, XFS), and allow io_uring (kernel.io_uring_disabled=0)")
}

fn write_speed(s: &Subject, probe: &Probe, fastest: Option<u32>) -> Finding {
    let rate = probe.bytes as f64 / probe.seconds.max(1e-9);
    let found = format!("{}/s over {}", show_bytes(rate as u64), show_bytes(probe.bytes));
    let Some(link) = fastest.map(|m| f64::from(m) * 1e6) else {
        return Finding::good(&checks::WRITE_SPEED, s, found);
    };
    let found = format!("{found}; the fastest link here delivers up to {}/s", show_bytes((link / 8.0) as u64));
    if rate * 8.0 < link {
        return Finding::new(&checks::WRITE_SPEED, s, State::Warning, found).fix(format!(
            "use faster disks, a --filter or a --snaplen; the volume keeps up with {}",
            show_si(rate * 8.0, "b/s")
        ));
    }
    Finding::good(&checks::WRITE_SPEED, s, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    #[test]
    fn the_probe_writes_and_removes_its_file() {
        let dir = TempDir::new("doctor-probe");
        let probe = probe(dir.path(), 4 << 20).expect("a writable directory");
        assert_eq!(probe.bytes, 4 << 20);
        assert!(probe.seconds > 0.0 && std::fs::read_dir(dir.path()).expect("the directory").next().is_none());
    }

    #[test]
    fn a_missing_store_is_checked_by_its_parent_directory_and_not_created() {
        let dir = TempDir::new("doctor-above");
        let store = dir.join("not/yet");
        let request = Request { segment: 2 << 20, ..Request::default() };
        let findings = examine(&store, &request, None, &Tree::default());
        assert_eq!((findings[0].check.name, findings[0].state), ("directory", State::Good), "{findings:?}");
        assert!(!dir.join("not").exists());
    }

    #[test]
    fn the_last_mount_at_a_point_decides() {
        let info = "20 1 0:1 / / rw - ext4 /dev/a rw\n21 20 0:2 / /tmp rw shared:1 - tmpfs t rw\n\
                    22 20 0:3 / /tmp rw - xfs /dev/b rw\n23 20 0:4 / /tmpish rw - nfs x rw\n";
        assert_eq!(mounted(Path::new("/tmp"), info).as_deref(), Some("xfs"));
        assert_eq!(mounted(Path::new("/"), info).as_deref(), Some("ext4"));
        assert_eq!(mounted(Path::new("/no such directory"), info), None);
    }

    #[test]
    fn little_free_space_is_a_warning_before_the_volume_is_full() {
        let s = Subject::Store("x".into());
        let of = |free, total| space(&s, FsSpace { free, total }, 2 << 30, Some(10_000)).state;
        assert_eq!(of(1 << 30, 1 << 40), State::Bad, "less than one packet file is free");
        assert_eq!(of(30 << 30, 1 << 40), State::Warning);
        assert_eq!(of(1 << 39, 1 << 40), State::Good);
        assert_eq!(of(28 << 30, 40 << 30), State::Warning, "enough for 0.4 min at the full rate of the link");
    }
}
