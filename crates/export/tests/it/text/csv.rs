//! CSV, read by Python's csv module, which follows RFC 4180 and shares no code with the writer.

use super::random;
use base::Prng;
use netgrain_export::text::{FieldTable, Format, Value, Writer};
use std::path::Path;
use std::process::Command;

const AWKWARD: &str = "tap \"0\", up\r\n;é";

/// Reads the file strictly and prints each line as a JSON array of texts.
const READER: &str = "
import csv, json, sys
with open(sys.argv[1], newline='', encoding='utf-8') as file:
    for line in csv.reader(file, strict=True):
        print(json.dumps(line))
";

fn round_trip<T: FieldTable>(items: &[T], path: &Path, mut python: Command) {
    let mut writer = Writer::new(Vec::new(), Format::Csv, None).expect("memory");
    writer.name_interface(1, AWKWARD);
    items.iter().for_each(|item| writer.write(item).expect("memory"));
    let text = writer.into_inner();
    assert!(text.ends_with(b"\r\n"));
    std::fs::write(path, &text).expect("a file");
    let out = python.args(["-c", READER]).arg(path).output().expect("python runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = String::from_utf8(out.stdout).expect("UTF-8");
    let lines: Vec<Vec<String>> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines[0].iter().eq(T::fields().iter().map(|field| field.name.as_ref())));
    assert_eq!(lines.len(), items.len() + 1);
    for (item, line) in items.iter().zip(&lines[1..]) {
        assert_eq!(line.len(), T::fields().len());
        for (field, got) in T::fields().iter().zip(line) {
            let (value, mut expected) = (field.of(item), Vec::new());
            value.plain(matches!(value, Value::Interface(1)).then_some(AWKWARD), &mut expected);
            assert_eq!(got.as_bytes(), expected, "{}", field.name);
        }
    }
}

#[test]
fn random_items_survive_csv() {
    const NAME: &str = "random_items_survive_csv";
    let directory = testkit::TempDir::new(NAME);
    let mut prng = Prng::new(testkit::seed(NAME));
    let path = directory.join("items.csv");
    let Some(python) = testkit::tool(NAME, "python3") else { return };
    round_trip(&(0..300).map(|_| random::record(&mut prng)).collect::<Vec<_>>(), &path, python);
    let Some(python) = testkit::tool(NAME, "python3") else { return };
    round_trip(&(0..100).map(|_| random::row(&mut prng)).collect::<Vec<_>>(), &path, python);
    let Some(python) = testkit::tool(NAME, "python3") else { return };
    round_trip(&(0..20).map(|_| random::rollup(&mut prng)).collect::<Vec<_>>(), &path, python);
}
