//! A second, or a step of several seconds, as a line of text.

use crate::flow_records::names::Names;
use crate::style::{Paint, StylePart};
use crate::table_layout::{Align, Cell, Column, Layout, Step};
use crate::zone::Zone;
use base::Timestamp;
use base::units::{show_count, show_si};
use series::{Direction, Rollup, Row};

const fn column(title: &'static str, width: usize) -> Column {
    Column { title, width, align: Align::Right, narrow: None }
}

const fn left(title: &'static str, width: usize) -> Column {
    Column { title, width, align: Align::Left, narrow: None }
}

/// The time is the first column; it is shown as a time of day on a narrow terminal.
const TIME: usize = 0;
/// The column of the interface.
const INTERFACE: usize = 1;
/// The width of a time such as `2026-11-21T10:42:07Z`.
const TIME_WIDTH: usize = 20;
/// The width of a time of day such as `10:42:07`.
const CLOCK_WIDTH: usize = 8;

const fn time(title: &'static str) -> Column {
    Column { title, width: TIME_WIDTH, align: Align::Left, narrow: Some((title, CLOCK_WIDTH)) }
}

const SECONDS: [Column; 11] = [
    time("second"),
    left("interface", 9),
    left("dir", 3),
    column("packets/s", 11),
    column("bits/s", 12),
    column("peak 1 ms", 11),
    column("flows active", 13),
    column("new", 9),
    column("SYN", 9),
    column("sources", 9),
    column("lost", 9),
];

/// The steps by which lines become shorter on a narrow terminal, least important columns first: sources, SYNs, new
/// flows, active flows, peaks, then the columns that distinguish the rows of several interfaces.
const SECONDS_STEPS: [Step; 8] = [
    Step::Narrow(TIME),
    Step::Drop(9),
    Step::Drop(8),
    Step::Drop(7),
    Step::Drop(6),
    Step::Drop(5),
    Step::Drop(2),
    Step::Drop(1),
];

const STEPS: [Column; 11] = [
    time("from"),
    left("interface", 9),
    left("dir", 3),
    column("known", 11),
    column("packets/s", 11),
    column("bits/s: mean", 14),
    column("95 %", 12),
    column("max", 12),
    column("peak 1 ms", 11),
    column("flows new", 12),
    column("lost", 9),
];

/// The steps by which lines of several seconds become shorter on a narrow terminal, in the order of omission: new
/// flows, peaks, percentiles, the maximum, the columns that distinguish interfaces, packets/s. The number of known
/// seconds is omitted last, because the rates are means over these seconds.
const STEPS_STEPS: [Step; 9] = [
    Step::Narrow(TIME),
    Step::Drop(9),
    Step::Drop(8),
    Step::Drop(6),
    Step::Drop(7),
    Step::Drop(2),
    Step::Drop(1),
    Step::Drop(4),
    Step::Drop(3),
];

/// The names of the columns of rows from which the cells of the table and the sparklines are made.
pub fn columns_read() -> Vec<String> {
    let names = ["packets", "bytes", "peak_1ms_bytes", "flows_active", "flows_new", "tcp_syn", "sources"];
    let losses = base::Cause::ALL.iter().map(|cause| format!("lost_{}", cause.name()));
    names.into_iter().map(str::to_owned).chain(losses).collect()
}

/// A type whose values are printed as lines of a table: the row of a second, or the roll-up of a step.
pub trait LineSubject: export::text::FieldTable {
    /// The columns, and the order in which a narrow terminal omits them.
    fn columns() -> (&'static [Column], &'static [Step]);
    /// All cells of a line except its time. With a filter (`filtered`), the numbers of flows are unknown.
    fn cells(&self, names: &Names, filtered: bool) -> Vec<Cell>;
}

impl LineSubject for Row {
    fn columns() -> (&'static [Column], &'static [Step]) {
        (&SECONDS, &SECONDS_STEPS)
    }

    fn cells(&self, names: &Names, filtered: bool) -> Vec<Cell> {
        vec![
            (names.interface(self.interface), None),
            (direction_name(self.direction).to_owned(), None),
            (show_count(self.total.packets), None),
            (bits(self.total.bytes, 1.0), None),
            (bits(self.peak_1ms.bytes, 1000.0), None),
            (flows(self.flows_active, filtered), None),
            (flows(self.flows_new, filtered), None),
            (show_count(self.syn), None),
            (show_count(self.sources), None),
            lost(self),
        ]
    }
}

impl LineSubject for Rollup {
    fn columns() -> (&'static [Column], &'static [Step]) {
        (&STEPS, &STEPS_STEPS)
    }

