//! Rows and roll-ups on their way out: as a table with curves, as objects, as CSV.

use super::SeriesArgs;
use super::curve::Curve;
use super::gaps::{Gap, Gaps};
use super::table;
use crate::flows::names::Names;
use crate::outcome::Failure;
use crate::packets::outlet::Outlet;
use base::units::{show_count, show_si};
use export::text::{self, Format, Told};
use series::{Direction, Row};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

/// Characters of a curve on a terminal.
const WIDTH: usize = 100;

/// What begins the names of fields that a filter leaves unknown: flows are made of all packets, and gaps in the numbers of a tunnel are
/// gaps in all of them.
const OF_ALL: [&str; 2] = ["flows_", "tunnel_"];

fn is_of_all(name: &str) -> bool {
    OF_ALL.iter().any(|prefix| name.starts_with(prefix))
}

/// See the module.
pub struct Output<T: Told> {
    form: Form<T>,
    gaps: Gaps,
    told: u64,
    curves: BTreeMap<(u16, Direction), Curve>,
    step: u64,
    named: usize,
}

enum Form<T: Told> {
    Table(Outlet, &'static str),
    Objects(text::Writer<T, Outlet>),
    Csv(text::Writer<T, Outlet>),
}

impl<T: Told> Output<T> {
    /// Opens it; `header` stands above a table.
    pub fn begin(args: &SeriesArgs, filtered: bool, header: &'static str) -> Result<Self, Failure> {
        let fields = match &args.fields[..] {
            [] if filtered => Some(T::fields().iter().filter(|field| !is_of_all(&field.name)).collect()),
            [] => None,
            some => Some(text::choose::<T>(&some.join(",")).map_err(|e| Failure::Said(format!("--fields: {e}")))?),
        };
        if let Some(field) = args.fields.iter().find(|name| filtered && is_of_all(name)) {
            let text = match field.starts_with(OF_ALL[0]) {
                true => "packets that match a filter do not tell it; ask `netgrain flows` with the same words",
                false => "packets that match a filter do not tell it; ask without the filter",
            };
            return Err(Failure::Said(format!("--fields: {field}: {text}")));
        }
        let out = Outlet::new(io::stdout());
        let form = match (args.json, args.csv) {
            (true, _) => Form::Objects(text::Writer::new(out, Format::Ndjson, fields)?),
            (_, true) => Form::Csv(text::Writer::new(out, Format::Csv, fields)?),
            _ => Form::Table(out, header),
        };
        Ok(Self { form, gaps: Gaps::default(), told: 0, curves: BTreeMap::new(), step: 1, named: 0 })
    }

    /// Tells one; `row` is where it stands in time, and how much passed.
    pub fn tell(
        &mut self,
        what: &T,
        row: Row,
        step: u64,
        names: &Names,
        line: fn(&T, &Names) -> String,
    ) -> Result<(), Failure> {
        self.step = step;
        let gap = self.gaps.before(&row, step);
        if let Some(gap) = gap {
            self.unknown(gap, &names.interface(row.interface))?;
        }
        match &mut self.form {
            Form::Table(out, header) => {
                let header = if self.told == 0 { format!("{header}\n") } else { String::new() };
                out.write_all(format!("{header}{}\n", line(what, names)).as_bytes())?;
                let bits = row.total.bytes as f64 * 8.0 / step as f64;
                self.curves.entry((row.interface, row.direction)).or_default().push(row.second, bits);
            }
            Form::Objects(out) | Form::Csv(out) => {
                for (number, name) in names.all().iter().skip(self.named) {
                    out.name_interface(*number, name);
                }
                self.named = names.all().len();
                out.write(what)?;
            }
        }
        self.told += 1;
        Ok(())
    }

    fn unknown(&mut self, gap: Gap, interface: &str) -> Result<(), Failure> {
        match &mut self.form {
            Form::Table(out, _) => {
                out.write_all(format!("{}\n", table::gap(gap.from, gap.to, interface)).as_bytes())?
            }
            Form::Objects(out) => {
                let value = serde_json::json!({ "gap": {
                    "interface": interface, "from": table::moment(gap.from), "to": table::moment(gap.to),
                    "seconds": gap.to - gap.from + 1,
                } });
                out.get_mut().write_all(format!("{value}\n").as_bytes())?;
            }
            // A line of CSV says the same as all others: there is none of what is unknown.
            Form::Csv(_) => {}
        }
        Ok(())
    }

    /// Ends the output, on a terminal with the curves; says how many were told.
    pub fn finish(self, names: &Names) -> Result<u64, Failure> {
        match self.form {
            Form::Objects(out) | Form::Csv(out) => _ = out.into_inner().finish()?,
            Form::Table(mut out, _) => {
                if io::stdout().is_terminal() {
                    for ((interface, direction), curve) in &self.curves {
                        let name = format!("{} {}", names.interface(*interface), table::way(*direction));
                        let most = show_si(curve.greatest(), "b/s");
                        out.write_all(format!("{name:<14} {}  to {most}\n", curve.line(self.step, WIDTH)).as_bytes())?;
                    }
                }
                out.finish()?;
                if self.told > 0 {
                    let unknown = match self.gaps.seconds() {
                        0 => String::new(),
                        n => format!(", {} s unknown in between", show_count(n)),
                    };
                    sys::say!("netgrain: {} rows{unknown}", show_count(self.told));
                }
            }
        }
        Ok(self.told)
    }
}
