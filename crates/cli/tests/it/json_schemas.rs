//! The documents of `--json` match the schemas in `docs/reference/schemas`, and `docs/reference/json.md` is generated
//! from the schemas. With `NETGRAIN_WRITE_DOCS=1` the tests write the page and the descriptions of records and rows
//! instead of comparing them.

use crate::common;

use common::{Output, arg, objects, run};
use export::text::{FieldTable, SCHEMA_VERSION};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use testkit::TempDir;

/// All schemas by name; a name is that of the file without `.schema.json`.
fn schemas() -> BTreeMap<String, Value> {
    let read = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".schema.json"));
        let text = std::fs::read_to_string(&path).expect("a schema");
        (name.expect("a name").to_owned(), serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path:?}: {e}")))
    };
    let files = std::fs::read_dir(docs().join("schemas")).expect("the schemas");
    files.map(|file| read(file.expect("a file").path())).collect()
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

fn is_write_requested() -> bool {
    std::env::var_os("NETGRAIN_WRITE_DOCS").is_some()
}

/// The keywords of JSON Schema that our schemas use. If a schema contains another keyword, this is a violation, because
/// the validator would ignore the keyword.
const KEYWORDS: [&str; 16] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "anyOf",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minimum",
    "minItems",
];

/// Compares JSON values with one schema file.
struct Validator<'a> {
    root: &'a Value,
    violations: Vec<String>,
}

impl Validator<'_> {
    fn violation(&mut self, at: &str, text: impl AsRef<str>) {
        self.violations.push(format!("{at}: {}", text.as_ref()));
    }

    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        let empty = serde_json::Map::new();
        let keywords = schema.as_object().unwrap_or(&empty);
        for keyword in keywords.keys().filter(|k| !KEYWORDS.contains(&k.as_str()) && *k != "maxItems") {
            self.violation(at, format!("the schema has the unknown keyword {keyword}"));
        }
        if let Some(target) = schema["$ref"].as_str() {
            let target = self.root.pointer(target.trim_start_matches('#')).unwrap_or_else(|| panic!("{target}"));
            self.check(target, value, at);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let fits = |choice: &&Value| {
                let mut inner = Validator { root: self.root, violations: Vec::new() };
                inner.check(choice, value, at);
                inner.violations.is_empty()
            };
            if choices.iter().find(fits).is_none() {
                // The value matches no alternative of the schema. The violations of the first alternative are more
                // informative than a message that no alternative matches.
                self.check(&choices[0], value, at);
            }
        }
        if keywords.get("const").is_some_and(|c| c != value)
            || schema["enum"].as_array().is_some_and(|all| !all.contains(value))
        {
            self.violation(at, format!("{value} is not permitted"));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|of| is_of_type(value, of)) {
            self.violation(at, format!("{value} is not of type {types:?}"));
        }
        if let (Some(minimum), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
            && number < minimum
        {
            self.violation(at, format!("{number} is below {minimum}"));
        }
        if let Value::Array(items) = value {
            let len = items.len() as u64;
            if schema["minItems"].as_u64().is_some_and(|n| len < n)
                || schema["maxItems"].as_u64().is_some_and(|n| len > n)
            {
                self.violation(at, format!("{len} items"));
            }
            if keywords.contains_key("items") {
                items.iter().for_each(|item| self.check(&schema["items"], item, &format!("{at}[]")));
            }
        }
        if let Value::Object(object) = value {
            for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !object.contains_key(key) {
                    self.violation(at, format!("the key {key} is missing"));
                }
            }
            for (key, value) in object {
                match (&schema["properties"][key], &schema["additionalProperties"]) {
                    (Value::Null, Value::Bool(false)) => {
                        self.violation(at, format!("the key {key} is not in the schema"))
                    }
                    (Value::Null, Value::Object(_)) => {
                        self.check(&schema["additionalProperties"], value, &format!("{at}.{key}"));
                    }
                    (Value::Null, _) => {}
                    (property, _) => self.check(property, value, &format!("{at}.{key}")),
                }
            }
        }
    }
}

fn is_of_type(value: &Value, of: &str) -> bool {
    match of {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schema has the unknown type {other}"),
    }
}

fn violations(schema: &Value, document: &Value) -> Vec<String> {
    let mut validator = Validator { root: schema, violations: Vec::new() };
    validator.check(schema, document, "");
    validator.violations
}

