//! The formatter normalises spaces: it leaves one space between tokens, and none inside brackets or at the end of a
//! line. Lines, indentation and comments are unchanged. Spaces that align the lines of a block are not changed, because
//! the alignment affects the meaning.

use super::{Error, lex, parse};

/// The text with normalised spaces.
///
/// # Errors
/// If the text is not a valid program.
///
/// ```
/// let tidy = netgrain_lang::syntax::format("main =  ip  >->when ( is_tcp )( mark  42 ) -- all\n\n\n").unwrap();
/// assert_eq!(tidy, "main = ip >-> when (is_tcp) (mark 42) -- all\n");
/// ```
pub fn format(text: &str) -> Result<String, Error> {
    let before = parse(text)?;
    let trimmed: String = text.lines().map(|l| format!("{}\n", l.trim_end())).collect();
    let trimmed = format!("{}\n", trimmed.trim_end());
    let tidy = tidy(&trimmed)?;
    let same = parse(&tidy).is_ok_and(|after| {
        let content = |bindings: &[super::Binding]| -> Vec<_> {
            bindings.iter().map(|b| (b.name.clone(), b.params.clone(), b.body.clone())).collect()
        };
        content(&before) == content(&after)
    });
    Ok(if same { tidy } else { trimmed })
}

fn tidy(text: &str) -> Result<String, Error> {
    let tokens = lex::tokens(text)?;
    let mut out = String::new();
    let mut end = 0;
    for token in &tokens {
        let gap = &text[end..token.span.start];
        let word = &text[token.span.clone()];
        if gap.contains('\n') || !gap.trim().is_empty() || out.is_empty() {
            // The text between two tokens is kept unchanged if it contains a line break or a comment.
            out.push_str(gap);
        } else {
            let tight = out.ends_with(['(', '[']) || matches!(word, ")" | "]" | "," | ";" | "");
            out.push_str(if tight { "" } else { " " });
        }
        out.push_str(word);
        end = token.span.end;
    }
    out.push_str(&text[end..]);
    Ok(out)
}
