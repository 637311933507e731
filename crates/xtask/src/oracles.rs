//! Installs the programs that tests compare with (oracles). A test whose program is not installed is skipped and
//! printed in the list of skipped tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs that tests compare with, each with its Debian package.
const ORACLES: &[(&str, &str)] = &[
    ("tcpdump", "tcpdump"),
    ("tshark", "tshark"),
    ("capinfos", "wireshark-common"),
    ("dumpcap", "wireshark-common"),
    ("mergecap", "wireshark-common"),
    ("netsniff-ng", "netsniff-ng"),
    ("nfcapd", "nfdump"),
    ("nfacctd", "pmacct"),
    ("softflowd", "softflowd"),
    ("argus", "argus-server"),
    ("ra", "argus-client"),
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("zstd", "zstd"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("cc", "gcc"),
    ("python3", "python3"),
];

/// Python packages that tests compare with, by their names on PyPI, installed in a virtual environment.
const PYTHON_PACKAGES: &[&str] = &[
    "yacryptopan==1.0.2",
    "duckdb==2.0.0",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pytz",
    "netflow==0.12.2",
    "ipfix==0.9.7",
    "scipy==1.17.1",
];

/// Programs that are extracted from their Debian package, because installing the package would start a service.
const EXTRACTED: &[(&str, &str)] = &[("promtool", "prometheus")];

/// Programs in Go that tests compare with, and their modules on the Go proxy.
const GO_PROGRAMS: &[(&str, &str)] = &[("goflow2", "github.com/netsampler/goflow2/v2/cmd/goflow2@v2.2.3")];

/// Programs in Rust that `cargo xtask ci` uses, or that tests compare with: name and version on crates.io.
const RUST_PROGRAMS: &[(&str, &str)] = &[("mdbook", "0.5.4"), ("cargo-deny", "0.20.2"), ("stamp-suite", "1.0.0")];

/// Older Parquet readers, each group in its own virtual environment: name of the environment, Python version that the
/// packages support, packages.
const OLD_READERS: &[(&str, &str, &[&str])] = &[
    (
        "oracles-python-2022",
        "python3.9",
        &[
            "pyarrow==6.0.1",
            "duckdb==0.3.4",
            "polars==0.13.10",
            "fastparquet==0.8.1",
            "numpy<1.24",
            "pandas<1.5",
            "pytz",
        ],
    ),
    (
        "oracles-python-2023",
        "python3.10",
        &[
            "pyarrow==12.0.1",
            "duckdb==0.8.1",
            "polars==0.18.8",
            "fastparquet==2023.7.0",
            "numpy<1.26",
            "pandas<2.1",
            "pytz",
        ],
    ),
];

/// Installs the missing programs. Debian packages need a Debian system and root.
pub fn install() {
    install_programs();
    let environments = [("oracles-python", "python3", PYTHON_PACKAGES)];
    for (name, python, packages) in environments.iter().chain(OLD_READERS) {
        if let Err(reason) = install_packages(name, python, packages) {
            println!("oracles: no {}: {reason}; the tests that need them are skipped", packages.join(", "));
        }
    }
    for (program, package) in EXTRACTED {
        if let Err(reason) = unpack_program(program, package) {
            println!("oracles: no {program}: {reason}; the tests that need it are skipped");
        }
    }
    for (program, version) in RUST_PROGRAMS {
        if let Err(reason) = install_rust_program(program, version) {
            println!("oracles: no {program}: {reason}; the steps and tests that need it are skipped");
        }
    }
    for (program, module) in GO_PROGRAMS {
        if let Err(reason) = install_go_program(program, module) {
            println!("oracles: no {program}: {reason}; the tests that need it are skipped");
        }
    }
}

/// Creates a virtual environment in the cache directory, where `testkit::python_with` and `testkit::python_of` find it.
fn install_packages(name: &str, python: &str, packages: &[&str]) -> Result<(), String> {
    let directory = cache()?.join(name);
    // The list of packages is written after the installation, so that an interrupted installation is repeated.
    let (list, wanted) = (directory.join("installed"), packages.join("\n"));
    if std::fs::read_to_string(&list).is_ok_and(|has| has == wanted) {
        return Ok(());
    }
    println!("oracles: installing {} into {}", packages.join(" "), directory.display());
    run(Command::new(python_named(python)?).args(["-m", "venv", "--clear"]).arg(&directory))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(directory.join("bin/python")).args(pip).args(packages))?;
    std::fs::write(&list, wanted).map_err(|e| format!("{}: {e}", list.display()))
}