/// Validates documents and collects the names of their schemas.
struct Documents {
    schemas: BTreeMap<String, Value>,
    seen: BTreeSet<String>,
}

impl Documents {
    fn validate(&mut self, name: &str, documents: &[Value]) {
        assert!(!documents.is_empty(), "no document {name}");
        let schema = self.schemas.get(name).unwrap_or_else(|| panic!("no schema {name}"));
        for document in documents {
            let found = violations(schema, document);
            assert!(found.is_empty(), "{name}.schema.json: {found:#?}\n{document}");
            assert_eq!(document["schema_version"], SCHEMA_VERSION, "{document}");
        }
        self.seen.insert(name.to_owned());
    }

    /// Validates each document with the schema of the first pair whose key the document has. A pair with the key "", at
    /// the end of the list, matches every other document.
    fn validate_by_key(&mut self, output: &Output, kinds: &[(&str, &str)]) {
        for document in objects(&output.out) {
            let kind = kinds.iter().find(|(key, _)| key.is_empty() || document.get(key).is_some());
            let (_, name) = kind.unwrap_or_else(|| panic!("a document without a schema: {document}"));
            self.validate(name, &[document]);
        }
    }
}

/// Asserts that a document matches the schema with this name.
#[track_caller]
pub fn assert_valid(name: &str, document: &Value) {
    let found = violations(&schemas()[name], document);
    assert!(found.is_empty(), "{name}.schema.json: {found:#?}\n{document}");
}

