//! Direct sequential writing without a recorder: measures the write rate of a volume through the same device that the
//! recorder uses, and through `fio` if installed.

use crate::output::Stop;
use crate::process::{Helper, find};
use recorder::{Feed, RingFeed};
use ring::{LosslessReader, Producer};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::device::{Content, Op};
use store::{Bytes, Device, DiskDevice, Slice};
use sys::memory::Pages;

/// Bytes of the buffer that is written repeatedly; also the largest block.
pub const NOISE_BYTES: usize = 64 << 20;

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMode {
    /// Bytes of one write, a multiple of 4 KiB.
    pub block: u64,
    /// Writes in flight.
    pub depth: u32,
    /// Bytes of one file, rounded up to whole blocks.
    pub file: u64,
}

/// The amounts of data that were written, and the times that this took.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// One entry per file: bytes, and seconds from the first write to the end of the sync.
    pub files: Vec<(u64, f64)>,
    /// Bytes that had been written after each [`SERIES_STEP`] of writing.
    pub series: Vec<u64>,
    /// The device's description of itself.
    pub device: String,
    /// True if the device used io_uring and direct I/O.
    pub is_best: bool,
    /// The page size of the buffer's memory.
    pub pages: Option<Pages>,
}

/// The resolution of [`Written::series`].
pub const SERIES_STEP: Duration = Duration::from_millis(100);

impl Written {
    /// Returns the write rate of each file in gigabits per second.
    pub fn rates(&self) -> Vec<f64> {
        self.files.iter().map(|(bytes, seconds)| gbps(*bytes, *seconds)).collect()
    }

    /// Returns the write rate of all files together in gigabits per second, without the pauses between the files.
    pub fn rate(&self) -> f64 {
        gbps(self.files.iter().map(|f| f.0).sum(), self.files.iter().map(|f| f.1).sum())
    }
}

/// Gigabits (10^9) per second.
pub fn gbps(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / seconds.max(1e-9) / 1e9
}

