//! Checks that the source files of a crate do not use each other in circles: a reader can then read the files in an
//! order in which each file uses only files that were read before.
//!
//! A file uses another file if a path that begins with `crate`, `super` or `self` leads to the module of that file,
//! even within a `use` declaration with several names. Uses between a module and the modules above or below it are
//! permitted, because modules below a module often extend its types. Comments, texts and the tests at the end of a file
//! are not examined. A name that a module above re-exports counts as a use of the module above.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The path of a module within its crate, such as `writer`, `file`; empty for `lib.rs` and `main.rs`.
type ModulePath = Vec<String>;

/// For each module, the modules that it uses, except those above and below it.
type Uses = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// Appends a finding for each circle.
pub fn check(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let crates = root.join("crates");
    let with_path = |e: std::io::Error| format!("crates: {e}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&crates).map_err(with_path)? {
        names.push(entry.map_err(with_path)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        let mut sources = BTreeMap::new();
        read_sources(&crates.join(&name).join("src"), &mut Vec::new(), &mut sources)?;
        for circle in circles(&uses(&sources)) {
            findings.push(format!(
                "crates/{name}/src: source files use each other in a circle ({}); move the item that both need to a \
                 file that uses neither, or make one file a module of the other",
                circle.join(", ")
            ));
        }
    }
    Ok(())
}

/// Reads the source files of a directory. `below` is the path of the module to which the directory belongs.
fn read_sources(dir: &Path, below: &mut ModulePath, sources: &mut BTreeMap<ModulePath, String>) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            below.push(stem);
            read_sources(&path, below, sources)?;
            below.pop();
        } else if path.extension().is_some_and(|e| e == "rs") {
            let is_top = stem == "mod" || below.is_empty() && (stem == "lib" || stem == "main");
            let module = below.iter().cloned().chain((!is_top).then_some(stem)).collect();
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            sources.insert(module, text);
        }
    }
    Ok(())
}

fn uses(sources: &BTreeMap<ModulePath, String>) -> Uses {
    let used = |module: &ModulePath, text: &String| {
        let paths = paths(&tokens(text)).into_iter().filter_map(|path| absolute(module, path));
        let files = paths.filter_map(|path| {
            (1..=path.len()).rev().map(|len| &path[..len]).find(|path| sources.contains_key(*path)).map(<[_]>::to_vec)
        });
        files.filter(|used| !used.starts_with(module) && !module.starts_with(used)).collect()
    };
    sources.iter().map(|(module, text)| (module.clone(), used(module, text))).collect()
}

/// The names after the crate root of a path in a file of `module`; `None` if the path leads out of the crate.
fn absolute(module: &ModulePath, path: Vec<String>) -> Option<ModulePath> {
    let mut at = Vec::new();
    for (i, name) in path.into_iter().enumerate() {
        match (i, name.as_str()) {
            (0, "crate") => at.clear(),
            (0, "self") => at.clone_from(module),
            (0, "super") => at = module[..module.len().checked_sub(1)?].to_vec(),
            (_, "super") => _ = at.pop()?,
            (_, "self") => {}
            _ => at.push(name),
        }
    }
    Some(at)
}

