//! The programs that tests compare with. They are installed where that is possible; elsewhere the tests that need them
//! skip by name, and the list of skips says so.

use std::process::{Command, Stdio};

/// Program and the Debian package that has it.
const ORACLES: &[(&str, &str)] = &[
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("capinfos", "wireshark-common"),
    ("dumpcap", "wireshark-common"),
    ("mergecap", "wireshark-common"),
    ("netsniff-ng", "netsniff-ng"),
    ("nfcapd", "nfdump"),
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("zstd", "zstd"),
    ("setpriv", "util-linux"),
    ("cc", "gcc"),
];

/// Installs what is missing, if this is a Debian system and we are root.
pub fn install() {
    let missing: Vec<&str> =
        ORACLES.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    if !exists("apt-get") {
        println!("oracles: no apt-get here; the tests that need {} will skip", missing.join(", "));
        return;
    }
    println!("oracles: installing {}", missing.join(" "));
    let apt = |args: &[&str]| {
        let status =
            Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).status();
        status.is_ok_and(|s| s.success())
    };
    let installed = apt(&["update", "-qq"])
        && apt(&[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat());
    if !installed {
        println!("oracles: not installed (not root, or no network); the tests that need them will skip");
    }
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder: std::path::PathBuf| folder.join(program).is_file())
}
