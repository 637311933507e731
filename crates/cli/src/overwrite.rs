//! Existing output files. All verbs follow one rule: an existing regular file is replaced only with `--force`; devices,
//! pipes and standard output are written.

use clap::Args;
use std::io;
use std::path::Path;

/// The flag `--force`, which all verbs that write a file have.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OverwriteArgs {
    /// Replace the output file if it exists
    #[arg(long)]
    pub force: bool,
}

/// The paths of standard output. The last three are links to the redirected file, which a rename must not replace.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// True if the path means standard output.
pub fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
}

/// Checks that an output can be written without the loss of an existing file.
///
/// # Errors
/// `AlreadyExists` for a regular file or a dangling link, unless `force`. The text names the path and the flag.
pub fn check(path: &Path, force: bool) -> io::Result<()> {
    if force || is_stdout(path) {
        return Ok(());
    }
    // `metadata` follows links. A dangling link counts as an existing file, because renaming the output to its name
    // would replace the link.
    match path.metadata().or_else(|_| path.symlink_metadata()) {
        Ok(there) if there.is_file() || there.is_symlink() => Err(exists(path)),
        _ => Ok(()),
    }
}

/// Returns the error for an output file that exists already.
pub fn exists(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists: --force replaces it", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_and_dangling_links_need_force() {
        let dir = testkit::TempDir::new("overwrite");
        let (file, link, dangling) = (dir.join("file"), dir.join("link"), dir.join("dangling"));
        std::fs::write(&file, "content").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        std::os::unix::fs::symlink(dir.join("nothing"), &dangling).expect("a link");
        for path in [&file, &link, &dangling] {
            let text = check(path, false).expect_err("it exists").to_string();
            assert!(text.contains("--force") && text.contains(&path.display().to_string()), "{text}");
            assert!(check(path, true).is_ok());
        }
        for path in ["-", "/dev/null", "/dev/stdout", "/dev/fd/1"].map(Path::new) {
            assert!(check(path, false).is_ok(), "{}", path.display());
        }
        assert!(check(&dir.join("nothing"), false).is_ok());
    }
}
