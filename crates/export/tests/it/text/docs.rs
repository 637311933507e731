//! The tables of the documentation are those of the code. With `NETGRAIN_WRITE_DOCS=1` they are written instead of
//! compared.

use flow::Record;
use netgrain_export::text::FieldTable;
use series::Row;
use std::path::Path;

const BEGIN: &str = "<!-- fields -->\n";
const END: &str = "<!-- /fields -->";

fn table<T: FieldTable>() -> String {
    let mut table = String::from("| name | unit | meaning |\n|---|---|---|\n");
    for field in T::fields() {
        table += &format!("| `{}` | {} | {} |\n", field.name, field.unit, field.meaning);
    }
    table
}

fn compare<T: FieldTable>(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let text = std::fs::read_to_string(&path).expect("the documentation");
    let (before, rest) = text.split_once(BEGIN).expect("a table begins");
    let (written, after) = rest.split_once(END).expect("and ends");
    let table = table::<T>();
    if written != table && std::env::var_os("NETGRAIN_WRITE_DOCS").is_some() {
        return std::fs::write(&path, [before, BEGIN, &table, END, after].concat())
            .expect("a file that can be written");
    }
    assert!(written == table, "docs/{file} is not what the code says; run this test with NETGRAIN_WRITE_DOCS=1");
}

#[test]
fn docs_flows_is_what_a_record_tells() {
    compare::<Record>("reference/flow-records.md");
}

#[test]
fn docs_series_is_what_a_row_tells() {
    compare::<Row>("reference/time-series.md");
}
