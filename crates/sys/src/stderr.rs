//! Messages for users on standard error. The reader of standard error may not exist any more, because a terminal was
//! closed or a `head` has ended. Capture must continue in that case. `eprintln!` would panic.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line to standard error, as `eprintln!` does, but ignores errors.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::stderr::line(format_args!($($words)*)) };
}

/// Writes a line to standard error and ignores errors.
pub fn line(words: Arguments<'_>) {
    // The line is written with one system call, so that lines of several threads do not mix.
    let _ = std::io::stderr().lock().write_all(format!("{words}\n").as_bytes());
}

/// Writes text without a line end to standard error and ignores errors.
pub fn part(words: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(words.to_string().as_bytes());
}
