//! Checks rules of the repository that the compiler does not check. The crate table of docs/design/architecture.md must
//! agree with the dependencies of the crates, and generated files with their specification. Each third-party crate must
//! have its reason in Cargo.toml. The source files of a crate must not use each other in circles. No source file may be
//! too long, contain a mark of unfinished work, or contain a word that the glossary excludes. No line of Rust may be
//! too long. The links and the table of contents of the book must be correct.

use crate::{book, circles, generate, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Limit of the lines of a source file. A longer file has more than one subject and should be split.
const LINES_MAX: usize = 1000;

/// Limit of the characters of a line of Rust. `cargo fmt` has the same limit, but does not break texts, macros and
/// comments.
const COLUMNS_MAX: usize = 120;

/// Crates whose code runs while packets are recorded, and which therefore must not panic when standard error is closed.
const MUST_NOT_PANIC: &[&str] = &[
    "crates/cli/src",
    "crates/engine/src",
    "crates/group-services/src",
    "crates/interface-program/src",
    "crates/meter/src",
];

/// Third-party crates that only one crate may use.
const EXCLUSIVE: &[(&str, &str)] = &[("libc", "sys"), ("io-uring", "sys")];

/// Words that mark unfinished work. Each word is written in two pieces, so that this file does not contain it.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimpl", "emented!"),
    concat!("to", "do!("),
];

/// Runs all checks. The error contains all findings.
pub fn run(root: &Path) -> Result<(), String> {
    let mut findings = Vec::new();
    let rows = crate_table(root)?;
    let crates = crates(root)?;
    check_dependencies(&rows, &crates, &mut findings);
    check_unsafe(root, &rows, &mut findings);
    check_third_party(root, &rows, &mut findings);
    for (path, content) in generate::files(root)? {
        if std::fs::read_to_string(root.join(path)).ok().as_deref() != Some(&content) {
            findings.push(format!("{path} differs from the file that spec/ generates; run `cargo xtask generate`"));
        }
    }
    check_sources(root, &mut findings)?;
    circles::check(root, &mut findings)?;
    book::check(root, &mut findings)?;
    words::check(root, &mut findings)?;
    if findings.is_empty() {
        println!("tidy: {} crates, no findings", rows.len());
        return Ok(());
    }
    Err(format!("{} findings:\n  {}", findings.len(), findings.join("\n  ")))
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
    let table = text.split("<!-- crates -->").nth(1).and_then(|t| t.split("<!-- /crates -->").next()).ok_or(
        "docs/design/architecture.md: <!-- crates --> and <!-- /crates --> around the crate table are missing",
    )?;
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|l| l.starts_with('|') && l.contains('`')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [layer, name, _, may_use, unsafe_code] = cells[..] else {
            return Err(format!(
                "docs/design/architecture.md: a row of the crate table does not have five cells: {line}"
            ));
        };
        let row = CrateRow {
            layer: layer.to_owned(),
            may_use: may_use.split_whitespace().filter(|w| *w != "–").map(str::to_owned).collect(),
            forbids_unsafe: unsafe_code == "forbid",
        };
        rows.insert(name.trim_matches('`').to_owned(), row);
    }
    Ok(rows)
}

/// The directory names under crates/, each with the workspace crates in the crate's ordinary dependencies.
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
        let uses = uses.filter_map(|d| directory(Path::new(d["path"].as_str()?))).collect();
        if let Some(name) = manifest.parent().and_then(directory) {
            crates.insert(name, uses);
        }
    }
    Ok(crates)
}

