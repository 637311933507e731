//! Words for people, on standard error. Whoever read them may have gone (a closed terminal, a `head` that has enough), which is no
//! reason to stop capturing: `eprintln!` would panic.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line to standard error, as `eprintln!` does, and goes on where nobody can read it.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::stderr::line(format_args!($($words)*)) };
}

/// A line to standard error, if it can be written.
pub fn line(words: Arguments<'_>) {
    // In one piece, so that lines of several threads do not mix.
    let _ = std::io::stderr().lock().write_all(format!("{words}\n").as_bytes());
}

/// The same without an end of line.
pub fn part(words: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(words.to_string().as_bytes());
}
