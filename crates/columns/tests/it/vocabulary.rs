//! Tests that files have the column names of `flow::schema` and `series::quantities`, and nulls only where these tables
//! permit them. The table in `docs/reference/parquet.md` is generated from both tables. With `NETGRAIN_WRITE_DOCS=1`
//! the test writes the table in the page instead of comparing it.

use crate::common;

use flow::schema::{self, FieldOutputs};
use netgrain_columns::{Config, DataFileKind, Writer, files, write_flows};
use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::Type;
use series::Row;
use std::fs::File;
use std::path::Path;
use testkit::TempDir;

/// Three files: flow records of a store, rows of a store, and flow records outside of a store.
fn kept() -> (TempDir, [SerializedFileReader<File>; 3]) {
    let dir = TempDir::new("columns-vocabulary");
    let mut site = common::TrafficModel::new(4, 1000.0);
    let records: Vec<_> = (0..500).map(|_| site.record()).collect();
    let mut writer = Writer::new(Config { wait_when_full: true, ..Config::new(dir.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.row(&Row { second: common::START, ..Row::default() });
    writer.finish();
    let given = dir.join("given.parquet");
    let out = File::create(&given).expect("a file");
    write_flows(out, &mut records.into_iter(), &|| vec![(0, "eth1".into())]).expect("written");
    let kept = |kind| files(dir.path(), "eth1", kind).expect("a listing").remove(0).path;
    let open = |path: &Path| SerializedFileReader::new(File::open(path).expect("a file")).expect("Parquet");
    let readers = [open(&kept(DataFileKind::Flows)), open(&kept(DataFileKind::Series)), open(&given)];
    (dir, readers)
}

fn columns(file: &SerializedFileReader<File>) -> Vec<std::sync::Arc<Type>> {
    file.metadata().file_metadata().schema().get_fields().to_vec()
}

fn is_optional(column: &Type) -> bool {
    column.get_basic_info().repetition() == Repetition::OPTIONAL
}

/// The name of a type as in SQL.
fn type_name(column: &Type) -> String {
    let logical = column.get_basic_info().logical_type_ref();
    let physical = |column: &Type| match column.get_physical_type() {
        Physical::INT32 => "int32",
        Physical::INT64 => "int64",
        _ => "bytes",
    };
    match logical {
        Some(LogicalType::List) => {
            let element = &column.get_fields()[0].get_fields()[0];
            format!("list of {}", physical(element))
        }
        Some(LogicalType::String) => "text".into(),
        Some(LogicalType::Timestamp { .. }) => "timestamp (µs, UTC)".into(),
        Some(LogicalType::Decimal { .. }) => "decimal(38,0)".into(),
        Some(LogicalType::Integer { .. }) => format!("u{}", physical(column)),
        _ => physical(column).into(),
    }
}

#[test]
fn files_have_the_fields_of_the_field_table_and_only_its_nulls() {
    let (_dir, [kept, _, given]) = kept();
    let names = |file| columns(file).iter().map(|c| c.name().to_owned()).collect::<std::collections::BTreeSet<_>>();
    let wanted = |which: &dyn Fn(FieldOutputs) -> bool| {
        schema::fields().iter().filter(|f| which(f.outputs)).map(|f| f.name.to_string()).collect()
    };
    assert_eq!(
        names(&kept),
        wanted(&|reported| matches!(reported, FieldOutputs::TextAndColumns | FieldOutputs::ColumnsOnly))
    );
    assert_eq!(names(&given), wanted(&FieldOutputs::is_column));
    for column in columns(&given) {
        let field = schema::field(column.name()).expect("a field");
        assert_eq!(is_optional(&column), !field.null_when.is_empty(), "{}: {:?}", column.name(), field.null_when);
    }
}

#[test]
fn rows_have_the_quantities_of_the_quantity_table_and_no_null() {
    let (_dir, [_, rows, _]) = kept();
    let columns = columns(&rows);
    let names: Vec<&str> = columns.iter().map(|c| c.name()).collect();
    let quantities = series::quantities().iter().map(|quantity| &*quantity.name);
    let head = ["second", "time", "interface_id", "direction"];
    assert_eq!(names, head.into_iter().chain(quantities).chain(["interface"]).collect::<Vec<_>>());
    let optional: Vec<&str> = columns.iter().filter(|c| is_optional(c)).map(|c| c.name()).collect();
    assert_eq!(optional, ["interface"]);
}

#[test]
fn pages_use_encodings_that_readers_of_2021_support() {
    let (_dir, files) = kept();
    for file in files {
        for column in file.metadata().row_groups().iter().flat_map(|group| group.columns()) {
            for encoding in column.encodings() {
                let is_old = matches!(encoding, Encoding::PLAIN | Encoding::RLE | Encoding::RLE_DICTIONARY);
                assert!(is_old, "{} has {encoding}", column.column_path());
            }
        }
    }
}

#[test]
fn the_parquet_reference_page_lists_the_columns_of_the_files() {
    const BEGIN: &str = "<!-- columns -->\n";
    const END: &str = "<!-- /columns -->";
    let (_dir, [_, _, given]) = kept();
    let mut table = String::from("| column | type | unit | description | null values |\n|---|---|---|---|---|\n");
    for column in columns(&given) {
        let field = schema::field(column.name()).expect("a field");
        let given =
            if field.outputs == FieldOutputs::TextAndExportedColumns { " (files of `--parquet` only)" } else { "" };
        let nulls = match field.null_when {
            "" => "never null".to_owned(),
            condition => format!("null if {condition}"),
        };
        let kind = type_name(&column);
        table += &format!("| `{}` | {kind} | {} | {}{given} | {nulls} |\n", field.name, field.unit, field.description);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/parquet.md");
    let text = std::fs::read_to_string(&path).expect("the documentation");
    let (before, rest) = text.split_once(BEGIN).expect("a table begins");
    let (written, after) = rest.split_once(END).expect("and ends");
    if written != table && std::env::var_os("NETGRAIN_WRITE_DOCS").is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).expect("written");
        return;
    }
    assert!(
        written == table,
        "the table in docs/reference/parquet.md differs from the files; run this test with NETGRAIN_WRITE_DOCS=1"
    );
}
