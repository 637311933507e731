//! Output of rows and steps: a table with sparklines, JSON objects or CSV.

use super::SeriesArgs;
use super::gaps::{Gap, Gaps};
use super::sparkline::{Sparkline, TimeAxis};
use super::table::{self, Lines};
use crate::flow_records::names::Names;
use crate::outcome::{Failure, versioned};
use crate::output::background_writer::BackgroundWriter;
use crate::style::{Paint, StylePart, plural, terminal_width};
use crate::zone::Zone;
use base::units::{show_count, show_si};
use export::text::{self, Format};
use series::{Direction, Row};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The maximum width of a sparkline on a terminal, in characters.
const WIDTH: usize = 100;

/// The minimum number of characters before a sparkline, for interface and direction. Before the axis, the same space
/// contains the date and the zone offset.
const NAME: usize = 17;

/// Number of characters after a sparkline, for the maximum of the series.
const MAX: usize = 16;

/// The prefixes of the names of fields that have no value in a series with a filter. The meter counts flows and missing
/// tunnel sequence numbers for all packets together, not for the packets that match a filter.
const UNKNOWN_WITH_FILTER: [&str; 2] = ["flows_", "tunnel_"];

fn is_unknown_with_filter(name: &str) -> bool {
    UNKNOWN_WITH_FILTER.iter().any(|prefix| name.starts_with(prefix))
}

/// The output; see the module.
pub struct Output<T: table::LineSubject> {
    form: Form<T>,
    filtered: bool,
    zone: Zone,
    paint: Paint,
    gaps: Gaps,
    printed: u64,
    sparklines: BTreeMap<(u16, Direction), Sparkline>,
    step: u64,
    named: usize,
}

enum Form<T: table::LineSubject> {
    Table(BackgroundWriter, Lines),
    Objects(text::Writer<T, BackgroundWriter>),
    Csv(text::Writer<T, BackgroundWriter>),
}

impl<T: table::LineSubject> Output<T> {
    /// Opens the output. In a series with a filter (`filtered`), some fields have no value.
    pub fn begin(args: &SeriesArgs, filtered: bool) -> Result<Self, Failure> {
        let fields = match &args.fields[..] {
            [] if filtered => Some(T::fields().iter().filter(|field| !is_unknown_with_filter(&field.name)).collect()),
            [] => None,
            some => Some(text::choose::<T>(&some.join(",")).map_err(|e| Failure::Said(format!("--fields: {e}")))?),
        };
        if let Some(field) = args.fields.iter().find(|name| filtered && is_unknown_with_filter(name)) {
            let text = match field.starts_with(UNKNOWN_WITH_FILTER[0]) {
                true => "unknown for a series with a filter; use `netgrain flows` with the same filter",
                false => "unknown for a series with a filter; leave the filter out",
            };
            return Err(Failure::Said(format!("--fields: {field}: {text}")));
        }
        let (zone, paint) = (args.when.tz.zone.clone(), args.color.paint());
        let out = BackgroundWriter::new(io::stdout());
        let form = match (args.json, args.csv) {
            (true, _) => Form::Objects(text::Writer::new(out, Format::Ndjson, fields)?),
            (_, true) => Form::Csv(text::Writer::new(out, Format::Csv, fields)?),
            _ => Form::Table(out, Lines::new::<T>(args.width.available_width(), paint, &zone)),
        };
        Ok(Self {
            form,
            filtered,
            zone,
            paint,
            gaps: Gaps::default(),
            printed: 0,
            sparklines: BTreeMap::new(),
            step: 1,
            named: 0,
        })
    }

    /// Writes one row or step. The output has the time of `row`. `step` is the duration of the row or step in seconds;
    /// `known` is the number of seconds in it for which there is data.
    pub fn write(&mut self, subject: &T, row: Row, step: u64, known: u64, names: &Names) -> Result<(), Failure> {
        self.step = step;
        let gap = self.gaps.before(&row, step);
        if let Some(gap) = gap {
            self.write_gap(gap, &names.interface(row.interface))?;
        }
        match &mut self.form {
            Form::Table(out, lines) => {
                let header = if self.printed == 0 { format!("{}\n", lines.header(names)) } else { String::new() };
                let line = lines.line(subject, row.second, names, self.filtered);
                out.write_all(format!("{header}{line}\n").as_bytes())?;
                let sparkline = self.sparklines.entry((row.interface, row.direction)).or_default();
                sparkline.push(row.second, bit_rate(&row, known));
            }
            Form::Objects(out) | Form::Csv(out) => {
                for (number, name) in names.all().iter().skip(self.named) {
                    out.name_interface(*number, name);
                }
                self.named = names.all().len();
                out.write(subject)?;
            }
        }
        self.printed += 1;
        Ok(())
    }

