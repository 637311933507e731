//! Advice for users about errors of files and directories, by the system's error number (errno(3)).
//!
//! The advice refers to the device's logs only for errors of the underlying device. All other errors concern names,
//! permissions, limits or free space.

use std::io::{self, ErrorKind};

/// Advice about an error of writing, or of creating files and directories.
pub fn to_write(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on the volume",
        ErrorKind::PermissionDenied => "give write permission there to the user that netgrain runs as",
        ErrorKind::ReadOnlyFilesystem => {
            "mount the volume for writing (it may have become read-only after an error: see dmesg)"
        }
        ErrorKind::NotFound => {
            "another program removed a file or directory that is in use: exclude hidden names from its clean-up"
        }
        ErrorKind::AlreadyExists | ErrorKind::IsADirectory | ErrorKind::DirectoryNotEmpty => {
            "another file or directory has this name: move it away"
        }
        _ => of_any(error),
    }
}

/// Advice about an error of reading.
pub fn to_read(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "give read permission to the user that netgrain runs as",
        ErrorKind::NotFound => "check the path; another program may have removed the file",
        ErrorKind::IsADirectory => "name a file",
        _ => of_any(error),
    }
}

/// Returns the cause of a file error as a short text. For an error without a text in this function, the result is the
/// system's text.
pub fn cause(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "there is no such file or directory".into(),
        Some(libc::EACCES) => "no permission".into(),
        Some(libc::EISDIR) => "a directory, not a file".into(),
        Some(libc::ENOTDIR) => "a file, not a directory".into(),
        _ => error.to_string(),
    }
}

/// The cause of a failed read and the next step.
pub fn unreadable(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => format!("{}; check the path", cause(error)),
        Some(libc::EACCES) => {
            format!("{} to read it; run as a user that may read it, or change its permissions", cause(error))
        }
        Some(libc::EISDIR) => format!("{}; name a file", cause(error)),
        Some(_) => format!("{}; {}", cause(error), to_read(error)),
        None => error.to_string(),
    }
}

/// The cause of a failed creation of a file, and the next step.
pub fn uncreatable(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "the directory of this file does not exist; make the directory first".into(),
        Some(libc::EACCES) => {
            format!("{} to write there; name another directory, or run as a user that may write there", cause(error))
        }
        Some(libc::EISDIR) => format!("{}; name a file", cause(error)),
        Some(_) => format!("{}; {}", cause(error), to_write(error)),
        None => error.to_string(),
    }
}

fn of_any(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotADirectory => {
            "a part of its path is not a directory: check the path, and move the file with this name away"
        }
        ErrorKind::InvalidFilename => "its path is too long or invalid on this volume: choose another path",
        ErrorKind::FileTooLarge => {
            "it is longer than a limit allows: raise the limit (ulimit -f), or make smaller files"
        }
        ErrorKind::OutOfMemory => "free memory, or raise the limit (ulimit -v, the control group's memory.max)",
        ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => "another process uses it: end that process, or wait",
        ErrorKind::StaleNetworkFileHandle => "the server no longer has this file: mount the volume again",
        ErrorKind::CrossesDevices => {
            "the path crosses from one mounted volume into another: unmount the inner volume, or mount one volume for \
             the complete path"
        }
        _ => match error.raw_os_error() {
            Some(libc::ELOOP) => {
                "its path contains a symbolic link, which is not followed there: replace the link by the file or \
                 directory"
            }
            Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n, fs.file-max)",
            Some(libc::EIO | libc::ENXIO | libc::ENODEV | libc::EREMOTEIO | libc::EUCLEAN | libc::EBADMSG) => {
                "check the volume (dmesg, smartctl)"
            }
            Some(libc::EINVAL | libc::EOPNOTSUPP) => {
                "the volume does not support this: netgrain doctor --store checks the volume"
            }
            _ => "netgrain doctor --store checks the volume",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_paths_are_described_in_words() {
        for (code, reading, writing) in [
            (libc::ENOENT, "no such file or directory; check the path", "make the directory first"),
            (libc::EACCES, "no permission to read it; run as", "no permission to write there; name"),
            (libc::EISDIR, "a directory, not a file; name a file", "a directory, not a file; name a file"),
            (libc::ENOTDIR, "a file, not a directory; ", "a file, not a directory; "),
        ] {
            let error = io::Error::from_raw_os_error(code);
            let (unreadable, uncreatable) = (unreadable(&error), uncreatable(&error));
            assert!(unreadable.contains(reading) && uncreatable.contains(writing), "{unreadable}; {uncreatable}");
            assert!(
                !unreadable.contains("os error") && !uncreatable.contains("os error"),
                "{unreadable}; {uncreatable}"
            );
        }
    }

    #[test]
    fn only_device_errors_advise_to_check_the_logs_of_the_volume() {
        for code in [libc::EIO, libc::ENXIO, libc::EUCLEAN] {
            let error = io::Error::from_raw_os_error(code);
            assert!(to_write(&error).contains("smartctl") && to_read(&error).contains("smartctl"), "{error}");
        }
        for (code, writing, reading) in [
            (libc::ELOOP, "symbolic link", "symbolic link"),
            (libc::ENOTDIR, "not a directory", "not a directory"),
            (libc::EACCES, "write permission", "read permission"),
            (libc::EPERM, "write permission", "read permission"),
            (libc::ENOENT, "removed", "check the path"),
            (libc::EISDIR, "move it away", "name a file"),
            (libc::EEXIST, "move it away", "doctor"),
            (libc::ENOSPC, "free space", "doctor"),
            (libc::EDQUOT, "free space", "doctor"),
            (libc::EROFS, "mount the volume for writing", "doctor"),
            (libc::EMFILE, "ulimit -n", "ulimit -n"),
            (libc::ENAMETOOLONG, "too long", "too long"),
            (libc::EFBIG, "ulimit -f", "ulimit -f"),
            (libc::ENOMEM, "ulimit -v", "ulimit -v"),
            (libc::EBUSY, "another process", "another process"),
            (libc::EINVAL, "does not support", "does not support"),
        ] {
            let error = io::Error::from_raw_os_error(code);
            let (to_write, to_read) = (to_write(&error), to_read(&error));
            assert!(to_write.contains(writing) && to_read.contains(reading), "{error}: {to_write}; {to_read}");
            assert!(!to_write.contains("smartctl") && !to_read.contains("smartctl"), "{error}");
        }
    }
}
