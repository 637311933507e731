//! The cost of a query, for `--explain`, on standard error.

use super::timestamps;
use base::TimestampQuality;
use base::units::{show_bytes, show_count, show_si};
use query::Cost;
use std::fmt;
use std::time::{Duration, Instant};

/// Measures the time to the first packet and the total time.
pub struct Clock {
    begun: Instant,
    first: Option<Duration>,
    total: Duration,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self { begun: Instant::now(), first: None, total: Duration::ZERO }
    }

    /// Called for each found packet; the first call stores the time since the start of the query.
    #[inline]
    pub fn packet(&mut self) {
        if self.first.is_none() {
            self.first = Some(self.begun.elapsed());
        }
    }

    /// Stops the clock.
    pub fn stop(&mut self) {
        self.total = self.begun.elapsed();
    }
}

/// Prints the cost as a table or as JSON.
pub fn print(c: &Cost, quality: &TimestampQuality, clock: &Clock, given: u64, json: bool) {
    if json {
        let first = clock.first.map(|d| d.as_secs_f64());
        let value = serde_json::json!({ "explain": {
            "files": c.files, "files_skipped": c.files_skipped,
            "blocks": c.blocks, "blocks_skipped_time": c.blocks_skipped_time,
            "blocks_skipped_keys": c.blocks_skipped_keys, "blocks_skipped_position": c.blocks_skipped_sub_block,
            "blocks_read": c.blocks_read,
            "bytes": c.bytes, "bytes_read": c.bytes_read, "index_bytes_read": c.index_bytes_read,
            "packets_looked_at": c.packets, "packets_from_ring": c.from_ring, "packets": given,
            "timestamps": timestamps::to_json(quality),
            "seconds_to_first": first, "seconds": clock.total.as_secs_f64(),
        } });
        sys::say!("{}", crate::outcome::versioned(value));
        return;
    }
    sys::stderr::part(format_args!("{}", Table(c, quality, clock, given)));
}

struct Table<'a>(&'a Cost, &'a TimestampQuality, &'a Clock, u64);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(c, quality, clock, given) = self;
        let n = show_count;
        let looked = c.files.saturating_sub(c.files_skipped);
        writeln!(
            f,
            "files    {:>14} considered       {:>14} skipped       {:>14} examined",
            n(c.files),
            n(c.files_skipped),
            n(looked)
        )?;
        writeln!(
            f,
            "blocks   {:>14} considered       {:>14} skipped       {:>14} read  (skipped: {} by time, {} by keys, {} \
             by position)",
            n(c.blocks),
            n(c.blocks_skipped_time + c.blocks_skipped_keys + c.blocks_skipped_sub_block),
            n(c.blocks_read),
            n(c.blocks_skipped_time),
            n(c.blocks_skipped_keys),
            n(c.blocks_skipped_sub_block)
        )?;
        writeln!(
            f,
            "bytes    {:>14} considered       {:>14} packets read  {:>14} indexes read",
            show_bytes(c.bytes),
            show_bytes(c.bytes_read),
            show_bytes(c.index_bytes_read)
        )?;
        writeln!(
            f,
            "packets  {:>14} examined         {:>14} found         {:>14} from the ring",
            n(c.packets),
            n(*given),
            n(c.from_ring)
        )?;
        // Captures of other programs and queries without a match have no known quality.
        let quality = timestamps::describe(quality);
        if !quality.is_empty() {
            writeln!(f, "timestamps of the selected blocks: {quality}")?;
        }
        let first = clock.first.map_or_else(|| "-".to_owned(), |d| format!("{:.3} ms", d.as_secs_f64() * 1e3));
        let seconds = clock.total.as_secs_f64();
        let rate = |amount: u64| amount as f64 / seconds.max(1e-9);
        writeln!(
            f,
            "time     {:>14} to first packet  {:>14} in total      {} examined, {} read",
            first,
            format!("{:.3} ms", seconds * 1e3),
            show_si(rate(c.packets), "pps"),
            show_si(rate(c.bytes_read), "B/s")
        )
    }
}