fn directory(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

fn check_dependencies(
    rows: &BTreeMap<String, CrateRow>,
    crates: &BTreeMap<String, BTreeSet<String>>,
    findings: &mut Vec<String>,
) {
    for (name, uses) in crates {
        let Some(row) = rows.get(name) else {
            findings.push(format!("crates/{name} has no row in the crate table of docs/design/architecture.md"));
            continue;
        };
        for used in uses {
            let allowed = row.may_use.contains(used) || row.may_use.contains("all");
            if !allowed {
                findings
                    .push(format!("crates/{name} depends on {used}, which docs/design/architecture.md does not allow"));
            }
        }
        for allowed in row.may_use.iter().filter(|l| *l != "all") {
            if !uses.contains(allowed) {
                findings.push(format!(
                    "docs/design/architecture.md allows {name} to use {allowed}, which is not among its dependencies"
                ));
            }
        }
    }
    for name in rows.keys().filter(|n| !crates.contains_key(*n)) {
        findings.push(format!("docs/design/architecture.md has a row for the crate {name}, which does not exist"));
    }
}

fn check_unsafe(root: &Path, rows: &BTreeMap<String, CrateRow>, findings: &mut Vec<String>) {
    for (name, row) in rows {
        let src = root.join("crates").join(name).join("src");
        let top =
            ["lib.rs", "main.rs"].iter().find_map(|f| std::fs::read_to_string(src.join(f)).ok()).unwrap_or_default();
        if row.forbids_unsafe != top.contains("#![forbid(unsafe_code)]") {
            let should = if row.forbids_unsafe { "forbid" } else { "allow" };
            findings.push(format!("crates/{name} must {should} unsafe code, according to docs/design/architecture.md"));
        }
    }
}

/// Checks third-party dependencies: crates of layer 0 have none, and in each `Cargo.toml` a comment before each
/// third-party dependency gives the reason for it.
fn check_third_party(root: &Path, rows: &BTreeMap<String, CrateRow>, findings: &mut Vec<String>) {
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
                    findings.push(format!(
                        "{path}: the dependency {dependency} has no comment with its reason in the line before"
                    ));
                }
                if section == "[dependencies]" && row.layer == "0" {
                    findings
                        .push(format!("{path}: {dependency} is a third-party crate, and crates of layer 0 use none"));
                }
                if let Some((_, owner)) = EXCLUSIVE.iter().find(|(exclusive, _)| *exclusive == dependency)
                    && owner != name
                {
                    findings.push(format!("{path}: only the crate {owner} may depend on {dependency}"));
                }
            }
            before = line;
        }
    }
}

fn check_sources(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let mut directories = vec![root.join("crates"), root.join("examples"), root.join("include")];
    while let Some(dir) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if !path.extension().is_some_and(|e| e == "rs" || e == "h" || e == "c") {
                continue;
            }
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{shown}: {e}"))?;
            let lines = text.lines().count();
            if lines > LINES_MAX {
                findings.push(format!("{shown}: {lines} lines, more than {LINES_MAX}; split the file by subject"));
            }
            let must_not_panic = MUST_NOT_PANIC.iter().any(|directory| shown.starts_with(directory));
            for (number, line) in text.lines().enumerate() {
                if must_not_panic && line.contains(concat!("epri", "nt")) {
                    findings.push(format!(
                        "{shown}:{}: this macro panics when standard error is closed; use sys::say!",
                        number + 1
                    ));
                }
                // Test skips must be printed by `testkit::skip`, which also adds them to the list that `cargo xtask ci`
                // prints.
                let is_skip = line.contains(concat!("\"SK", "IP ")) && line.contains(concat!("print", "ln!"));
                if is_skip {
                    findings.push(format!("{shown}:{}: use testkit::skip to print a skipped test", number + 1));
                }
                if let Some(word) = LEFTOVERS.iter().find(|w| line.contains(**w)) {
                    findings.push(format!("{shown}:{}: {word} marks unfinished work", number + 1));
                }
            }
            if path.extension().is_some_and(|e| e == "rs") {
                if !text.starts_with("//!") {
                    findings.push(format!("{shown}: the file does not begin with a module comment (//!)"));
                }
                for (number, columns) in long_lines(&text) {
                    findings.push(format!("{shown}:{number}: {columns} columns, more than {COLUMNS_MAX}"));
                }
            }
        }
    }
    Ok(())
}

/// The number and the length of each line with more than [`COLUMNS_MAX`] characters.
fn long_lines(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let columns = text.lines().map(|line| line.chars().count());
    columns.enumerate().map(|(i, columns)| (i + 1, columns)).filter(|(_, columns)| *columns > COLUMNS_MAX)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS_MAX, long_lines};

    #[test]
    fn long_lines_are_counted_in_characters() {
        let [fits, long] = [COLUMNS_MAX, COLUMNS_MAX + 1].map(|columns| "–".repeat(columns));
        let text = format!("{fits}\n{long}\n\n{fits}\r\n{long}");
        assert_eq!(long_lines(&text).collect::<Vec<_>>(), [(2, COLUMNS_MAX + 1), (5, COLUMNS_MAX + 1)]);
    }
}