/// Builds a program in the cache directory, where `testkit::go_tool` finds it.
fn install_go_program(program: &str, module: &str) -> Result<(), String> {
    let directory = cache()?.join("oracles-go/bin");
    // If the installed program has another version, it is built again.
    let (list, has) = (directory.join(format!("{program}.version")), directory.join(program).is_file());
    if has && std::fs::read_to_string(&list).is_ok_and(|version| version == module) {
        return Ok(());
    }
    println!("oracles: building {module} into {}", directory.display());
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    run(Command::new("go").args(["install", module]).env("GOBIN", &directory))?;
    std::fs::write(&list, module).map_err(|e| format!("{}: {e}", list.display()))
}

/// Builds a program in the cache directory.
fn install_rust_program(program: &str, version: &str) -> Result<(), String> {
    let directory = cache()?.join("oracles-rust");
    let (list, has) = (directory.join(format!("{program}.version")), directory.join("bin").join(program).is_file());
    if has && std::fs::read_to_string(&list).is_ok_and(|built| built == version) {
        return Ok(());
    }
    println!("oracles: building {program} {version} into {}", directory.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["install", "--quiet", "--locked", "--force", "--no-default-features", "--debug", "--version", version]);
    cargo.arg("--root").arg(&directory).arg(program).env("CARGO_TARGET_DIR", directory.join("target"));
    run(&mut cargo)?;
    // Only the program is kept, because the build directory takes several hundred megabytes.
    std::fs::remove_dir_all(directory.join("target")).map_err(|e| format!("{}: {e}", directory.display()))?;
    std::fs::write(&list, version).map_err(|e| format!("{}: {e}", list.display()))
}

/// Installs one of [`RUST_PROGRAMS`] if it is missing.
pub fn install_rust(name: &str) -> Result<PathBuf, String> {
    let (_, version) =
        RUST_PROGRAMS.iter().find(|(program, _)| *program == name).ok_or("the program is not in RUST_PROGRAMS")?;
    install_rust_program(name, version)?;
    rust_program(name).ok_or(format!("{name} is not in the cache directory after its installation"))
}

/// The path of one of [`RUST_PROGRAMS`], if it is installed.
pub fn rust_program(name: &str) -> Option<PathBuf> {
    Some(cache().ok()?.join("oracles-rust/bin").join(name)).filter(|program| program.is_file())
}

/// Extracts a program from a Debian package into the directory where `testkit::go_tool` finds it.
fn unpack_program(program: &str, package: &str) -> Result<(), String> {
    let directory = cache()?.join("oracles-go");
    let path = directory.join("bin").join(program);
    if exists(program) || path.is_file() {
        return Ok(());
    }
    println!("oracles: extracting {program} from the package {package} into {}", directory.display());
    let io = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let work = directory.join(format!("{package}.unpacked"));
    // An interrupted extraction is repeated.
    if work.exists() {
        std::fs::remove_dir_all(&work).map_err(|e| io(&work, e))?;
    }
    for directory in [&work, &directory.join("bin")] {
        std::fs::create_dir_all(directory).map_err(|e| io(directory, e))?;
    }
    run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(&work))?;
    let files = std::fs::read_dir(&work).map_err(|e| io(&work, e))?;
    let file = files.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "deb"));
    run(Command::new("dpkg-deb").arg("-x").arg(file.ok_or("apt-get downloaded no package")?).arg(&work))?;
    std::fs::rename(work.join("usr/bin").join(program), &path).map_err(|e| io(&path, e))?;
    std::fs::remove_dir_all(&work).map_err(|e| io(&work, e))
}

/// Netgrain's cache directory.
fn cache() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    Ok(cache.ok_or("there is no cache directory, because HOME is not set")?.join("netgrain"))
}

/// The Python program of this name: in `$PATH`, or in a version that pyenv installed.
fn python_named(name: &str) -> Result<PathBuf, String> {
    let pyenv_versions = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let pyenv_versions =
        pyenv_versions.and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    let candidates =
        [PathBuf::from(name)].into_iter().chain(pyenv_versions.map(|version| version.path().join("bin").join(name)));
    let works = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    candidates.into_iter().find(works).ok_or_else(|| format!("{name} is not installed"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?} could not be started: {e}"))?;
    let stderr = String::from_utf8_lossy(&out.stderr);
    if out.status.success() {
        Ok(())
    } else {
        Err(stderr.lines().last().unwrap_or("the program failed without a message").to_owned())
    }
}

fn install_programs() {
    let missing: Vec<&str> =
        ORACLES.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    if !exists("apt-get") {
        println!("oracles: apt-get is not installed; the tests that need {} are skipped", missing.join(", "));
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
        println!("oracles: apt-get failed (not root, or no network); the tests that need them are skipped");
    }
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory: std::path::PathBuf| directory.join(program).is_file())
}
