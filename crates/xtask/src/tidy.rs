//! Checks that no compiler makes: the crate table of docs/design/architecture.md against the crates, generated files
//! against their specification, reasons beside third-party crates, file sizes, leftovers, and the links and the
//! contents of the book, and words that the glossary excludes.

use crate::{book, generate, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A longer source file holds more than one subject and should be split.
const LINES_MAX: usize = 1000;

/// Crates whose code runs while packets arrive.
const MUST_NOT_PANIC: &[&str] = &[
    "crates/cli/src",
    "crates/engine/src",
    "crates/group-services/src",
    "crates/interface-program/src",
    "crates/meter/src",
];

/// Third-party crates that only one crate may use.
const CAGED: &[(&str, &str)] = &[("libc", "sys"), ("io-uring", "sys")];

/// Words that mark unfinished work. They are written in pieces, so that this file does not match.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimpl", "emented!"),
    concat!("to", "do!("),
];

/// Runs all checks and returns all complaints at once.
pub fn run(root: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    let rows = crate_table(root)?;
    let crates = crates(root)?;
    edges(&rows, &crates, &mut complaints);
    unsafety(root, &rows, &mut complaints);
    outside(root, &rows, &mut complaints);
    for (path, content) in generate::files(root)? {
        if std::fs::read_to_string(root.join(path)).ok().as_deref() != Some(&content) {
            complaints.push(format!("{path} is not what spec/ says; run `cargo xtask generate`"));
        }
    }
    sources(root, &mut complaints)?;
    book::check(root, &mut complaints)?;
    words::check(root, &mut complaints)?;
    if complaints.is_empty() {
        println!("tidy: {} crates, nothing to complain about", rows.len());
        return Ok(());
    }
    Err(format!("{} complaints:\n  {}", complaints.len(), complaints.join("\n  ")))
}

/// One row of the crate table.
struct CrateRow {
    layer: String,
    may_use: BTreeSet<String>,
    forbids_unsafe: bool,
}

/// The rows between the markers in docs/design/architecture.md: `| layer | `crate` | purpose | may use | unsafe |`.
fn crate_table(root: &Path) -> Result<BTreeMap<String, CrateRow>, String> {
    let text = read(root, "docs/design/architecture.md")?;
    let table =
        text.split("<!-- crates -->").nth(1).and_then(|t| t.split("<!-- /crates -->").next()).ok_or(
            "docs/design/architecture.md: the crate table stands between <!-- crates --> and <!-- /crates -->",
        )?;
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|l| l.starts_with('|') && l.contains('`')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [floor, name, _, may_use, unsafe_code] = cells[..] else {
            return Err(format!("docs/design/architecture.md: this row has not five cells: {line}"));
        };
        let row = CrateRow {
            layer: floor.to_owned(),
            may_use: may_use.split_whitespace().filter(|w| *w != "–").map(str::to_owned).collect(),
            forbids_unsafe: unsafe_code == "forbid",
        };
        rows.insert(name.trim_matches('`').to_owned(), row);
    }
    Ok(rows)
}

/// Directory name under crates/ -> the workspace crates in its ordinary dependencies.
fn crates(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let out = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let mut crates = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let uses = package["dependencies"].as_array().into_iter().flatten().filter(|d| d["kind"].is_null());
        let uses = uses.filter_map(|d| folder(Path::new(d["path"].as_str()?))).collect();
        if let Some(name) = manifest.parent().and_then(folder) {
            crates.insert(name, uses);
        }
    }
    Ok(crates)
}

