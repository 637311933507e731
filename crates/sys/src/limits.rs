//! How many files this process may have open (getrlimit(2), `RLIMIT_NOFILE`).

use std::io;

fn ask() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is what the call writes to, and lives until it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

/// Files that this process may have open; 1024, the usual number, where the kernel does not say.
pub fn open_files() -> u64 {
    ask().map_or(1024, |limit| limit.rlim_cur)
}

/// Lets this process have up to `wanted` files open, as far as it may raise the number by itself; how many it may have now.
/// It never lowers it.
pub fn raise_open_files(wanted: u64) -> u64 {
    if let Ok(mut limit) = ask()
        && limit.rlim_cur < wanted.min(limit.rlim_max)
    {
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: `limit` is only read. Where the kernel refuses, the old number stays.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
    open_files()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_files_goes_up_as_far_as_it_may_and_never_down() {
        let before = open_files();
        assert_eq!(raise_open_files(1), before);
        let after = raise_open_files(before + 1);
        assert!(after == before || after == before + 1, "{before} {after}");
    }
}