/// The JSON objects on standard error; the other lines are messages.
fn objects_of_stderr(output: &Output) -> Vec<Value> {
    output
        .err
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

const CAPTURE: [(&str, &str); 3] = [("live", "capture-live"), ("report", "capture-report"), ("event", "capture-event")];

#[test]
fn every_document_matches_its_schema() {
    let dir = TempDir::new("json-schemas");
    let mut all = Documents { schemas: schemas(), seen: BTreeSet::new() };
    let capture = dir.join("one.pcap");
    let generated = run(&["gen", "-w", arg(&capture), "imix,flows=300,rate=1kpps,packets=3000", "--json"]);
    all.validate("gen", &objects(&generated.out));
    let truth = dir.join("truth.json");
    let tcp =
        ["gen", "-w", arg(&dir.join("tcp.pcap")), "tcp,total=20,think=10ms", "--truth", arg(&truth)].map(str::to_owned);
    assert_eq!(run(&tcp.each_ref().map(String::as_str)).status, Some(0));
    all.validate("conversation-truth", &objects(&std::fs::read_to_string(&truth).expect("a file")));
    all.validate("check", &objects(&run(&["check", arg(&capture), "--json"]).out));
    let (train, single) = (dir.join("train.pcap"), dir.join("one-packet.pcap"));
    all.validate("gen-trains", &objects(&run(&["gen", "-w", arg(&train), "train,bursts=3", "--json"]).out));
    all.validate("owd", &objects(&run(&["owd", "-r", arg(&train), "--json", "--clock", "5us"]).out));
    let one = run(&["gen", "-w", arg(&single), "train,per-burst=1", "--json"]);
    all.validate("gen-trains", &objects(&one.out));
    let (reflector, err, address) = common::stamp_reflector(&["--packets", "3"]);
    let stamp = ["stamp", "send", &address, "--count", "3", "--interval", "1ms", "--json"];
    all.validate("stamp-send", &objects(&run(&stamp).out));
    all.validate("stamp-reflect", &objects(&reflector.end(err).out));
    let unanswered = ["stamp", "send", &address, "--count", "1", "--wait", "10ms", "--json"];
    all.validate("stamp-send", &objects(&run(&unanswered).out));
    all.validate("owd", &objects(&run(&["owd", "-r", arg(&single), "--json", "--session", "1", "--sent", "7"]).out));
    let (recorded, store, archive) = (dir.join("recorded"), dir.join("store"), dir.join("archive"));
    // A simulation that lasts longer than a second prints at least one status object.
    let sim = ["--sim", "imix,flows=50,rate=1kpps,duration=1500ms", "--name", "s", "--keep-free", "1%", "--json"];
    all.validate_by_key(&run(&[&["record", "--store", arg(&recorded)], &sim[..]].concat()), &CAPTURE);
    let replay = ["run", "-r", arg(&capture), "--store", arg(&store), "--name", "a", "--json"];
    all.validate_by_key(&run(&replay), &CAPTURE);
    let store_of = ["--store", arg(&store), "-i", "a", "--json"];
    let query = |verb: &[&str]| run(&[verb, &store_of[..]].concat());
    all.validate("flow-record", &objects(&query(&["flows"]).out));
    all.validate("flows-explain", &objects_of_stderr(&query(&["flows", "--explain"])));
    for ranking in [&["--top", "3"][..], &["--group", "src,dport,proto,tunnel,vlan"], &["--group", "flow"]] {
        all.validate("flow-ranking", &objects(&query(&[&["flows"], ranking].concat()).out));
    }
    all.validate_by_key(&query(&["series"]), &[("gap", "series-gap"), ("", "series-row")]);
    all.validate_by_key(&query(&["series", "--step", "1min"]), &[("gap", "series-gap"), ("", "series-rollup")]);
    all.validate("packet", &objects(&query(&["packets"]).out));
    all.validate("packets-count", &objects(&query(&["packets", "--count"]).out));
    all.validate("packets-count", &objects(&query(&["packets", "-w", arg(&dir.join("out.pcap"))]).out));
    all.validate("packets-explain", &objects_of_stderr(&query(&["packets", "--explain"])));
    all.validate(
        "convert",
        &objects(&run(&["convert", arg(&capture), "-w", arg(&dir.join("c.pcapng")), "--json"]).out),
    );
    let series = super::alarms::flood(&dir);
    let test = run(&["alarms", "test", "--csv", arg(&series), "--value", "packets", "--json"]);
    all.validate_by_key(&test, &[("event", "alarm-event"), ("", "alarms-totals")]);
    let days = super::alarms::days(&dir);
    let long = ["alarms", "test", "--csv", arg(&days), "--value", "packets", "--detector", "long-term", "--json"];
    all.validate("long-term-changes", &objects(&run(&long).out));
    all.validate("dedup", &objects(&run(&["dedup", arg(&capture), "--report", "--json"]).out));
    all.validate("index", &objects(&run(&["index", arg(&capture), "--json"]).out));
    all.validate_by_key(
        &run(&["doctor", "--json", "--store", arg(&store)]),
        &[("summary", "doctor-summary"), ("", "doctor-finding")],
    );
    let retain = ["retain", "--store", arg(&store), "-i", "a", "--max-size", "1", "--archive", arg(&archive), "--json"];
    std::fs::create_dir_all(&archive).expect("a directory");
    let program = ["-e", "main = ip >-> when is_tcp (mark 4) >-> steer_flow", "--json"];
    all.validate("lang-check", &objects(&run(&[&["lang", "check"], &program[..]].concat()).out));
    all.validate("lang-check", &objects(&run(&["lang", "check", "-e", "main = nothing", "--json"]).out));
    all.validate("lang-explain", &objects(&run(&[&["lang", "explain"], &program[..]].concat()).out));
    all.validate("lang-run", &objects(&run(&[&["lang", "run", "-r", arg(&capture)], &program[..]].concat()).out));
    damage(&store);
    let kinds = [("finding", "verify-finding"), ("verified", "verify-totals")];
    all.validate_by_key(&run(&["verify", "--json", arg(&store)]), &kinds);
    all.validate("repair", &objects(&run(&["repair", "--json", arg(&store)]).out));
    let _ = run(&retain);
    // Documents about changes of the machine's settings are validated in the tests of doctor, and those of the verb
    // `replay` in its tests, because it needs an interface. A replay of one capture without pauses makes a series
    // without a gap, so no document about a gap is printed.
    let unseen: Vec<_> = all.schemas.keys().filter(|name| !all.seen.contains(*name)).map(String::as_str).collect();
    let without_document: BTreeSet<_> =
        ["doctor-change", "series-gap", "capture-event", "replay", "replay-status"].into();
    assert!(unseen.iter().all(|name| without_document.contains(name)), "schemas without a document: {unseen:?}");
}

/// Flips a byte in the first packet file of a store.
fn damage(store: &Path) {
    let files = common::walk(store);
    let file = files.iter().find(|file| file.extension().is_some_and(|e| e == "pcap")).expect("a packet file");
    let mut bytes = std::fs::read(file).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(file, bytes).expect("a writable file");
}

/// Real captures contain packets that the generator does not make: VLAN tags, ICMP, ARP, fragments, tunnels.
#[test]
fn documents_of_real_captures_match_their_schemas() {
    let Some(traces) = testkit::traces("documents_of_real_captures_match_their_schemas") else { return };
    let mut all = Documents { schemas: schemas(), seen: BTreeSet::new() };
    let small = |file: &PathBuf| file.metadata().is_ok_and(|m| m.len() < 20_000);
    let captures = common::walk(&traces).into_iter().filter(|f| f.extension().is_some_and(|e| e == "pcap") && small(f));
    for capture in captures.take(40) {
        let query = |verb: &str| run(&[verb, "-r", arg(&capture), "--json"]);
        all.validate_by_key(&query("packets"), &[("", "packet")]);
        all.validate_by_key(&query("flows"), &[("", "flow-record")]);
        all.validate_by_key(&query("series"), &[("gap", "series-gap"), ("", "series-row")]);
    }
    assert!(["packet", "flow-record", "series-row"].iter().all(|name| all.seen.contains(*name)));
}

#[test]
fn a_document_with_an_unknown_or_missing_key_is_a_violation() {
    let schemas = schemas();
    let schema = &schemas["gen"];
    let good = serde_json::json!({"schema_version": 1, "made": 1, "sent": 1, "dropped": 0, "bytes": 60, "nanos": 1});
    assert!(violations(schema, &good).is_empty());
    for key in good.as_object().expect("an object").keys() {
        let mut less = good.clone();
        less.as_object_mut().expect("an object").remove(key);
        assert_eq!(violations(schema, &less).len(), 1, "{key}");
        let mut other = good.clone();
        other[key] = "text".into();
        assert_eq!(violations(schema, &other).len(), 1, "{key}");
    }
    let mut more = good.clone();
    more["colour"] = 1.into();
    assert_eq!(violations(schema, &more), [": the key colour is not in the schema"]);
}

/// Calls `visit` with every object schema below this one.
fn objects_below(schema: &Value, at: &str, visit: &mut impl FnMut(&str, &Value)) {
    match schema {
        Value::Object(keywords) => {
            if schema["properties"].is_object() {
                visit(at, schema);
            }
            for (key, inner) in keywords {
                objects_below(inner, &format!("{at}/{key}"), visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| objects_below(inner, at, visit)),
        _ => {}
    }
}

#[test]
fn schemas_describe_every_key_and_permit_no_other_key() {
    for (name, schema) in schemas() {
        objects_below(&schema, &name, &mut |at, object| {
            assert_eq!(object["additionalProperties"], false, "{at}");
            for (key, property) in object["properties"].as_object().expect("keys") {
                assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{at}: {key}");
            }
            for key in object["required"].as_array().expect("required keys").iter().filter_map(Value::as_str) {
                assert!(object["properties"].get(key).is_some(), "{at}: {key} is required but has no property");
            }
        });
        assert_eq!(schema["properties"]["schema_version"]["const"], SCHEMA_VERSION, "{name}");
    }
}

/// Compares the properties of a schema of records or rows with the table of their fields.
fn compare<T: FieldTable>(name: &str) {
    let mut schema = schemas().remove(name).expect("a schema");
    let properties = schema["properties"].as_object_mut().expect("keys");
    let keys: BTreeSet<&str> = properties.keys().map(String::as_str).filter(|key| *key != "schema_version").collect();
    let fields: BTreeSet<&str> = T::fields().iter().map(|field| &*field.name).collect();
    assert_eq!(keys, fields, "{name}.schema.json");
    let mut differ = false;
    for field in T::fields() {
        let unit = if field.unit.is_empty() { String::new() } else { format!(" ({})", field.unit) };
        let description = Value::from(format!("{}{unit}", field.meaning));
        let property = &mut properties[&*field.name]["description"];
        differ |= *property != description;
        *property = description;
    }
    if differ && is_write_requested() {
        let text = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
        return std::fs::write(docs().join(format!("schemas/{name}.schema.json")), text).expect("a writable file");
    }
    assert!(
        !differ,
        "{name}.schema.json has other descriptions than the field table; run this test with NETGRAIN_WRITE_DOCS=1"
    );
}

#[test]
fn records_and_rows_have_the_fields_of_their_tables() {
    compare::<flow::Record>("flow-record");
    compare::<series::Row>("series-row");
    compare::<series::Rollup>("series-rollup");
}

fn type_in_words(property: &Value) -> String {
    if let Some(target) = property["$ref"].as_str() {
        return format!("object `{}`", target.rsplit('/').next().unwrap_or_default());
    }
    if let Some(choices) = property["anyOf"].as_array() {
        return choices.iter().map(type_in_words).collect::<Vec<_>>().join(" or ");
    }
    if let Some(all) = property["enum"].as_array() {
        return all.iter().filter_map(Value::as_str).map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
    }
    match &property["type"] {
        Value::String(of) if of == "array" => format!("list of {}", type_in_words(&property["items"])),
        Value::String(of) if of == "object" && property["additionalProperties"].is_object() => {
            "object of integers".into()
        }
        Value::String(of) => of.clone(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ if property.get("const").is_some() => format!("`{}`", property["const"]),
        _ => "any value".into(),
    }
}

/// Table rows of the keys of an object; the keys of a nested object follow the key that contains it.
fn rows(object: &Value, prefix: &str, out: &mut String) {
    let required: Vec<&str> = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, property) in object["properties"].as_object().into_iter().flatten() {
        let optional = if required.contains(&key.as_str()) { "" } else { " *" };
        let (of, text) = (type_in_words(property), property["description"].as_str().unwrap_or_default());
        let text = text.replace('|', "\\|");
        let _ = writeln!(out, "| `{prefix}{key}`{optional} | {of} | {text} |");
        let (inner, brackets) = if property["items"].is_object() { (&property["items"], "[]") } else { (property, "") };
        if inner["properties"].is_object() {
            rows(inner, &format!("{prefix}{key}{brackets}."), out);
        }
    }
}

fn page() -> String {
    let mut out = String::from(ABOUT);
    let schemas = schemas();
    for (name, schema) in &schemas {
        let text = |key: &str| schema[key].as_str().unwrap_or_default();
        let _ = writeln!(
            out,
            "\n## {}\n\n{}\n\nSchema: `schemas/{name}.schema.json`.\n",
            text("title"),
            text("description")
        );
        let _ = writeln!(out, "| key | type | meaning |\n|---|---|---|");
        rows(schema, "", &mut out);
        for (def, object) in schema["$defs"].as_object().into_iter().flatten() {
            // An object that several documents contain is described once, in the section of the document
            // `capture-live`, or else in that of the first document.
            let contains = |schema: &Value| schema["$defs"].get(def).is_some();
            let first = schemas.iter().find(|(_, schema)| contains(schema)).map(|(name, _)| name.as_str());
            let section = if contains(&schemas["capture-live"]) { Some("capture-live") } else { first };
            if section == Some(name) {
                let _ = writeln!(out, "\n### Object `{def}`\n\n| key | type | meaning |\n|---|---|---|");
                rows(object, "", &mut out);
            }
        }
    }
    out
}

const ABOUT: &str = "# JSON documents

This page lists the documents that netgrain writes with `--json`. Each document is one object on one line (NDJSON). \
Documents are
written on standard output; a verb that uses standard output for packets, and `--explain`, write them on standard error.

Each document has the key `schema_version`. It changes if a key disappears or if the type or the meaning of a key \
changes; a new key
leaves it as it is, so readers must ignore keys that they do not know. All schemas have version 1. The schemas are \
JSON Schema (2020-12)
in `docs/reference/schemas`; tests run the verbs and compare each document with its schema.

A key marked * is absent if it does not apply. Times are RFC 3339 in UTC unless the key says nanoseconds or seconds; \
integers of 64 bits
that identify something are decimal numbers in quotes. Counters of bytes count bytes of frames on the wire without \
FCS, unless the
description says otherwise. `groups.md` has the documents of `netgrain group`; `netgrain listen` and `netgrain demo` \
write documents with
`schema_version` that have no schema yet.

This page is made from the schemas by `NETGRAIN_WRITE_DOCS=1 cargo test -p netgrain --test it json_schemas`.
";

#[test]
fn json_md_is_generated_from_the_schemas() {
    let (path, generated) = (docs().join("json.md"), page());
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    if written != generated && is_write_requested() {
        return std::fs::write(&path, generated).expect("a writable file");
    }
    assert!(
        written == generated,
        "docs/reference/json.md differs from the schemas; run this test with NETGRAIN_WRITE_DOCS=1"
    );
}
