//! The fields of a series row and of a roll-up: some leading fields, then the table of [`series::quantities`].

use super::{Field, FieldTable, Value};
use base::Timestamp;
use series::{Rollup, Row, quantities};
use std::sync::LazyLock;

/// A statistic of a roll-up: its name, the row in [`Rollup`] that has the values of this statistic for all quantities,
/// and the description of the statistic.
type Part = (&'static str, fn(&Rollup) -> &Row, &'static str);

const PARTS: [Part; 4] = [
    ("sum", |rollup| &rollup.sum, "sum of"),
    ("min", |rollup| &rollup.min, "minimum of"),
    ("max", |rollup| &rollup.max, "maximum of"),
    ("p95", |rollup| &rollup.p95, "95th percentile (nearest rank) of"),
];

impl FieldTable for Row {
    const ITEM_NAME: &'static str = "a second";

    fn fields() -> &'static [Field<Self>] {
        static ALL: LazyLock<Vec<Field<Row>>> = LazyLock::new(|| {
            let mut all = vec![
                Field::new("second", "s", "the second that the row describes, since 1970 (UTC)", |row: &Row| {
                    Value::Number(row.second)
                }),
                Field::new("time", "", "begin of the row as text (RFC 3339)", |row: &Row| time(row.second)),
                Field::new("interface", "", "name of the interface", |row: &Row| Value::Interface(row.interface)),
                Field::new("direction", "", "`in` or `out`, seen from the host", |row: &Row| {
                    Value::Word(row.direction.name())
                }),
            ];
            all.extend(quantities().iter().map(|quantity| {
                Field::new(quantity.name.as_ref(), quantity.unit, quantity.description.as_ref(), |row: &Row| {
                    Value::Number(quantity.of(row))
                })
            }));
            all
        });
        &ALL
    }
}

impl FieldTable for Rollup {
    const ITEM_NAME: &'static str = "a roll-up";

    fn fields() -> &'static [Field<Self>] {
        static ALL: LazyLock<Vec<Field<Rollup>>> = LazyLock::new(|| {
            let mut all = vec![
                Field::new("second", "s", "first second of the step, since 1970 (UTC)", |rollup: &Rollup| {
                    Value::Number(rollup.start())
                }),
                Field::new("time", "", "begin of the row as text (RFC 3339)", |rollup: &Rollup| time(rollup.start())),
                Field::new("interface", "", "name of the interface", |rollup: &Rollup| {
                    Value::Interface(rollup.sum.interface)
                }),
                Field::new("direction", "", "`in` or `out`, seen from the host", |rollup: &Rollup| {
                    Value::Word(rollup.sum.direction.name())
                }),
                Field::new("step", "", "length of the step: `1min`, `5min` or `1h`", |rollup: &Rollup| {
                    Value::Word(rollup.step.name())
                }),
                Field::new("seconds", "s", "known seconds of the step: seconds with a row", |rollup: &Rollup| {
                    Value::Number(rollup.seconds)
                }),
            ];
            for quantity in quantities() {
                for (suffix, part, what) in PARTS {
                    let name = format!("{}_{suffix}", quantity.name);
                    let meaning = format!("{what} `{}` over the known seconds of the step", quantity.name);
                    all.push(Field::new(name, quantity.unit, meaning, move |rollup: &Rollup| {
                        Value::Number(quantity.of(part(rollup)))
                    }));
                }
            }
            all
        });
        &ALL
    }
}

fn time(second: u64) -> Value<'static> {
    Value::Time(Timestamp::from_secs_nanos(second, 0))
}