/// The names and signs of a file that matter for paths; all other signs are one token each.
fn tokens(text: &str) -> Vec<String> {
    let text = text.find("#[cfg(test)]\nmod tests").map_or(text, |end| &text[..end]);
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' {
            text_len(rest)
        } else if c.is_alphanumeric() || c == '_' {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..len].to_owned());
            len + if ["r", "br"].contains(&&rest[..len]) { raw_text_len(&rest[len..]) } else { 0 }
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else if let Some(quote) = ["'\"'", "'\\\"'"].into_iter().find(|quote| rest.starts_with(quote)) {
            quote.len()
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            c.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

/// The length in bytes of the quoted text with which `rest` begins.
fn text_len(rest: &str) -> usize {
    let mut is_escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// The length in bytes of the rest of a raw text after its `r`; 0 if no raw text follows.
fn raw_text_len(rest: &str) -> usize {
    let signs = rest.len() - rest.trim_start_matches('#').len();
    if !rest[signs..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", &rest[..signs]);
    rest[signs + 1..].find(&end).map_or(rest.len(), |at| signs + 1 + at + end.len())
}

/// All paths that begin with `crate`, `super` or `self`; a `use` declaration with several names gives several paths.
fn paths(tokens: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_first = at == 0 || tokens[at - 1] != "::";
        if is_first && ["crate", "super", "self"].contains(&tokens[at].as_str()) {
            at = path_at(tokens, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Appends the path at this token, after the names `before`; returns the index of the token after the path.
fn path_at(tokens: &[String], mut at: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    if tokens[at] == "," {
                        at += 1;
                    } else {
                        at = path_at(tokens, at, &path, found);
                    }
                }
                return at + 1;
            }
            Some(name) => path.push(name.to_owned()),
            None => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    found.push(path);
    // In `{a as b}` the new name is no path.
    if tokens.get(at).is_some_and(|token| token == "as") { at + 2 } else { at }
}

/// The uses within each circle, as `a → b`.
fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in uses.keys().filter(|module| reached[module].contains(module)) {
        if !seen.insert(module) {
            continue;
        }
        let circle: BTreeSet<_> =
            reached[module].iter().copied().filter(|other| reached[other].contains(module)).collect();
        seen.extend(&circle);
        let within = |from: &ModulePath| {
            let used = uses[from].iter().filter(|used| circle.contains(used));
            used.map(|used| format!("{} → {}", from.join("/"), used.join("/"))).collect::<Vec<_>>()
        };
        found.push(circle.iter().flat_map(|from| within(from)).collect());
    }
    found
}

/// The modules that a module uses, directly or through other modules.
fn reachable<'a>(uses: &'a Uses, from: &ModulePath) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&ModulePath> = uses[from].iter().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(&uses[module]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let module = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        circles(&uses(&files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect()))
    }

    #[test]
    fn a_circle_of_three_files_lists_its_uses() {
        let files = [
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::B;\nuse crate::d;"),
            ("b", "fn f() -> super::c::C {}"),
            ("c", "use super::{a::{A, X as Y}, d};"),
            ("d", "pub struct D;"),
        ];
        assert_eq!(circles_of(&files), [["a → b", "b → c", "c → a"]]);
        assert!(circles_of(&files[..3]).is_empty(), "without `c` there is no circle");
    }

    #[test]
    fn a_module_and_the_modules_below_it_may_use_each_other() {
        let files = [("a", "use b::B; fn f(_: self::b::C) {}"), ("a/b", "use super::A; use crate::a;"), ("c", "")];
        assert!(circles_of(&files).is_empty());
        let siblings = [("a/b", "use super::c;"), ("a/c", "use crate::a::b::B;"), ("a", "")];
        assert_eq!(circles_of(&siblings), [["a/b → a/c", "a/c → a/b"]]);
    }

    #[test]
    fn comments_texts_tests_and_names_after_as_are_no_uses() {
        let files = [
            (
                "a",
                "// crate::b\nconst T: &str = \"crate::b \\\" super::b\";\n#[cfg(test)]\nmod tests {\n use crate::b; }",
            ),
            (
                "b",
                "use crate::a; const Q: [char; 2] = ['\"', '\\\"']; use crate::c as a; \
                 const R: &str = r#\"\"crate::d\\\"#;",
            ),
            ("c", "use super::{e as b};"),
            ("e", ""),
            ("d", "use crate::b; pub(super) fn f() { self.b.super_; std::a::crate_() }"),
        ];
        assert!(circles_of(&files).is_empty(), "{:?}", circles_of(&files));
    }

    #[test]
    fn a_use_of_an_item_is_a_use_of_the_file_that_has_it() {
        let files = [("a", "crate::b::Type::new(); super::b::f"), ("b", "use super::a::*;"), ("", "use crate::a;")];
        assert_eq!(circles_of(&files), [["a → b", "b → a"]]);
    }
}