/// A new directory on the volume; dropping the value removes the directory and its content.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes the directory below `volume`, which must exist.
    pub fn below(volume: &Path) -> Result<Self, Stop> {
        let path = volume.join(format!("netgrain-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| {
            Stop::error(format_args!(
                "{}: the directory cannot be written: {e}; choose a directory on the volume with --dir",
                volume.display()
            ))
        })?;
        Ok(Self(path))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // If the removal fails, the directory remains; its name identifies the benchmark.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The data that is written: a ring that is filled with random bytes, so that neither the file system nor the device
/// can compress it. A lossless reader prevents the producer from overwriting it. The recorder also writes from a ring,
/// and the memory must be of the same kind, because the page size of a buffer determines into how many segments the
/// kernel splits a write: on one virtual disk, 2 MiB pages doubled the rate of direct writes.
struct NoiseBuffer {
    feed: RingFeed,
    pages: Pages,
    /// Keeps the ring's memory allocated.
    _producer: Producer,
}

impl NoiseBuffer {
    fn new() -> io::Result<Self> {
        let mut producer = Producer::new(ring::Config { bytes: NOISE_BYTES as u64, ..ring::Config::default() })?;
        let (memory, registry) = (Arc::clone(producer.memory()), Arc::clone(producer.registry()));
        let pages = memory.bytes().pages();
        let join_thread = std::thread::spawn(move || LosslessReader::join(&memory, &registry, "volume"));
        while !join_thread.is_finished() {
            producer.service();
            std::thread::sleep(Duration::from_millis(1));
        }
        let reader = join_thread
            .join()
            .map_err(|_| io::Error::other("the thread that joins the ring panicked"))?
            .map_err(io::Error::other)?;
        let mut prng = base::Prng::new(1);
        let mut noise = [0; 1400];
        loop {
            prng.fill(&mut noise);
            let packet = ring::Packet::whole(&noise, base::Timestamp::from_secs_nanos(1, 0));
            if producer.push(&packet).is_err() {
                return Ok(Self { feed: RingFeed::new(reader), pages, _producer: producer });
            }
        }
    }

    fn memory(&self) -> Arc<dyn Bytes> {
        self.feed.memory()
    }
}

/// Writes files one after the other for the time `span`, and at least `least` files. Each file is preallocated as in
/// the recorder, written, synced, and removed. The time of the preallocation and of the removal does not count.
pub fn write(directory: &Path, mode: WriteMode, span: Duration, least: usize) -> Result<Written, Stop> {
    let with_path = |e: io::Error| Stop::error(format_args!("{}: {e}", directory.display()));
    let mut device = DiskDevice::new(mode.depth + 1);
    let noise = NoiseBuffer::new().map_err(with_path)?;
    let memory = noise.memory();
    // Without registered memory, each write pins its own pages, which is slower but correct.
    let _ = device.adopt(&memory);
    let mut written = Written::default();
    let begun = Instant::now();
    let mut busy = Duration::ZERO;
    while begun.elapsed() < span || written.files.len() < least {
        let path = directory.join(format!("direct-{}", written.files.len()));
        let outcome = one_file(&mut device, &memory, &path, mode, busy, &mut written.series);
        // The file may not exist.
        let _ = std::fs::remove_file(&path);
        let (bytes, duration) = outcome.map_err(with_path)?;
        busy += duration;
        written.files.push((bytes, duration.as_secs_f64()));
    }
    (written.device, written.is_best) = (device.describe(), device.is_best());
    written.pages = Some(noise.pages);
    Ok(written)
}

fn one_file(
    device: &mut DiskDevice,
    memory: &Arc<dyn Bytes>,
    path: &Path,
    mode: WriteMode,
    busy: Duration,
    series: &mut Vec<u64>,
) -> io::Result<(u64, Duration)> {
    let size = mode.file.next_multiple_of(mode.block);
    let file = device.create(path, Content::Packets)?;
    device.start(file, Op::Allocate(size), 0)?;
    // A file system without preallocation still accepts the writes.
    let _ = await_one(device)?;
    let begun = Instant::now();
    let mut waiting: VecDeque<(u64, u64)> = (0..size / mode.block).map(|i| (i * mode.block, mode.block)).collect();
    let (mut in_flight, mut done) = (0, Vec::new());
    while in_flight > 0 || !waiting.is_empty() {
        while in_flight < mode.depth
            && let Some((offset, len)) = waiting.pop_front()
        {
            device.start(file, Op::Write { offset, slice: Slice::stream(memory, offset, len as usize) }, offset)?;
            in_flight += 1;
        }
        device.reap(Duration::from_millis(100), &mut done)?;
        for completion in done.drain(..) {
            in_flight -= 1;
            let bytes = completion.result? as u64;
            if bytes < mode.block {
                return Err(io::Error::new(
                    io::ErrorKind::WriteZero,
                    format!("only {bytes} bytes of a block were written"),
                ));
            }
            let step = ((busy + begun.elapsed()).as_nanos() / SERIES_STEP.as_nanos()) as usize;
            series.resize(series.len().max(step + 1), 0);
            series[step] += bytes;
        }
    }
    device.start(file, Op::Sync, 0)?;
    await_one(device)??;
    let duration = begun.elapsed();
    device.close(file);
    Ok((size, duration))
}

/// Waits for the only operation in flight. The inner result is that of the operation, the outer result that of the
/// device.
fn await_one(device: &mut DiskDevice) -> io::Result<io::Result<usize>> {
    let mut done = Vec::new();
    loop {
        device.reap(Duration::from_millis(100), &mut done)?;
        if let Some(completion) = done.pop() {
            return Ok(completion.result);
        }
    }
}

/// Returns the write rate of `fio` in gigabits per second; `None` if `fio` is not installed. `fio` uses the block size,
/// queue depth and page size of the direct writer, and writes new files one after the other: as many as the direct
/// writer, but at most [`FIO_FILES`]. (By default `fio` would write the same file repeatedly, which costs the file
/// system less than new files.)
pub fn fio(directory: &Path, mode: WriteMode, written: &Written) -> Result<Option<f64>, Stop> {
    let Some(program) = find("fio") else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(["--name=netgrain", "--rw=write", "--direct=1", "--ioengine=io_uring", "--fallocate=native"]);
    command.args(["--file_service_type=sequential", "--fsync_on_close=1", "--unlink=1", "--output-format=json"]);
    command.arg(format!("--directory={}", directory.display()));
    command.args([format!("--bs={}", mode.block), format!("--iodepth={}", mode.depth)]);
    if written.pages == Some(Pages::Huge) {
        // `fio` uses the page size of the buffer of the direct writer (see `NoiseBuffer`).
        command.args(["--iomem=shmhuge", "--hugepage-size=2m", "--fixedbufs=1"]);
    }
    let (size, files) = (mode.file.next_multiple_of(mode.block), written.files.len().min(FIO_FILES));
    command.args([
        format!("--nrfiles={files}"),
        format!("--filesize={size}"),
        format!("--size={}", size * files as u64),
    ]);
    command.stderr(std::process::Stdio::null());
    let text = Helper::start(command, "fio")?.finish(FIO_TIMEOUT)?;
    // Warnings may precede the JSON document.
    let document = text.find('{').map_or("", |at| &text[at..]);
    let report: serde_json::Value =
        serde_json::from_str(document).map_err(|e| Stop::error(format_args!("the report of fio is invalid: {e}")))?;
    match report["jobs"][0]["write"]["bw_bytes"].as_f64() {
        Some(bytes) => Ok(Some(bytes * 8.0 / 1e9)),
        None => Err(Stop::error("the report of fio has no write rate")),
    }
}

/// Maximum number of files that `fio` writes.
const FIO_FILES: usize = 8;

/// Time limit for `fio`.
const FIO_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_buffer_is_aligned_and_inexhaustible() {
        const PAGE: usize = store::bytes::PAGE as usize;
        let noise = NoiseBuffer::new().unwrap();
        let memory = noise.memory();
        for len in [PAGE, 3 * PAGE, 1 << 20, NOISE_BYTES - PAGE, NOISE_BYTES] {
            for i in 0..1000 {
                let bytes = memory.at(i * len as u64, len);
                assert!(bytes.len() == len && (bytes.as_ptr() as usize).is_multiple_of(PAGE), "block {i} of {len}");
            }
        }
        assert_ne!(memory.at(0, 4096), memory.at(4096, 4096));
    }

    #[test]
    fn a_missing_volume_is_an_error_that_names_the_flag() {
        let Err(Stop::Failed(text)) = ScratchDir::below(Path::new("/nowhere/at/all")).map(|_| ()) else { panic!() };
        assert!(text.contains("--dir"), "{text}");
    }

    #[test]
    fn the_series_contains_every_byte_of_every_file() {
        let work = ScratchDir::below(&std::env::temp_dir()).unwrap();
        let mode = WriteMode { block: 64 << 10, depth: 4, file: 1 << 20 };
        let written = write(work.path(), mode, Duration::ZERO, 3).unwrap();
        assert_eq!(written.files.len(), 3);
        assert_eq!(written.series.iter().sum::<u64>(), 3 << 20);
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0, "files are removed");
    }
}
