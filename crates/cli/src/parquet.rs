//! An answer as a Parquet file (`--parquet FILE`): under a hidden name until it is whole, and not at all if it is of nothing.

use crate::outcome::Failure;
use crate::packets::target::Target;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where the bytes of a file go.
pub type Output = BufWriter<Box<dyn Write + Send>>;

/// What is asked, which the file must not harm.
#[derive(Clone, Copy, Default)]
pub struct ProtectedPaths<'a> {
    pub store: Option<&'a Path>,
    pub files: &'a [PathBuf],
}

/// Writes the file by `fill`, which says how many things it took from the answer and whether they could be written. The first
/// failure is that of the answer, if it has one; says how many there were, and tells people, who call them `things`.
pub fn write(
    path: &Path,
    asked: ProtectedPaths<'_>,
    things: &str,
    fill: impl FnOnce(Output) -> (Result<u64, Failure>, io::Result<()>),
) -> Result<u64, Failure> {
    let (target, out) = Target::open(path, false, asked.store, asked.files)?;
    let outcome = match fill(BufWriter::with_capacity(1 << 20, out)) {
        (Err(e), _) => Err(e),
        (Ok(_), Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        (Ok(_), Err(e)) => Err(Failure::Said(format!("{}: {e}", target.name()))),
        (Ok(found), Ok(())) => Ok(found),
    };
    match &outcome {
        Ok(found) if *found > 0 => {
            target.publish()?;
            sys::say!("netgrain: {} {things} into {}", base::units::show_count(*found), target.name());
        }
        _ => {
            target.remove();
        }
    }
    outcome
}
