//! Checks and builds the book in `docs/`. Every page must be in the table of contents, and every relative link must
//! lead to a page and a heading that exist. The book is built if mdBook is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The table of contents that mdBook reads.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Pages outside the book whose links are checked too.
const OTHER_PAGES: &[&str] = &["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "records/README.md"];

/// Appends a finding for each page that is not in the table of contents, and for each broken link.
pub fn check(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let mut pages = BTreeMap::new();
    read_pages(root, Path::new("docs"), &mut pages)?;
    for page in OTHER_PAGES {
        let text = std::fs::read_to_string(root.join(page)).map_err(|e| format!("{page}: {e}"))?;
        pages.insert(PathBuf::from(page), text);
    }
    let contents = pages.get(Path::new(CONTENTS)).ok_or(format!("{CONTENTS} is missing"))?;
    let listed: BTreeSet<PathBuf> =
        links(contents).filter_map(|(_, link)| target(Path::new(CONTENTS), link)).map(|(page, _)| page).collect();
    for page in pages.keys().filter(|page| page.starts_with("docs") && *page != Path::new(CONTENTS)) {
        if !listed.contains(page) {
            findings.push(format!("{}: the page is not in {CONTENTS}", page.display()));
        }
    }
    for (page, text) in &pages {
        for (line, link) in links(text) {
            let Some((to, heading)) = target(page, link) else { continue };
            let position = format!("{}:{line}", page.display());
            if !root.join(&to).exists() {
                findings.push(format!("{position}: link {link}: {} does not exist", to.display()));
            } else if let Some(heading) = heading
                && let Some(text) = pages.get(&to)
                && !headings(text).contains(heading)
            {
                findings.push(format!("{position}: link {link}: {} does not have this heading", to.display()));
            }
        }
    }
    Ok(())
}

/// Builds the book as HTML in `output`, if `mdbook` is the path of mdBook.
pub fn build(root: &Path, mdbook: Option<&Path>, output: &Path) -> Result<(), String> {
    let Some(mdbook) = mdbook else {
        println!("book: mdbook is not installed; the links were checked, but the book was not built");
        return Ok(());
    };
    let status = Command::new(mdbook).arg("build").arg(root.join("docs")).arg("--dest-dir").arg(output).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("mdbook ended with {status}")),
        Err(e) => Err(format!("{} could not be started: {e}", mdbook.display())),
    }
}

/// Reads all pages below `directory` into `pages`, with their paths from the root.
fn read_pages(root: &Path, directory: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
    let with_path = |e: std::io::Error| format!("{}: {e}", directory.display());
    for entry in std::fs::read_dir(root.join(directory)).map_err(with_path)? {
        let path = directory.join(entry.map_err(with_path)?.file_name());
        if root.join(&path).is_dir() {
            read_pages(root, &path, pages)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            let text = std::fs::read_to_string(root.join(&path)).map_err(|e| format!("{}: {e}", path.display()))?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// Line number and target of each link `[text](target)`, except in code.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    lines.flat_map(|(index, line)| {
        // A line is split at its backticks; the first, third, fifth part and so on are outside of code. If the text of
        // a link is code, the `](` after it is outside of code, so the link is found.
        let prose = line.split('`').step_by(2);
        prose
            .flat_map(|piece| piece.split("](").skip(1))
            .filter_map(move |rest| Some((index + 1, rest.split_once(')')?.0)))
    })
}

/// The file that a link on `page` leads to, as a path from the root, and the heading; `None` for a link to another
/// site.
fn target<'a>(page: &Path, link: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    if path.is_empty() {
        return Some((page.to_owned(), heading));
    }
    let mut to = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => _ = to.pop(),
            Component::CurDir => {}
            part => to.push(part),
        }
    }
    Some((to, heading))
}

/// The anchors of the headings of a page, as mdBook and GitHub make them: lower case, spaces as hyphens, no
/// punctuation.
fn headings(text: &str) -> BTreeSet<String> {
    let mut is_fenced = false;
    let mut anchors: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        let Some(title) = line.strip_prefix('#').filter(|_| !is_fenced) else { continue };
        let title = title.trim_start_matches('#').trim();
        let anchor_chars = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String =
            anchor_chars.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = anchors.entry(anchor.clone()).or_default();
        all.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{headings, links, target};
    use std::path::{Path, PathBuf};

    #[test]
    fn links_in_code_are_ignored() {
        let text = "a [b](c.md) `[d](e.md)`\n```\n[f](g.md)\n```\n[h](i.md#j)\n";
        assert_eq!(links(text).collect::<Vec<_>>(), [(1, "c.md"), (5, "i.md#j")]);
    }

    #[test]
    fn link_targets_are_paths_from_the_root_with_headings() {
        let page = Path::new("docs/reference/run.md");
        assert_eq!(target(page, "../design/x.md#a-b"), Some((PathBuf::from("docs/design/x.md"), Some("a-b"))));
        assert_eq!(target(page, "#here"), Some((page.to_owned(), Some("here"))));
        assert_eq!(target(page, "https://example.org/"), None);
    }

    #[test]
    fn headings_become_anchors() {
        let anchors = headings("# A `run`, twice\n## Same\n## Same\n```\n# no\n```\n");
        assert_eq!(anchors.into_iter().collect::<Vec<_>>(), ["a-run-twice", "same", "same-1"]);
    }
}
