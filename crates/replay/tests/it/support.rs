//! A simulated clock, an output that records what it gets, and captures in memory.

use base::Timestamp;
use netgrain_replay::control::{Command, SignalFlags};
use netgrain_replay::stream::{CaptureBytes, CaptureFiles, OpenStream};
use netgrain_replay::{
    Control, Output, OutputCounts, OutputError, Outputs, Pace, Preparation, Preparer, ReadAhead, ReplayError, Report,
    Rewrite, Rewriter, replay,
};
use pcap::classic::{Resolution, Writer};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A packet of a capture in memory.
pub type Packet = (u64, Vec<u8>);

/// A classic capture of Ethernet packets; timestamps are nanoseconds.
pub fn capture(packets: &[Packet]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Resolution::Nanos, 1).unwrap();
    for (ts, bytes) in packets {
        writer.write(Timestamp::from_nanos(*ts), bytes.len() as u32, bytes).unwrap();
    }
    writer.finish().unwrap()
}

/// Opens captures in memory anew for each pass over the capture.
pub fn stream_of(captures: Vec<Vec<u8>>) -> OpenStream {
    Box::new(move || {
        let named = captures.iter().enumerate().map(|(number, bytes)| {
            (format!("capture {number}"), Box::new(std::io::Cursor::new(bytes.clone())) as CaptureBytes)
        });
        Ok(Box::new(CaptureFiles::open(named.collect())?))
    })
}

/// A preparation without a filter and without a second interface.
pub fn plain() -> Preparation {
    let (filter, truncated) = Default::default();
    Preparation { filter, truncated, second: None, longest: [1514; 2] }
}

/// The interface, the time and the bytes of a frame.
pub type SentFrame = (usize, u64, Vec<u8>);

/// The state of a simulation: the time, the commands that are given at times, and the frames that were sent.
pub struct Simulation {
    pub now: u64,
    pub commands: Vec<(u64, Command)>,
    /// The times at which the process is stopped and the lengths of the stops; SIGCONT follows each stop. A stop of
    /// length 0 is a SIGCONT to a running process.
    pub stops: Vec<(u64, u64)>,
    /// The frames that were sent.
    pub sent: Vec<SentFrame>,
    /// The largest number of frames that an output accepts in one call.
    pub room: usize,
    /// The number of frames after which the output fails.
    pub fails_after: usize,
    /// Time in nanoseconds that passes while a frame is passed to the output.
    pub cost: u64,
}

/// A clock that advances by 40 ns at each reading. A sleep advances it by the requested time plus 60 µs.
pub struct SimulatedClock(Rc<RefCell<Simulation>>, Arc<Control>, Arc<AtomicBool>);

impl SimulatedClock {
    fn advance(&self, nanos: u64) -> u64 {
        let mut simulation = self.0.borrow_mut();
        simulation.now += nanos;
        while let Some((at, length)) = simulation.stops.first().copied().filter(|(at, _)| *at <= simulation.now) {
            simulation.stops.remove(0);
            // A sleep that ends during the stop does not continue after the stop.
            simulation.now = simulation.now.max(at + length);
            self.2.store(true, Ordering::Relaxed);
        }
        let now = simulation.now;
        while let Some((_, command)) = simulation.commands.first().copied().filter(|(at, _)| *at <= now) {
            simulation.commands.remove(0);
            self.1.apply(command);
        }
        now
    }
}

impl netgrain_replay::sender::Clock for SimulatedClock {
    fn now(&mut self) -> u64 {
        self.advance(40)
    }

    fn sleep(&mut self, nanos: u64) {
        self.advance(nanos + 60_000);
    }
}

/// An output that records frames.
pub struct Recorder {
    simulation: Rc<RefCell<Simulation>>,
    index: usize,
    sent: u64,
}

impl Output for Recorder {
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, OutputError> {
        let mut simulation = self.simulation.borrow_mut();
        if simulation.sent.len() >= simulation.fails_after {
            return Err(OutputError::Down("simulated".to_owned()));
        }
        let count = frames.len().min(simulation.room);
        for frame in &frames[..count] {
            let (index, now) = (self.index, simulation.now);
            simulation.sent.push((index, now, frame.to_vec()));
            simulation.now += simulation.cost;
        }
        self.sent += count as u64;
        Ok(count)
    }

    fn finish(&mut self) -> (OutputCounts, Result<(), OutputError>) {
        let simulation = self.simulation.borrow();
        let is_down = simulation.sent.len() >= simulation.fails_after;
        let finished = if is_down { Err(OutputError::Down("simulated".to_owned())) } else { Ok(()) };
        (OutputCounts { sent: self.sent, dropped: 0 }, finished)
    }
}

/// A replay in a simulation.
pub struct Case {
    pub captures: Vec<Vec<u8>>,
    pub passes: u64,
    pub pace: Pace,
    pub rewrite: Rewrite,
    pub preparation: Preparation,
    pub simulation: Simulation,
    pub max_gap: Option<Duration>,
}

impl Case {
    /// One pass over a capture at a pace.
    pub fn new(packets: &[Packet], pace: &str) -> Self {
        let (commands, stops, sent) = Default::default();
        Self {
            captures: vec![capture(packets)],
            passes: 1,
            pace: pace.parse().unwrap(),
            rewrite: Rewrite::default(),
            preparation: plain(),
            simulation: Simulation {
                now: 7_000_000,
                commands,
                stops,
                sent,
                room: 1000,
                fails_after: usize::MAX,
                cost: 100,
            },
            max_gap: None,
        }
    }

    /// Runs the replay. Asserts the equations of the report.
    pub fn run(self) -> (Report, Result<(), ReplayError>, Vec<SentFrame>) {
        let signals = SignalFlags::default();
        let continued = Arc::clone(&signals.continued);
        let control = Arc::new(Control::new(self.pace, signals));
        let preparer = Preparer::new(self.preparation, Rewriter::new(self.rewrite));
        let input = ReadAhead::start(stream_of(self.captures), self.passes, preparer, 1 << 20).unwrap();
        let begun = self.simulation.now;
        let mut simulation = self.simulation;
        simulation.commands.iter_mut().for_each(|(at, _)| *at += begun);
        simulation.stops.iter_mut().for_each(|(at, _)| *at += begun);
        let simulation = Rc::new(RefCell::new(simulation));
        let recorder = |index| Recorder { simulation: Rc::clone(&simulation), index, sent: 0 };
        let mut outputs = [recorder(0), recorder(1)];
        let names = ["a", "b"].map(|name| (name.to_owned(), "simulated".to_owned())).to_vec();
        let clock = SimulatedClock(Rc::clone(&simulation), Arc::clone(&control), continued);
        let outputs = Outputs { outputs: &mut outputs, names };
        let (report, outcome) = replay(input, outputs, self.max_gap, &control, clock, |_| {});
        assert_eq!(report.packets.residue(), 0, "{report:?}");
        assert_eq!(report.frames, report.sent + report.dropped + report.unsent, "{report:?}");
        let mut sent = std::mem::take(&mut simulation.borrow_mut().sent);
        assert_eq!(report.sent, sent.len() as u64);
        assert_eq!(report.bytes, sent.iter().map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>());
        sent.iter_mut().for_each(|(_, at, _)| *at -= begun);
        (report, outcome, sent)
    }
}

/// A frame of `len` bytes with this number.
pub fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}
