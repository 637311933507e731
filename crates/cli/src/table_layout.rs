//! Tables that fit a terminal: columns of fixed widths, and the order in which columns are narrowed or omitted on a
//! narrow terminal.

use crate::style::{Paint, StylePart};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its title.
    pub title: &'static str,
    /// Its width in characters.
    pub width: usize,
    pub align: Align,
    /// The title and the width that replace `title` and `width` when the column is narrowed.
    pub narrow: Option<(&'static str, usize)>,
}

/// The alignment of a text in its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    /// Left-aligned; in a fitted table, a text that is too long is cut in its middle, so that an address keeps its end
    /// and port.
    Middle,
    /// Left-aligned with all remaining width, for the last column.
    Rest,
}

/// A change that makes lines shorter, with the index of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Narrow(usize),
    Drop(usize),
}

/// Blanks between two columns.
const BETWEEN: usize = 2;

/// The maximum width of a column that is widened for its texts.
const WIDEST: usize = 32;

/// The minimum width of an [`Align::Rest`] column.
const REST: usize = 16;

/// The shown columns and their widths.
#[derive(Clone, Debug)]
pub struct Layout {
    columns: Vec<Column>,
    shown: Vec<bool>,
    narrow: Vec<bool>,
    steps: Vec<Step>,
    /// The maximum length of a line in characters; `None` for no limit.
    room: Option<usize>,
    paint: Paint,
}

/// The text of a cell and its style.
pub type Cell = (String, Option<StylePart>);

impl Layout {
    /// A layout of all columns. If their lines are longer than `room` characters, the steps, each of which narrows or
    /// omits a column, are applied in order until the lines fit.
    pub fn new(columns: &[Column], steps: &[Step], room: Option<usize>, paint: Paint) -> Self {
        let (columns, steps) = (columns.to_vec(), steps.to_vec());
        let mut layout = Self { columns, shown: Vec::new(), narrow: Vec::new(), steps, room, paint };
        layout.fit();
        layout
    }

    fn fit(&mut self) {
        let all = self.columns.len();
        (self.shown, self.narrow) = (vec![true; all], vec![false; all]);
        for step in self.steps.clone() {
            if self.room.is_none_or(|room| self.width() <= room) {
                break;
            }
            match step {
                Step::Narrow(column) => self.narrow[column] = true,
                Step::Drop(column) => self.shown[column] = false,
            }
        }
    }

