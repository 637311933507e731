//! The style of terminal output: line width and colours.

use anstyle::{AnsiColor, Style};
pub use base::units::plural;
use clap::{Args, ColorChoice};
use std::borrow::Cow;
use std::io::{self, IsTerminal};

#[derive(Args, Clone, Copy, Debug)]
pub struct ColorArgs {
    /// When to print colours: on a terminal (unless NO_COLOR is set), always, or never
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

impl ColorArgs {
    /// The colours of standard output.
    pub fn paint(self) -> Paint {
        Paint(match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            // `AutoStream::choice` evaluates NO_COLOR, CLICOLOR, CLICOLOR_FORCE and TERM=dumb.
            ColorChoice::Auto => anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        })
    }
}

#[derive(Args, Clone, Copy, Debug)]
pub struct WidthArgs {
    /// Print all columns, even if the terminal is too narrow for them
    #[arg(long)]
    pub wide: bool,
}

impl WidthArgs {
    /// The maximum length of a line in characters; `None` if the output is not a terminal or all columns are requested.
    pub fn available_width(self) -> Option<usize> {
        if self.wide { None } else { terminal_width() }
    }
}

/// Returns the width of the terminal; `None` if standard output is not a terminal.
pub fn terminal_width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    // A terminal of unknown width has 80 columns, like the terminals that it emulates.
    let width = terminal_size::terminal_size_of(&out).map_or(80, |(width, _)| usize::from(width.0));
    Some(if width == 0 { 80 } else { width })
}

/// The height of the terminal at standard output.
pub fn terminal_height() -> usize {
    let height = terminal_size::terminal_size_of(io::stdout()).map_or(0, |(_, height)| usize::from(height.0));
    if height == 0 { 24 } else { height }
}

/// True if output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint(pub bool);

/// The meaning of a part of a line, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StylePart {
    /// The titles of a table.
    Header,
    /// A part that is similar in every line, such as the time.
    Faint,
    /// Losses, resets, retransmissions.
    Bad,
    /// A condition that the user should notice, such as a gap.
    Notable,
    /// A sparkline.
    Sparkline,
}

impl Paint {
    /// Returns the text with the escape sequences for the colour of `part`.
    pub fn part(self, part: StylePart, text: &str) -> Cow<'_, str> {
        if !self.0 || text.is_empty() {
            return Cow::Borrowed(text);
        }
        let style = match part {
            StylePart::Header => Style::new().bold(),
            StylePart::Faint => Style::new().dimmed(),
            StylePart::Bad => AnsiColor::Red.on_default().bold(),
            StylePart::Notable => AnsiColor::Yellow.on_default(),
            StylePart::Sparkline => AnsiColor::Cyan.on_default(),
        };
        Cow::Owned(format!("{style}{text}{style:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_one_has_a_noun_in_the_singular() {
        assert_eq!([0, 1, 2345].map(|n| plural(n, "row", "rows")), ["0 rows", "1 row", "2 345 rows"]);
    }

    #[test]
    fn colour_codes_enclose_the_text() {
        assert_eq!(Paint(false).part(StylePart::Bad, "lost"), "lost");
        assert_eq!(Paint(true).part(StylePart::Bad, ""), "");
        let painted = Paint(true).part(StylePart::Faint, "10:42");
        assert!(painted.starts_with("\x1b[") && painted.contains("10:42\x1b["), "{painted:?}");
    }
}