    fn cells(&self, names: &Names, filtered: bool) -> Vec<Cell> {
        let row = &self.sum;
        let each = |sum: u64| sum as f64 / self.seconds as f64;
        let is_whole = self.seconds == self.step.seconds();
        vec![
            (names.interface(row.interface), None),
            (direction_name(row.direction).to_owned(), None),
            (format!("{}/{} s", self.seconds, self.step.seconds()), (!is_whole).then_some(StylePart::Notable)),
            (show_si(each(row.total.packets), "pps"), None),
            (show_si(each(row.total.bytes) * 8.0, "b/s"), None),
            (bits(self.p95.total.bytes, 1.0), None),
            (bits(self.max.total.bytes, 1.0), None),
            (bits(self.max.peak_1ms.bytes, 1000.0), None),
            (flows(row.flows_new, filtered), None),
            lost(row),
        ]
    }
}

/// Formats rows as the lines of a table.
pub struct Lines {
    layout: Layout,
    paint: Paint,
    zone: Zone,
    /// The date that was last printed above a line; used only in tables whose lines have a time of day without a date.
    date: String,
}

impl Lines {
    /// Prepares a table whose lines have at most `room` characters.
    pub fn new<T: LineSubject>(room: Option<usize>, paint: Paint, zone: &Zone) -> Self {
        let (columns, steps) = T::columns();
        let mut columns = columns.to_vec();
        if *zone != Zone::Utc {
            // A time that ends in `+01:00` is five characters longer than a time that ends in `Z`.
            columns[TIME].width += 5;
        }
        let layout = Layout::new(&columns, steps, room, paint);
        Self { layout, paint, zone: zone.clone(), date: String::new() }
    }

    /// The header line. First widens the column of interfaces to the longest name in `names`.
    pub fn header(&mut self, names: &Names) -> String {
        self.layout.widen(INTERFACE, names.all().iter().map(|(_, name)| name.as_str()));
        self.layout.header()
    }

    /// A text that names the columns that were left out to fit the terminal.
    pub fn dropped(&self) -> Option<String> {
        self.layout.dropped()
    }

    /// Returns the line of one second or step.
    pub fn line<T: LineSubject>(&mut self, subject: &T, second: u64, names: &Names, filtered: bool) -> String {
        let (date, time) = self.time(second);
        let mut cells = vec![(time, Some(StylePart::Faint))];
        cells.extend(subject.cells(names, filtered));
        date + &self.layout.line(cells)
    }

    /// The line of a gap.
    pub fn gap(&mut self, from: u64, to: u64, interface: &str) -> String {
        let (date, begin) = self.time(from);
        // The end of a gap is printed with its date, because the gap may end on another day than it begins.
        let end = self.zone.show_second(Timestamp::from_secs_nanos(to, 0));
        let width = if self.layout.is_narrow(TIME) { CLOCK_WIDTH } else { TIME_WIDTH };
        let name = self.layout.width_of(INTERFACE);
        let text =
            format!("{begin:<width$}  {interface:<name$}  no data for {} s, to {end}", show_count(to - from + 1),);
        date + &self.paint.part(StylePart::Notable, &text)
    }

    /// The time of a second. A line with the date precedes it if the time has no date and the date has changed.
    fn time(&mut self, second: u64) -> (String, String) {
        let at = Timestamp::from_secs_nanos(second, 0);
        if !self.layout.is_narrow(TIME) {
            return (String::new(), self.zone.show_second(at));
        }
        let date = self.zone.show_date(at);
        let above = if date == self.date { String::new() } else { format!("{date}\n") };
        self.date = date;
        (above, self.zone.show_clock(at, 0))
    }
}

/// `2026-11-21T10:42:07Z`.
pub fn moment(second: u64) -> String {
    Zone::Utc.show_second(Timestamp::from_secs_nanos(second, 0))
}

/// The direction as text.
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

fn bits(bytes: u64, scale: f64) -> String {
    show_si(bytes as f64 * 8.0 * scale, "b/s")
}

/// A number of flows as text; `-` if it is unknown.
fn flows(count: u64, filtered: bool) -> String {
    if filtered { "-".to_owned() } else { show_count(count) }
}

fn lost(row: &Row) -> Cell {
    let lost = row.ledger.lost_total();
    (show_count(lost), (lost > 0).then_some(StylePart::Bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_of_an_interface_moves_no_column() {
        let (long, mut names) = ("enp129s0f1np1.4094", Names::default());
        let short = names.number("eth1");
        let long = names.number(long);
        let mut lines = Lines::new::<Row>(None, Paint(false), &Zone::Utc);
        let header = lines.header(&names);
        let of = |interface| Row { interface, ..Row::default() };
        let ends = [short, long].map(|number| lines.line(&of(number), 7, &names, false).len());
        assert_eq!(ends, [header.len(); 2], "{header}");
        assert_eq!(lines.gap(1, 2, "eth1").find("no data"), header.find("dir"), "{header}");
    }

    #[test]
    fn a_narrow_table_of_steps_has_the_number_of_known_seconds() {
        for room in [60, 80] {
            let header = Lines::new::<Rollup>(Some(room), Paint(false), &Zone::Utc).header(&Names::default());
            assert!(header.contains("known") && header.contains("bits/s: mean"), "{room}: {header}");
        }
    }
}