    fn write_gap(&mut self, gap: Gap, interface: &str) -> Result<(), Failure> {
        match &mut self.form {
            Form::Table(out, lines) => {
                out.write_all(format!("{}\n", lines.gap(gap.from, gap.to, interface)).as_bytes())?
            }
            Form::Objects(out) => {
                let value = serde_json::json!({ "gap": {
                    "interface": interface, "from": table::moment(gap.from), "to": table::moment(gap.to),
                    "seconds": gap.to - gap.from + 1,
                } });
                out.get_mut().write_all(format!("{}\n", versioned(value)).as_bytes())?;
            }
            // All lines of a CSV file have the same columns, so a gap has no line; only the missing times show it.
            Form::Csv(_) => {}
        }
        Ok(())
    }

    /// Ends the output, on a terminal with the sparklines; returns the number of rows.
    pub fn finish(self, names: &Names) -> Result<u64, Failure> {
        match self.form {
            Form::Objects(out) | Form::Csv(out) => _ = out.into_inner().finish()?,
            Form::Table(mut out, lines) => {
                if let Some(width) = terminal_width() {
                    let drawing =
                        Drawing { sparklines: &self.sparklines, step: self.step, zone: &self.zone, paint: self.paint };
                    out.write_all(drawing.text(width, names).as_bytes())?;
                }
                out.finish()?;
                if self.printed > 0 {
                    let without_data = match self.gaps.seconds() {
                        0 => String::new(),
                        n => format!(", {} s without data in between", show_count(n)),
                    };
                    sys::say!("netgrain: {}{without_data}", plural(self.printed, "row", "rows"));
                    lines.dropped().iter().for_each(|dropped| sys::say!("netgrain: {dropped}"));
                }
            }
        }
        Ok(self.printed)
    }
}

/// The mean rate in bits per second over those seconds of the step for which there is data.
fn bit_rate(row: &Row, known: u64) -> f64 {
    row.total.bytes as f64 * 8.0 / known.max(1) as f64
}

/// The sparklines of a terminal over one time axis.
struct Drawing<'a> {
    sparklines: &'a BTreeMap<(u16, Direction), Sparkline>,
    /// Duration of a row in seconds.
    step: u64,
    zone: &'a Zone,
    paint: Paint,
}

impl Drawing<'_> {
    /// Returns the lines of the sparklines and of the axis, with at most `width` characters each. Long names make lines
    /// longer.
    fn text(&self, width: usize, names: &Names) -> String {
        let name_of = |(interface, direction): &(u16, Direction)| {
            format!("{} {}", names.interface(*interface), table::direction_name(*direction))
        };
        let name_width = self.sparklines.keys().map(|key| name_of(key).chars().count()).max().unwrap_or(0).max(NAME);
        let room = width.saturating_sub(name_width + 1 + MAX).clamp(10, WIDTH);
        let Some(axis) = TimeAxis::of(self.sparklines.values(), self.step, room) else { return String::new() };
        let mut text = String::new();
        for (key, sparkline) in self.sparklines {
            let name = name_of(key);
            let (line, most) = (sparkline.line(&axis), show_si(sparkline.max(), "b/s"));
            text += &format!("{name:<name_width$} {}  to {most}\n", self.paint.part(StylePart::Sparkline, &line));
        }
        let (rule, labels) = axis.lines(self.zone);
        let each = format!("{} s per character", axis.each());
        text += &format!("{:<name_width$} {rule}  {each}\n", "");
        text += &self.paint.part(StylePart::Faint, &format!("{:<name_width$} {labels}", self.zone_in_words()));
        text.push('\n');
        text
    }

    fn zone_in_words(&self) -> String {
        let second = self.sparklines.values().filter_map(Sparkline::first).min().unwrap_or_default();
        self.zone.show_date(base::Timestamp::from_secs_nanos(second, 0)).chars().take(NAME).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use series::{RollupBuilder, Step, Volume};

    #[test]
    fn the_rate_of_a_step_is_over_its_known_seconds() {
        let mut roller = RollupBuilder::new(Step::Minute);
        for second in 60..70 {
            let row = Row { second, total: Volume { packets: 1, bytes: 1000 }, ..Row::default() };
            assert_eq!(roller.push(&row), None);
        }
        let minute = roller.finish()[0];
        assert_eq!(bit_rate(&minute.sum, minute.seconds), 8000.0);
    }
}
