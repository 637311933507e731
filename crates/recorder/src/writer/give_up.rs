//! Ends a recording whose volume still refuses writes when the grace period after the stop has passed.

use super::file::{Step, as_lost};
use super::run_state::Losses;
use super::{Event, Writer};
use crate::cutter::{Job, Part};
use crate::writer::flight::Flight;
use index::Rows;
use std::io;
use std::time::Duration;
use store::device::Device;
use store::out_of_order;

impl<D: Device> Writer<D> {
    pub(super) fn consider_giving_up(&mut self, now: Duration) {
        let (Some(stopped), Some(failure)) = (self.run.grace_begin(), &self.volume.failure) else { return };
        let deadline = stopped.max(failure.since) + self.config.grace;
        // Writes in progress read the ring's memory, so they must complete before that memory is released. If the
        // device fails to report completions, the recorder does not wait for them, because the wait might never end.
        // This is safe: the kernel keeps a reference to the pages that it still reads, and the producer has stopped and
        // does not overwrite them.
        if now < deadline || !self.volume.is_unresponsive() && self.flights.iter().any(Flight::is_flying) {
            return;
        }
        self.run = std::mem::take(&mut self.run).give_up();
        if self.volume.is_unresponsive() {
            self.leave_all_hidden();
        }
        // The failure is cleared without an `Event::Recovered`, because its end is reported as `Event::GaveUp`.
        self.volume.failure = None;
        if self.failures().next().is_none() {
            self.volume.troubled_since = None;
        }
        self.drop_next();
        let mut has_lost_part = false;
        for flight in std::mem::take(&mut self.flights) {
            if let Some(part) = &flight.part {
                self.lose(part);
                has_lost_part = true;
            }
            // A file that ends before the first lost part is complete, so it is published as usual. A lost part without
            // ledger rows also makes its file incomplete, because the part can contain the file header.
            let is_complete = !has_lost_part && self.run.losses().is_some_and(|losses| losses.rows.is_empty());
            match (flight.close, self.files.iter_mut().find(|f| Some(f.data) == flight.file)) {
                (Some((len, end)), Some(file)) if is_complete && file.is_open() => file.begin_seal(len, end),
                _ => {}
            }
            self.release(flight.release);
        }
        for file in self.files.iter_mut().filter(|f| f.is_open()) {
            file.step = Step::Cut;
        }
    }

    /// Leaves all files under their hidden names, because no file can be completed; recovery finds their content with
    /// the help of the checksums.
    fn leave_all_hidden(&mut self) {
        for flight in &mut self.flights {
            (flight.file, flight.close) = (None, None);
        }
        while !self.files.is_empty() {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the volume does not report the completion of writes");
            self.leave_hidden(0, "finish", error);
        }
    }

    /// If a job arrives after the grace period, counts its packets as lost.
    pub(super) fn discard(&mut self, job: Job, now: Duration) {
        match job {
            Job::Write(part) => {
                self.lose(&part);
                self.release(part.release);
            }
            Job::Open { release, .. } | Job::Close { release, .. } | Job::Release(release) => self.release(release),
            Job::End => self.end(now),
        }
    }

    fn lose(&mut self, part: &Part) {
        let Some(losses) = self.run.losses() else { return };
        self.totals.ledger.merge(&losses.add(part));
    }

    /// Does nothing before all losses are known. Then the files that could not be written completely are ended after
    /// their last complete packet, and all losses are added to the index of the first of these files.
    pub(super) fn finish_if_given_up(&mut self) {
        if !self.queue.is_empty() {
            return;
        }
        let Some(Losses { rows: mut lost, mut packets }) = self.run.take_final_losses() else { return };
        let mut i = 0;
        while i < self.files.len() {
            if !matches!(self.files[i].step, Step::Cut) {
                i += 1;
                continue;
            }
            if !lost.is_empty() {
                self.files[i].index.write_losses(&mut self.device, &lost);
            }
            let Ok(straddler) = self.files[i].cut_short(&lost) else {
                self.remove_empty(i);
                continue;
            };
            lost = Rows::new();
            if let Some(row) = straddler {
                packets += 1;
                self.totals.ledger.subtract(row.second, &row.tally);
                self.totals.ledger.add(row.second, &as_lost(&row.tally));
            }
            i += 1;
        }
        if packets > 0 {
            self.events.push(Event::GaveUp { packets });
        }
    }

    /// Removes a packet file to which no part of a block was written.
    fn remove_empty(&mut self, i: usize) {
        let file = self.files.remove(i);
        self.close_files(&file);
        let _ = self.device.remove(&file.path);
        let _ = self.device.remove(&file.index.path);
        if let Some(stem) = &file.order.marker {
            let root = self.config.directory();
            let _ = out_of_order::remove_marker(&mut self.device, &root, stem, None);
        }
    }
}
