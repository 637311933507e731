//! Generates the reference page of all functions.

use super::PARTS;
use crate::types::Type;
use std::fmt::Write;

/// The text of `docs/reference/packet-language-functions.md`.
pub fn reference() -> String {
    let mut out = String::from(
        "# Functions of the packet language\n\nMade from the table in `crates/lang/src/table` by `netgrain lang functions`; \
         `docs/reference/packet-language.md` explains the language.\n`flows` in the examples is a flow map. Effects are what a function may do besides what the actions do that it is given.\n",
    );
    for (part, functions) in PARTS {
        let _ = write!(
            out,
            "\n## {part}\n\n| name | type | what it does | for example | effects |\n|---|---|---|---|---|\n"
        );
        for f in functions {
            let also: String = f.aliases.iter().map(|a| format!(", `{a}`")).collect();
            let effects = if f.effects.is_empty() { String::from("–") } else { f.effects().to_string() };
            let example = f.example().map_or_else(|| "–".to_owned(), |call| format!("`{}`", call.replace('|', "\\|")));
            let _ = writeln!(
                out,
                "| `{}`{also} | `{}` | {} | {example} | {effects} |",
                f.name,
                Type::of_signature(f.signature),
                f.description
            );
        }
    }
    out
}
