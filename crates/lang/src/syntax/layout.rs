//! Implements the layout rule: inserts tokens that begin, separate and end the items of blocks that the text marks by
//! indentation only.
//!
//! A block begins after `do` and `of`, and at the start of the file; its column is that of its first token. A line that
//! begins in that column is the next item; a line that begins further left ends the block. A block also ends before
//! the next token of an enclosing construct: before `,`, `)` or `]` of a bracket, `}` of braces, and `then` or `else`
//! of an `if`. Lines that begin with an operator, `then`, `else` or `of` continue the previous line, whatever their
//! column.

use super::lex::{Kind, Token};

enum Open {
    /// A block with this column.
    Block(usize),
    /// A block in braces.
    Braces,
    /// Inside a bracket the layout of enclosing blocks does not apply.
    Bracket,
    /// An `if` that waits for `then` or `else`.
    If,
}

/// Inserts the tokens `{`, `;` and `}` according to the layout rule.
pub fn lay_out(tokens: Vec<Token>) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len() * 2);
    let mut open: Vec<Open> = Vec::new();
    let mut begins = true;
    for token in tokens {
        let mark = |c| Token { kind: Kind::Mark(c), span: token.span.start..token.span.start, ..token.clone() };
        if token.kind == Kind::End {
            if std::mem::take(&mut begins) {
                out.extend([mark('{'), mark('}')]);
            }
            out.extend(open.drain(..).filter(|o| matches!(o, Open::Block(_))).map(|_| mark('}')));
            out.push(token);
            break;
        }
        if begins {
            begins = false;
            if token.is('{') {
                open.push(Open::Braces);
                out.push(token);
                continue;
            }
            let around = open.iter().rev().find_map(|o| if let Open::Block(c) = o { Some(*c) } else { None });
            out.push(mark('{'));
            if around.is_some_and(|around| token.column < around) {
                // No token is indented far enough to belong to the block, so the block is empty.
                out.push(mark('}'));
            } else {
                open.push(Open::Block(token.column));
                begins = opens_block(&token);
                push(&mut out, &mut open, token);
                continue;
            }
        }
        if token.begins_line {
            while let Some(Open::Block(column)) = open.last() {
                if token.column > *column || continues(&token) && token.column >= *column {
                    break;
                }
                if token.column == *column {
                    out.push(mark(';'));
                    break;
                }
                out.push(mark('}'));
                open.pop();
            }
        }
        close_for(&token, &mut out, &mut open);
        begins = opens_block(&token);
        push(&mut out, &mut open, token);
    }
    out
}

fn opens_block(token: &Token) -> bool {
    token.is_name("do") || token.is_name("of")
}

fn continues(token: &Token) -> bool {
    matches!(&token.kind, Kind::Operator(o) if o != "\\") || ["then", "else", "of"].iter().any(|w| token.is_name(w))
}

fn push(out: &mut Vec<Token>, open: &mut Vec<Open>, token: Token) {
    match &token.kind {
        Kind::Mark('(' | '[') => open.push(Open::Bracket),
        Kind::Mark('{') => open.push(Open::Braces),
        Kind::Name(n) if n == "if" => open.push(Open::If),
        _ => (),
    }
    out.push(token);
}

/// If the token belongs to an enclosing bracket (`,`, `)`, `]`), to braces (`}`) or to an `if` (`then`, `else`), ends
/// the blocks that are open inside this construct.
fn close_for(token: &Token, out: &mut Vec<Token>, open: &mut Vec<Open>) {
    let is_else = token.is_name("else");
    let wanted: fn(&Open) -> bool = match &token.kind {
        Kind::Mark(')' | ']' | ',') => |o| matches!(o, Open::Bracket),
        Kind::Mark('}') => |o| matches!(o, Open::Braces),
        Kind::Name(n) if n == "then" || n == "else" => |o| matches!(o, Open::If),
        _ => return,
    };
    let Some(found) = open.iter().rposition(wanted) else { return };
    let keep = matches!(token.kind, Kind::Mark(',')) || token.is_name("then");
    for o in open.drain(found + 1..) {
        if let Open::Block(_) = o {
            out.push(Token { kind: Kind::Mark('}'), span: token.span.start..token.span.start, ..token.clone() });
        }
    }
    if !keep || is_else {
        open.pop();
    }
}
