//! The limits of a live tail. The lower limit is a timestamp, with which the timestamp of each packet is compared. The
//! upper limit is a stream position or the end of the recorder, at which the query ends.

use super::followed::FollowedRecorder;
use base::Timestamp;
use std::time::Duration;

/// When a query begins, some packets already have a timestamp but are not published yet. Their timestamps are earlier
/// than the begin of the query by at most this time. A larger difference means that the clock was set back.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(5);

/// The end of a query that does not follow: a stream position in a file that begins at position `file` or later.
#[derive(Clone, Copy, Debug)]
pub struct TailEnd {
    /// The lowest stream position at which the file where the query ends can begin.
    pub file: u64,
    /// The stream position at which the query ends.
    pub pos: u64,
}

impl TailEnd {
    pub(super) fn is_reached(self, file: u64, pos: u64) -> bool {
        file >= self.file && pos >= self.pos
    }
}

/// The condition under which a live tail ends.
pub enum TailLimit {
    /// The query does not follow and ends at this stream position.
    Position(TailEnd),
    /// The query follows this recorder until it ends.
    Recorder(FollowedRecorder),
}

impl TailLimit {
    /// True if the query ends before this stream position of a file that begins at `file`.
    pub(super) fn is_reached(&self, file: u64, pos: u64) -> bool {
        matches!(self, Self::Position(end) if end.is_reached(file, pos))
    }

    /// True if the query ends in a file that begins after stream position `file`.
    pub(super) fn is_in_later_file(&self, file: u64) -> bool {
        matches!(self, Self::Position(end) if file < end.file)
    }

    /// The recorder that the query follows.
    pub(super) fn followed(&mut self) -> Option<&mut FollowedRecorder> {
        match self {
            Self::Position(_) => None,
            Self::Recorder(recorder) => Some(recorder),
        }
    }

    /// The recorder that the query follows, as long as it has not ended.
    pub(super) fn running(&mut self) -> Option<&mut FollowedRecorder> {
        self.followed().filter(|recorder| !recorder.has_ended())
    }
}

/// The lower time limit of a query that follows. Packets that were published before the query began are compared with
/// `from`. Packets that arrive afterwards are compared with `arriving`. If the interval begins at the present time,
/// `arriving` admits every timestamp, because the clock may be set back during the query.
#[derive(Clone, Copy, Debug)]
pub struct TailBegin {
    /// The lower time limit for packets that were published before the query began.
    pub from: Timestamp,
    /// The lower time limit for packets that arrive during the query: zero if the interval begins at the present time,
    /// otherwise equal to `from`.
    pub arriving: Timestamp,
    /// Packets after this position arrive during the query; `None` if the query does not follow.
    pub behind: Option<TailEnd>,
    /// True after the first packet that got its timestamp after the begin of the query.
    pub begun: bool,
}

impl TailBegin {
    /// The lower time limit of a query that does not follow.
    pub fn of(from: Timestamp) -> Self {
        Self { from, arriving: from, behind: None, begun: false }
    }

    /// The lower time limit for a packet. `from` still applies to a packet that is published during the query but got
    /// its timestamp slightly before the begin of the query.
    pub(super) fn of_packet(&mut self, file: u64, pos: u64, ts: Timestamp) -> Timestamp {
        let arrives = self.behind.is_some_and(|behind| behind.is_reached(file, pos));
        self.begun |= arrives && (ts >= self.from || ts < self.from.before(IN_FLIGHT_MAX));
        self.of_control()
    }

    /// The lower time limit for a control descriptor of the ring.
    pub(super) fn of_control(&self) -> Timestamp {
        if self.begun { self.arriving } else { self.from }
    }

    /// The lower time limit for the packet at stream position `pos`, in a file that begins at stream position `file`.
    pub fn at(&self, file: u64, pos: u64) -> Timestamp {
        match self.behind.is_some_and(|behind| behind.is_reached(file, pos)) {
            true => self.arriving,
            false => self.from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_arrive_after_the_query_match_whatever_their_time() {
        let at = |secs: u64| Timestamp::from_secs_nanos(secs, 0);
        let published = TailEnd { file: 50, pos: 100 };
        let begin = TailBegin { from: at(90), arriving: Timestamp::ZERO, behind: Some(published), begun: false };
        for (file, pos, from) in [(0, 99, 90), (50, 99, 90), (50, 100, 0), (60, 400, 0), (0, 400, 90)] {
            assert_eq!(begin.at(file, pos), at(from), "{file} {pos}");
        }
        // The cases: a packet that got its timestamp before the begin of the query and was published afterwards; the
        // first packet that got its timestamp afterwards; a packet after the clock was set back slightly; and a packet
        // after the clock was set back by a long time before the first packet arrived.
        for (ts, pos, from) in [(88, 100, 90), (89, 110, 90), (90, 120, 0), (88, 130, 0)] {
            let mut begin = TailBegin { begun: pos > 120, ..begin };
            assert_eq!(begin.of_packet(50, pos, at(ts)), at(from), "{ts} at {pos}");
        }
        for (ts, pos, from) in [(10, 99, 90), (10, 100, 0)] {
            let mut begin = begin;
            assert_eq!(begin.of_packet(50, pos, at(ts)), at(from), "{ts} at {pos}");
        }
        assert_eq!(TailBegin::of(at(90)).of_packet(60, 400, at(10)), at(90), "a query that does not follow");
    }

    #[test]
    fn a_position_limits_its_file_and_later_files_only() {
        let limit = TailLimit::Position(TailEnd { file: 50, pos: 100 });
        for (file, pos, is_reached) in [(0, 400, false), (50, 99, false), (50, 100, true), (60, 99, false)] {
            assert_eq!(limit.is_reached(file, pos), is_reached, "{file} {pos}");
        }
        assert!(limit.is_in_later_file(49) && !limit.is_in_later_file(50));
    }
}
