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
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("zstd", "zstd"),
    ("setpriv", "util-linux"),
    ("cc", "gcc"),
];

/// What other people read our Parquet files with, as Python calls it.
const ENGINES: &[&str] = &["duckdb", "polars", "pyarrow"];

/// Installs what is missing: programs if this is a Debian system and we are root, engines where there is Python.
pub fn install() {
    install_engines();
    install_programs();
}

/// Into an environment of their own in the user's cache; the tests look there.
fn install_engines() {
    let Some(home) = std::env::var_os("HOME") else { return };
    let folder = std::path::PathBuf::from(home).join(".cache/netgrain/oracles-python");
    let python = folder.join("bin/python");
    let run = |program: &std::path::Path, args: &[&str]| {
        let quiet = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|s| s.success())
    };
    let import = format!("import {}", ENGINES.join(", "));
    if run(&python, &["-c", &import]) {
        return;
    }
    println!("oracles: installing {} into {}", ENGINES.join(" "), folder.display());
    let made = run("python3".as_ref(), &["-m", "venv", &folder.to_string_lossy()]);
    if !made || !run(&python, &[&["-m", "pip", "install", "-q"], ENGINES].concat()) {
        println!("oracles: not installed (no python3 with venv, or no network); the tests that need them will skip");
    }
}

fn install_programs() {
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
