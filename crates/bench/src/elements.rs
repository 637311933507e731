//! Measures the elements of parallel packet processing: counters that several threads increment, and queues with one
//! producer and one consumer. The measurement repeats chapter 1.5 of the PhD thesis of Bonelli (PFQ) on this machine.
//! A result is compared with the best element of the same table, because absolute rates depend on the processor.

mod counters;
mod queues;

use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use clap::Args;
use counters::CounterKind;
use queues::QueueKind;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// Flags of `netgrain-bench elements`.
#[derive(Args, Clone, Debug)]
pub struct ElementsArgs {
    /// Numbers of threads that increment a counter; default: 1, and then each power of two up to the number of
    /// processors
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = base::units::whole::<usize>(1..=64))]
    pub threads: Vec<usize>,
    /// Capacity of the queues in elements, rounded up to a power of two
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = base::units::whole::<usize>(512..=1 << 20))]
    pub capacity: usize,
    /// Duration of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs of each element; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result for one element.
#[derive(Debug, Serialize)]
struct Row {
    element: &'static str,
    threads: usize,
    seconds: f64,
    repeat: u32,
    /// Millions of operations per second of all threads together: increments, or elements that passed the queue.
    all_mops: MedianRange,
    /// Millions of operations per second of one thread (of a counter), or of the consumer (of a queue).
    each_mops: f64,
    /// The median divided by the highest median of this table.
    ratio: f64,
}

/// Measures and prints the results.
pub fn run(args: &ElementsArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let places = CpuPlacement::find();
    let processors = sys::cpu::allowed().len();
    let duration = Duration::from_secs_f64(args.seconds);
    let mut sheet = Output::begin(out, args.json, "elements")?;
    sheet.head(format_args!(
        "{} runs of {} s, medians; ratio: to the fastest element of the table",
        args.repeat, args.seconds
    ))?;
    for threads in thread_counts(&args.threads, processors) {
        if threads > processors {
            sheet.note(format_args!("{threads} threads share {processors} processors"))?;
        }
        sheet.head(format_args!("\ncounter ({threads} threads)       all M/s (min..max)     each M/s   ratio"))?;
        let measure = |kind: CounterKind| counters::measure(kind, threads, duration, &places);
        print_table(&mut sheet, "counter", args, threads, &CounterKind::ALL, CounterKind::name, measure)?;
    }
    if processors == 1 {
        sheet.note("producer and consumer of the queues share one processor")?;
    }
    sheet
        .head(format_args!("\nqueue ({} elements)          all M/s (min..max)     each M/s   ratio", args.capacity))?;
    let measure = |kind: QueueKind| queues::measure(kind, args.capacity, duration, &places);
    print_table(&mut sheet, "queue", args, 1, &QueueKind::ALL, QueueKind::name, measure)
}

/// Measures all elements of a table in turn and prints a row for each. `threads` is the number of threads whose
/// operations are counted.
fn print_table<K: Copy>(
    sheet: &mut Output<'_>,
    kind: &'static str,
    args: &ElementsArgs,
    threads: usize,
    elements: &[K],
    name: impl Fn(K) -> &'static str,
    measure: impl Fn(K) -> Result<f64, Stop>,
) -> Result<(), Stop> {
    let mut rates = vec![Vec::new(); elements.len()];
    // The elements take turns, so that a slow second of the machine does not fall on one element only.
    for _ in 0..args.repeat {
        for (rates, element) in rates.iter_mut().zip(elements) {
            rates.push(measure(*element)? / 1e6);
        }
    }
    let medians: Vec<MedianRange> = rates.into_iter().map(MedianRange::of).collect();
    let best = medians.iter().map(|m| m.median).fold(f64::MIN_POSITIVE, f64::max);
    for (element, all_mops) in elements.iter().zip(medians) {
        let row = Row {
            element: name(*element),
            threads,
            seconds: args.seconds,
            repeat: args.repeat,
            all_mops,
            each_mops: all_mops.median / threads as f64,
            ratio: all_mops.median / best,
        };
        let rates = format!("{:.1}", row.all_mops);
        let line = format!("{:24} {rates:>26} {:>12.1} {:>7.3}", row.element, row.each_mops, row.ratio);
        sheet.row(kind, &row, line)?;
    }
    Ok(())
}

/// Returns the numbers of threads to measure.
fn thread_counts(given: &[usize], processors: usize) -> Vec<usize> {
    if given.is_empty() {
        return std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= processors).collect();
    }
    given.to_vec()
}

/// A value in a pair of cache lines of its own, because processors prefetch lines in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
struct OwnLine<T>(T);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_numbers_of_threads_are_powers_of_two_up_to_the_processors() {
        assert_eq!(thread_counts(&[], 1), [1]);
        assert_eq!(thread_counts(&[], 6), [1, 2, 4]);
        assert_eq!(thread_counts(&[3], 1), [3]);
    }

    #[test]
    fn every_element_is_measured_and_the_fastest_has_the_ratio_one() {
        let args = ElementsArgs { threads: vec![1, 2], capacity: 512, seconds: 0.001, repeat: 1, json: true };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let rows: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
        assert_eq!((of("counter"), of("queue")), (2 * CounterKind::ALL.len(), QueueKind::ALL.len()));
        assert_eq!(rows.iter().filter(|row| row["ratio"] == 1.0).count(), 3, "{out}");
        assert!(rows.iter().all(|row| row.get("all_mops").is_none_or(|rate| rate["min"].as_f64() > Some(0.0))));
    }
}
