//! File names among the arguments of a query: how the files of `-r` are told from the words of a filter, and how messages
//! name them.

use crate::outcome::Failure;
use filter::FilterError;
use std::path::{Path, PathBuf};

/// True if the word has the extension of a capture file.
pub fn is_named_as_capture(word: &str) -> bool {
    let word = word.trim_end_matches(".gz").trim_end_matches(".zst");
    [".pcap", ".pcapng", ".cap", ".raw", ".ipfix", ".parquet"].iter().any(|end| word.ends_with(end))
}

/// The error for an invalid filter that follows the files of `-r`. The files end at the first word that names no
/// existing file. So if this word, the first of the filter, has the form of a file name, the error is that there is no
/// such file; otherwise it is the error of the filter.
pub fn missing_file_or(e: &FilterError, words: &[&str]) -> Failure {
    // A network such as 10.0.0.0/8 is not a path.
    let is_path = |word: &str| word.contains('/') && word.starts_with(|c: char| !c.is_ascii_digit());
    match words.first() {
        Some(word) if e.at < word.len() && (is_named_as_capture(word) || is_path(word)) => {
            Failure::Said(format!("{word}: there is no such file; check the path"))
        }
        _ => Failure::filter(e),
    }
}

/// The name of the only file, or the number of files.
pub fn named_files(files: &[PathBuf]) -> String {
    match files {
        [one] => one.display().to_string(),
        all => format!("{} files", all.len()),
    }
}

/// The advice for a filter that contains the name of a file.
pub fn file_hint(words: &[&str]) -> Option<String> {
    let file = words.iter().find(|word| Path::new(word).is_file())?;
    Some(format!("{file} is a file: use -r {file} instead of --store"))
}