    /// Widens a column for texts of at most [`WIDEST`] characters, which are known before the header is printed.
    pub fn widen<'a>(&mut self, column: usize, texts: impl Iterator<Item = &'a str>) {
        let longest = texts.map(|text| text.chars().count()).max().unwrap_or(0);
        let width = &mut self.columns[column].width;
        *width = longest.min(WIDEST).max(*width);
        self.fit();
    }

    /// The width of a column in characters.
    pub fn width_of(&self, column: usize) -> usize {
        self.title_and_width(column).1
    }

    /// True if the column with this index is narrowed.
    pub fn is_narrow(&self, column: usize) -> bool {
        self.narrow[column]
    }

    /// A text that names the omitted columns; `None` if there are none.
    pub fn dropped(&self) -> Option<String> {
        let titles: Vec<&str> =
            self.columns.iter().zip(&self.shown).filter(|(_, shown)| !**shown).map(|(c, _)| c.title).collect();
        (!titles.is_empty()).then(|| left_out(self.room, &titles))
    }

    /// The header line.
    pub fn header(&self) -> String {
        let titles = (0..self.columns.len()).map(|i| (self.title_and_width(i).0.to_owned(), None)).collect();
        self.paint.part(StylePart::Header, &self.text(titles, Paint(false))).into_owned()
    }

    /// Returns a line of the table. `cells` has one cell for each column, also for the columns that are not shown.
    pub fn line(&self, cells: Vec<Cell>) -> String {
        self.text(cells, self.paint)
    }

    fn text(&self, cells: Vec<Cell>, paint: Paint) -> String {
        let (mut line, mut at) = (String::new(), 0);
        let last = self.shown.iter().rposition(|shown| *shown);
        for (i, (text, part)) in cells.into_iter().enumerate().filter(|(i, _)| self.shown[*i]) {
            let (_, width) = self.title_and_width(i);
            let align = self.columns[i].align;
            let text = match (self.room, align) {
                (Some(_), Align::Middle | Align::Left) => cut_middle(text, width),
                (Some(room), Align::Rest) => cut_end(text, room.saturating_sub(at)),
                _ => text,
            };
            let chars = text.chars().count();
            let pad = " ".repeat(if align == Align::Rest { 0 } else { width.saturating_sub(chars) });
            at += chars + pad.len() + BETWEEN;
            let painted = match part {
                Some(part) => paint.part(part, &text).into_owned(),
                None => text,
            };
            match align {
                Align::Right => line.extend([pad, painted]),
                _ => line.extend([painted, pad]),
            }
            if Some(i) != last {
                line.push_str("  ");
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    fn title_and_width(&self, i: usize) -> (&'static str, usize) {
        let column = &self.columns[i];
        match column.narrow {
            Some(narrow) if self.narrow[i] => narrow,
            _ if column.align == Align::Rest => (column.title, column.width.max(REST)),
            _ => (column.title, column.width),
        }
    }

    fn width(&self) -> usize {
        let shown = (0..self.columns.len()).filter(|i| self.shown[*i]);
        shown.map(|i| self.title_and_width(i).1 + BETWEEN).sum::<usize>().saturating_sub(BETWEEN)
    }
}

/// A text which says that the columns with these titles were left out, so that lines have at most `room` characters.
pub fn left_out(room: Option<usize>, titles: &[&str]) -> String {
    let room = room.map(|room| format!(" {room} columns of the terminal")).unwrap_or_default();
    format!("left out to fit the{room}: {}; --wide shows all", titles.join(", "))
}

fn cut_end(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Shortens a text that is longer than `width`: replaces its middle by `…`. The beginning of the text gets one third of
/// the remaining width, the end two thirds.
fn cut_middle(text: String, width: usize) -> String {
    let chars = text.chars().count();
    if chars <= width {
        return text;
    }
    let left = width.saturating_sub(1);
    let head = left / 3;
    let end = text.chars().skip(chars - (left - head));
    text.chars().take(head).chain(['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(title: &'static str, width: usize, align: Align) -> Column {
        Column { title, width, align, narrow: None }
    }

    const COLUMNS: [Column; 4] = [
        Column { narrow: Some(("at", 5)), ..column("time of it", 10, Align::Left) },
        column("host", 12, Align::Middle),
        column("count", 5, Align::Right),
        column("rest", 0, Align::Rest),
    ];
    const STEPS: [Step; 3] = [Step::Narrow(0), Step::Drop(3), Step::Drop(2)];

    fn layout(room: Option<usize>) -> Layout {
        Layout::new(&COLUMNS, &STEPS, room, Paint(false))
    }

    fn cells() -> Vec<Cell> {
        ["10:42", "2001:db8::1234:5678", "17", "all the remaining details of this line"]
            .map(|t| (t.to_owned(), None))
            .into()
    }

    #[test]
    fn without_a_terminal_all_columns_are_printed() {
        let all = layout(None);
        assert_eq!(all.header(), "time of it  host          count  rest");
        assert_eq!(all.line(cells()), "10:42       2001:db8::1234:5678     17  all the remaining details of this line");
        assert_eq!(all.dropped(), None);
    }

    #[test]
    fn a_widened_column_aligns_long_texts_and_the_lines_still_fit() {
        let mut wide = layout(None);
        wide.widen(1, ["2001:db8::1234:5678", "short"].into_iter());
        assert_eq!(wide.header(), "time of it  host                 count  rest");
        assert_eq!(
            wide.line(cells()),
            "10:42       2001:db8::1234:5678     17  all the remaining details of this line"
        );
        let mut narrow = layout(Some(49));
        narrow.widen(1, ["2001:db8::1234:5678"].into_iter());
        assert_eq!(narrow.header(), "at     host                 count");
    }

    #[test]
    fn steps_are_taken_only_until_the_table_fits() {
        for (room, header) in [
            (49, "time of it  host          count  rest"),
            (48, "at     host          count  rest"),
            (44, "at     host          count  rest"),
            (43, "at     host          count"),
            (26, "at     host          count"),
            (25, "at     host"),
            (3, "at     host"),
        ] {
            assert_eq!(layout(Some(room)).header(), header, "{room}");
        }
        let dropped = layout(Some(25)).dropped().expect("two");
        assert!(dropped.contains("25 columns") && dropped.contains("count, rest; --wide"), "{dropped}");
    }

    #[test]
    fn lines_fit_the_room_and_addresses_keep_their_end() {
        for room in 19..90 {
            let line = layout(Some(room)).line(cells());
            assert!(line.chars().count() <= room, "{room}: {line}");
            assert!(line.contains("34:5678") && line.contains('…'), "{room}: {line}");
        }
    }

    #[test]
    fn colours_do_not_change_widths() {
        let painted = Layout::new(&COLUMNS, &STEPS, Some(44), Paint(true));
        let mut cells = cells();
        cells[2].1 = Some(StylePart::Bad);
        let (line, plain) = (painted.line(cells.clone()), layout(Some(44)).line(cells));
        assert_ne!(line, plain);
        assert_eq!(anstream::adapter::strip_str(&line).to_string(), plain);
    }
}
