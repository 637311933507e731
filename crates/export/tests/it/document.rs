//! docs/reference/export.md agrees with the tables of the code.

use netgrain_export::document::tables;
use netgrain_export::{MESSAGE_MAX, MESSAGE_UDP, QUEUE, Refresh};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/export.md"))
        .expect("the page is there")
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let page = page();
    let (_, rest) = page.split_once("<!-- elements -->").expect("the first marker");
    let (current, _) = rest.split_once("<!-- /elements -->").expect("the second marker");
    assert!(
        current.trim() == tables().trim(),
        "copy the output of `cargo run -p netgrain-export --example elements` between the markers of \
         docs/reference/export.md"
    );
}

#[test]
fn the_page_has_the_numbers_of_the_code() {
    let page = page();
    let refresh = Refresh::default();
    for number in [
        format!("{MESSAGE_UDP} bytes"),
        format!("{MESSAGE_MAX} bytes"),
        format!("{QUEUE} records"),
        format!("every {} s", refresh.every.as_secs()),
        format!("{} messages", refresh.messages),
    ] {
        assert!(page.contains(&number), "docs/reference/export.md does not contain {number:?}");
    }
}

#[test]
fn no_element_is_listed_twice() {
    let tables = tables();
    for table in tables.split("###") {
        // All lists share the element basicList.
        let mut numbers: Vec<&str> =
            table.lines().filter_map(|l| l.strip_prefix("| ")?.split(" |").next()).filter(|n| *n != "291").collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "{table}");
    }
}
