//! Writes a result as a Parquet file (`--parquet FILE`). The file has a hidden name until it is complete. If the result
//! is empty, no file is created.

use crate::outcome::Failure;
use crate::output::target::{ProtectedPaths, Target};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The output of a Parquet file.
pub type Output = BufWriter<Box<dyn Write + Send>>;

/// Creates the file and calls `fill` to write it. `fill` returns the number of rows read and the result of writing; a
/// read error has priority over a write error. Prints and returns the number of rows; the printed message calls the
/// rows `noun`.
pub fn write(
    path: &Path,
    protected: ProtectedPaths<'_>,
    noun: &str,
    fill: impl FnOnce(Output) -> (Result<u64, Failure>, io::Result<()>),
) -> Result<u64, Failure> {
    let (target, out) = Target::open(path, false, protected)?;
    let outcome = match fill(BufWriter::with_capacity(1 << 20, out)) {
        (Err(e), _) => Err(e),
        (Ok(_), Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        (Ok(_), Err(e)) => Err(Failure::Said(format!("{}: {e}", target.name()))),
        (Ok(found), Ok(())) => Ok(found),
    };
    match &outcome {
        Ok(found) if *found > 0 => {
            target.publish()?;
            let found = crate::style::plural(*found, noun.trim_end_matches('s'), noun);
            sys::say!("netgrain: {found} into {}", target.name());
        }
        _ => {
            target.remove();
        }
    }
    outcome
}