fn folder(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn edges(rows: &BTreeMap<String, CrateRow>, crates: &BTreeMap<String, BTreeSet<String>>, complaints: &mut Vec<String>) {
    for (name, uses) in crates {
        let Some(row) = rows.get(name) else {
            complaints.push(format!("crates/{name} has no row in docs/design/architecture.md"));
            continue;
        };
        for used in uses {
            let listed = row.may_use.contains(used) || row.may_use.contains("all");
            if !listed {
                complaints.push(format!("crates/{name} uses {used}, which docs/design/architecture.md does not allow"));
            }
        }
        for listed in row.may_use.iter().filter(|l| *l != "all") {
            if !uses.contains(listed) {
                complaints.push(format!("docs/design/architecture.md lets {name} use {listed}, and it does not"));
            }
        }
    }
    for name in rows.keys().filter(|n| !crates.contains_key(*n)) {
        complaints.push(format!("docs/design/architecture.md has a row for {name}, which does not exist"));
    }
}

fn unsafety(root: &Path, rows: &BTreeMap<String, CrateRow>, complaints: &mut Vec<String>) {
    for (name, row) in rows {
        let src = root.join("crates").join(name).join("src");
        let top =
            ["lib.rs", "main.rs"].iter().find_map(|f| std::fs::read_to_string(src.join(f)).ok()).unwrap_or_default();
        if row.forbids_unsafe != top.contains("#![forbid(unsafe_code)]") {
            let should = if row.forbids_unsafe { "forbid" } else { "allow" };
            complaints.push(format!("crates/{name} should {should} unsafe code, says docs/design/architecture.md"));
        }
    }
}

/// Layers 0 and 1 have no third-party crates; elsewhere each has its reason in the line before it.
fn outside(root: &Path, rows: &BTreeMap<String, CrateRow>, complaints: &mut Vec<String>) {
    for (name, row) in rows {
        let path = format!("crates/{name}/Cargo.toml");
        let Ok(text) = read(root, &path) else { continue };
        let mut section = "";
        let mut before = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if let Some((dependency, _)) = line.split_once(" = ")
                && section.contains("dependencies")
            {
                let shared = dependency.strip_suffix(".workspace");
                if shared.is_some_and(|ours| rows.contains_key(ours)) {
                    before = line;
                    continue;
                }
                let dependency = shared.unwrap_or(dependency);
                if !before.starts_with('#') {
                    complaints.push(format!("{path}: {dependency} has no reason in the line before"));
                }
                if section == "[dependencies]" && row.layer == "0" {
                    complaints.push(format!("{path}: {dependency}: layer 0 uses nothing from outside"));
                }
                if CAGED.iter().any(|(caged, owner)| *caged == dependency && owner != name) {
                    complaints.push(format!("{path}: {dependency} belongs to another crate"));
                }
            }
            before = line;
        }
    }
}

fn sources(root: &Path, complaints: &mut Vec<String>) -> Result<(), String> {
    let mut folders = vec![root.join("crates"), root.join("examples"), root.join("include")];
    while let Some(dir) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if !path.extension().is_some_and(|e| e == "rs" || e == "h" || e == "c") {
                continue;
            }
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{shown}: {e}"))?;
            let lines = text.lines().count();
            if lines > LINES_MAX {
                complaints.push(format!("{shown}: {lines} lines; what is the second noun?"));
            }
            let speaks = MUST_NOT_PANIC.iter().any(|folder| shown.starts_with(folder));
            for (number, line) in text.lines().enumerate() {
                if speaks && line.contains(concat!("epri", "nt")) {
                    complaints.push(format!(
                        "{shown}:{}: panics where standard error is closed; write sys::say!",
                        number + 1
                    ));
                }
                // The list of skips has only the lines that `testkit::skip` writes.
                let is_skip = line.contains(concat!("\"SK", "IP ")) && line.contains(concat!("print", "ln!"));
                if is_skip {
                    complaints.push(format!("{shown}:{}: call testkit::skip", number + 1));
                }
                if let Some(word) = LEFTOVERS.iter().find(|w| line.contains(**w)) {
                    complaints.push(format!("{shown}:{}: {word}", number + 1));
                }
            }
            if path.extension().is_some_and(|e| e == "rs") && !text.starts_with("//!") {
                complaints.push(format!("{shown}: begins without saying what it is for (//!)"));
            }
        }
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}
