//! The tables of the documentation equal those of the code. With `NETGRAIN_WRITE_DOCS=1` the tests write the tables
//! instead of comparing them.

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
    assert!(
        written == table,
        "the table in docs/{file} differs from the code; run this test with NETGRAIN_WRITE_DOCS=1"
    );
}

#[test]
fn the_flow_record_page_lists_the_fields_of_a_record() {
    compare::<Record>("reference/flow-records.md");
}

#[test]
fn the_time_series_page_lists_the_fields_of_a_row() {
    compare::<Row>("reference/time-series.md");
}
