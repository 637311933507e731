//! The output files of a conversion. Each file is written under a hidden name in its directory, and renamed when it is
//! complete.
//!
//! Invariant: a path given by the user has either its previous content or a complete file. A failed conversion removes
//! its hidden file; a killed process leaves one, whose name begins with a dot and ends in `.partial`.

use crate::outcome::Failure;
use crate::overwrite;
use base::Timestamp;
use clap::ValueEnum;
use convert::Files;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The rule by which the output files of a split are named.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Naming {
    /// OUT-00001, OUT-00002, ...
    Number,
    /// OUT-20261121T104200.000000000Z: the time of the first packet, or the boundary of --split-time
    Time,
}

/// Creates the output files and keeps the list of completed files.
pub struct Targets {
    out: PathBuf,
    split: bool,
    naming: Naming,
    force: bool,
    used: HashSet<PathBuf>,
    published: Vec<String>,
}

impl Targets {
    pub fn new(out: &Path, split: bool, naming: Naming, force: bool) -> Result<Self, Failure> {
        let targets = Self { out: out.to_owned(), split, naming, force, used: HashSet::new(), published: Vec::new() };
        if targets.is_stdout() {
            if split {
                return Err(Failure::Said("standard output cannot be split: name a file with -w".into()));
            }
        } else if out.file_name().is_none() || out.is_dir() {
            return Err(Failure::Said(format!("{}: is a directory: name a file in it", out.display())));
        } else if !split {
            // An existing output is rejected before the conversion, which may take hours.
            overwrite::check(out, force).map_err(Failure::say)?;
        }
        Ok(targets)
    }

    /// True if packets go to standard output.
    pub fn is_stdout(&self) -> bool {
        overwrite::is_stdout(&self.out)
    }

    /// The name of the output in messages.
    pub fn name(&self) -> String {
        if self.is_stdout() { "standard output".to_owned() } else { self.out.display().to_string() }
    }

    /// The names of the completed output files.
    pub fn published(&self) -> &[String] {
        &self.published
    }

    /// The text of an error of the conversion. If the error is about the output, the text begins with the path of the
    /// output.
    pub fn with_path(&self, error: &convert::Error) -> String {
        match error {
            convert::Error::Output(e) => format!("{}: {e}", self.name()),
            other => other.to_string(),
        }
    }

    /// The path of the next output file: `OUT`, or, for a split, `OUT` with a unique suffix before its extension.
    fn path(&mut self, number: u64, first: Timestamp) -> PathBuf {
        if !self.split {
            return self.out.clone();
        }
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (stem, extension) = (text(self.out.file_stem()), text(self.out.extension()));
        let dot = if extension.is_empty() { "" } else { "." };
        let tag = match self.naming {
            Naming::Number => format!("{number:05}"),
            Naming::Time => {
                let (year, month, day, h, m, s) = first.civil();
                format!("{year:04}{month:02}{day:02}T{h:02}{m:02}{s:02}.{:09}Z", first.subsec_nanos())
            }
        };
        let mut path = self.out.with_file_name(format!("{stem}-{tag}{dot}{extension}"));
        let mut again = 1;
        while !self.used.insert(path.clone()) {
            again += 1;
            path = self.out.with_file_name(format!("{stem}-{tag}-{again}{dot}{extension}"));
        }
        path
    }
}

impl Files for Targets {
    type Sink = Target;

    fn begin(&mut self, number: u64, first: Timestamp) -> io::Result<Target> {
        if self.is_stdout() {
            // Writes to the file descriptor directly, because `Stdout` would search the bytes of each packet for a
            // newline.
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Target { file, place: None });
        }
        let path = self.path(number, first);
        overwrite::check(&path, self.force)?;
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            let file = File::options().write(true).open(&path)?;
            return Ok(Target { file, place: Some(Place { path, hidden: None }) });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = path.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        let file = sys::nofollow::create_anew(&hidden)?;
        Ok(Target { file, place: Some(Place { path, hidden: Some(hidden) }) })
    }

    fn end(&mut self, mut target: Target) -> io::Result<()> {
        let Some(place) = &mut target.place else { return Ok(()) };
        if let Some(hidden) = &place.hidden {
            target.file.sync_all()?;
            std::fs::rename(hidden, &place.path)?;
            place.hidden = None;
        }
        self.published.push(place.path.display().to_string());
        Ok(())
    }

    /// True if the output is written even if it has no packet, which holds for standard output and devices. A regular
    /// file without packets is not published: if it existed, the user would need --force to repeat the command with a
    /// corrected filter.
    fn takes_empty(&self) -> bool {
        self.is_stdout() || self.out.metadata().is_ok_and(|there| !there.is_file())
    }
}

/// An output file being written. It is removed if this value is dropped before the file is published.
pub struct Target {
    file: File,
    place: Option<Place>,
}

struct Place {
    path: PathBuf,
    hidden: Option<PathBuf>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // If the removal fails, the hidden file remains; its name contains the name of the output.
            let _ = std::fs::remove_file(hidden);
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symlink_planted_at_the_hidden_name_is_not_followed() {
        let dir = testkit::TempDir::new("targets-link");
        let victim = dir.join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let hidden = dir.join(format!(".out.pcap.{}.partial", std::process::id()));
        std::os::unix::fs::symlink(&victim, &hidden).expect("a link");
        let targets = Targets::new(&dir.join("out.pcap"), false, Naming::Number, false);
        let Ok(mut targets) = targets else { panic!("the target is refused") };
        let mut target = targets.begin(1, Timestamp::ZERO).expect("a file");
        target.file.write_all(b"packets").expect("room");
        targets.end(target).expect("a name");
        assert_eq!(std::fs::read(&victim).expect("the file"), b"precious");
        assert_eq!(std::fs::read(dir.join("out.pcap")).expect("the packets"), b"packets");
    }
}
