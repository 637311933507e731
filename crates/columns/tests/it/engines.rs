//! Other people's readers get from our files what was put in: DuckDB, Polars, pyarrow.

use crate::common;

use netgrain_columns::{Config, Kind, Writer, files, read_flows, write_flows};
use testkit::TempDir;

const SCRIPT: &str = r#"
import sys
path = sys.argv[1]
import duckdb
q = "select count(*), sum(fwd_packets + rev_packets), sum(fwd_bytes), min(src), count(distinct dst), sum(len(early)), " \
    "sum(list_sum(list_transform(early, lambda e: e.gap))), count(fwd_gap_squares), max(first)::varchar, sum(packet_span), sum(syn_rtt) from '%s'" % path
d = duckdb.sql(q).fetchall()[0]
duckdb.sql("select * from '%s'" % path).fetchall()
import pyarrow.parquet as pq
t = pq.read_table(path, page_checksum_verification=True)
f = pq.ParquetFile(path)
assert f.metadata.num_rows == t.num_rows
a = t.select(['fwd_packets', 'rev_packets', 'fwd_bytes', 'src', 'dst', 'early']).to_pydict()
gaps = sum(e["gap"] or 0 for l in a["early"] for e in l)
# What docs/COLUMNS.md says of gaps that are null.
def until_last(row):
    early, before = row["early"], 0
    for i, e in enumerate(early):
        gap, answered = e["gap"], len(early) > 1 and early[1]["flags"] == 18 and early[1]["length"] < 0
        if gap is None and i == 1 and answered and row["syn_rtt"] is not None:
            gap = row["syn_rtt"]
        elif gap is None and i == 2 and answered and row["ack_rtt"] is not None:
            gap = row["ack_rtt"]
        elif gap is None and i + 1 == len(early) == row["fwd_packets"] + row["rev_packets"]:
            gap = row["last"] - row["first"] - before
        before += gap or 0
    return before
whole = t.select(["early", "syn_rtt", "ack_rtt", "fwd_packets", "rev_packets"])
for name in "first", "last":
    whole = whole.append_column(name, t[name].cast("int64"))
after = sum(until_last(row) for row in whole.to_pylist())
import polars as pl
p = pl.read_parquet(path)
mine = (t.num_rows, sum(a["fwd_packets"]) + sum(a["rev_packets"]), sum(a["fwd_bytes"]), min(a["src"]), len(set(a["dst"])), sum(len(l) for l in a["early"]), gaps)
theirs = (p.height, p["fwd_packets"].sum() + p["rev_packets"].sum(), p["fwd_bytes"].sum(), p["src"].min(), p["dst"].n_unique(), p["early"].list.len().sum(), p.select(pl.col("early").explode().struct.field("gap")).to_series().sum())
assert tuple(int(x) if not isinstance(x, str) else x for x in d[:7]) == mine == theirs, (d, mine, theirs)
assert d[7] == p["fwd_gap_squares"].count()
assert p["packet_span"].sum() == d[9] and p["syn_rtt"].sum() == d[10], (d, p["syn_rtt"].sum())
print(*mine, after)
"#;

#[test]
fn duckdb_polars_and_pyarrow_read_our_files_and_agree() {
    let test = "duckdb_polars_and_pyarrow_read_our_files_and_agree";
    let Some(mut python) = testkit::python_with(test, "duckdb, polars, pyarrow") else { return };
    let store = TempDir::new("columns-engines");
    let mut site = common::Site::new(1, 1000.0);
    // So many that pages are long enough for either compressor.
    let records: Vec<_> = (0..40_000).map(|_| site.record()).collect();
    let mut writer = Writer::new(Config { patient: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    let file = files(store.path(), "eth1", Kind::Flows).expect("a listing").remove(0).path;
    let out = python.args(["-c", SCRIPT]).arg(&file).output().expect("Python");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    let told: Vec<&str> = told.split_whitespace().collect();
    let packets: u64 = records.iter().map(|r| r.packets()).sum();
    let bytes: u64 = records.iter().map(|r| r.sides[0].bytes).sum();
    let early: usize = records.iter().map(|r| r.early.len()).sum();
    let after: u64 = records.iter().filter_map(|r| Some(r.early.last()?.after)).sum();
    let want =
        [records.len().to_string(), packets.to_string(), bytes.to_string(), early.to_string(), after.to_string()];
    assert_eq!([told[0], told[1], told[2], told[5], told[7]], want.each_ref().map(String::as_str));
}

const ROWS: &str = r#"
import sys
path = sys.argv[1]
import duckdb, pyarrow.parquet as pq, polars as pl
d = duckdb.sql("select count(*), min(second), max(second), sum(packets), sum(tcp_bytes), sum(lost_ring_full), "
               "count(*) filter (direction = 'out'), sum(interface) from '%s'" % path).fetchall()[0]
duckdb.sql("select * from '%s'" % path).fetchall()
a = pq.read_table(path, page_checksum_verification=True).to_pydict()
p = pl.read_parquet(path)
mine = (len(a["second"]), min(a["second"]), max(a["second"]), sum(a["packets"]), sum(a["tcp_bytes"]), sum(a["lost_ring_full"]),
        a["direction"].count("out"), sum(a["interface"]))
theirs = (p.height, p["second"].min(), p["second"].max(), p["packets"].sum(), p["tcp_bytes"].sum(), p["lost_ring_full"].sum(),
          p.filter(pl.col("direction") == "out").height, p["interface"].cast(pl.Int64).sum())
assert tuple(int(x) for x in d) == mine == tuple(int(x) for x in theirs), (d, mine, theirs)
print(*mine)
"#;

#[test]
fn duckdb_polars_and_pyarrow_read_our_seconds_and_agree() {
    let test = "duckdb_polars_and_pyarrow_read_our_seconds_and_agree";
    let Some(mut python) = testkit::python_with(test, "duckdb, polars, pyarrow") else { return };
    let seed = testkit::seed(test);
    let mut prng = base::Prng::new(seed);
    let store = TempDir::new("columns-engines-rows");
    let mut rows = Vec::new();
    // Up to the end of the hour, which is a file.
    for second in 0..1200 {
        for direction in series::Direction::ALL {
            let mut row = series::Row { second: common::START + second, interface: 3, direction, ..Default::default() };
            row.total.packets = prng.below(1 << 40);
            row.kinds[series::Kind::Tcp as usize].bytes = prng.below(300);
            row.ledger.lost[base::Cause::RingFull as usize] = prng.below(20) / 19;
            rows.push(row);
        }
    }
    let mut writer = Writer::new(Config { patient: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    rows.iter().for_each(|row| writer.row(row));
    writer.finish();
    let file = files(store.path(), "eth1", Kind::Series).expect("a listing").remove(0).path;
    let out = python.args(["-c", ROWS]).arg(&file).output().expect("Python");
    assert!(out.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&out.stderr));
    let sum = |of: fn(&series::Row) -> u64| rows.iter().map(of).sum::<u64>();
    let want = [
        2400,
        common::START,
        common::START + 1199,
        sum(|row| row.total.packets),
        sum(|row| row.kinds[series::Kind::Tcp as usize].bytes),
        sum(|row| row.ledger.lost[base::Cause::RingFull as usize]),
        1200,
        3 * 2400,
    ];
    let told = String::from_utf8_lossy(&out.stdout);
    let told: Vec<u64> = told.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    assert_eq!(told, want, "seed {seed}");
}

const WHOLE: &str = r#"
import sys
import duckdb
store, given, view = sys.argv[1:]
duckdb.sql("SET TimeZone = 'America/Lima'")
duckdb.sql("CREATE VIEW flows AS SELECT * FROM '%s'" % store)
duckdb.sql("CREATE VIEW given AS SELECT * FROM '%s'" % given)
duckdb.sql(view)
for one, other in ("whole", "given"), ("given", "whole"):
    differ = duckdb.sql("SELECT * FROM %s EXCEPT ALL SELECT * FROM %s LIMIT 1" % (one, other))
    names, rows = differ.columns, differ.fetchall()
    assert not rows, (one, dict(zip(names, rows[0])))
nulls = "count(*) filter (fwd_length_min is null and fwd_packets > 0 or rev_gap_max is null and rev_gaps > 0)"
# Moments of whole sides that the store's own file does not have.
print(*duckdb.sql("select count(*), sum(fwd_length_min), sum(rev_length_squares), sum(fwd_gap_max), sum(rev_gap_sum), "
                  "sum(epoch_ns(fwd_first)), %s from given" % nulls).fetchall()[0],
      duckdb.sql("select %s > 0 from flows" % nulls).fetchall()[0][0])
print(*[name for name, value in duckdb.sql("select key::varchar, value::varchar from parquet_kv_metadata('%s')" % given).fetchall()
        if name == "netgrain.interfaces" and value == "1=eth1"])
"#;

/// What a file for others has, and what the view of `docs/COLUMNS.md` makes of the store's, is the same; and it is what was put in.
#[test]
fn what_follows_from_the_rest_is_written_for_others_and_given_back_by_the_view() {
    let test = "what_follows_from_the_rest_is_written_for_others_and_given_back_by_the_view";
    let Some(mut python) = testkit::python_with(test, "duckdb") else { return };
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COLUMNS.md")).expect("the page");
    let view = page.split("<!-- view -->").nth(1).and_then(|rest| rest.split("```").nth(1)).expect("the view");
    let view = view.strip_prefix("sql").expect("SQL");
    let store = TempDir::new("columns-whole");
    let mut site = common::Site::new(3, 1000.0);
    let records: Vec<_> = (0..5_000).map(|_| site.record()).collect();
    let mut writer = Writer::new(Config { patient: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    let file = files(store.path(), "eth1", Kind::Flows).expect("a listing").remove(0).path;
    let given = store.join("given.parquet");
    let mut in_order = records.clone();
    in_order.sort_by_key(|r| (r.first(), r.id, r.part));
    let out = std::fs::File::create(&given).expect("a file");
    let names = || vec![(1, "eth1".to_owned())];
    write_flows(out, &mut in_order.iter().cloned(), &names).expect("written");
    let back = read_flows(&given).expect("a file");
    assert_eq!(back.names(), names());
    assert!(back.map(|r| r.expect("whole")).eq(in_order), "read back, everything is as it was");
    let out = python.args(["-c", WHOLE]).arg(&file).arg(&given).arg(view).output().expect("Python");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    let sum = |of: fn(&flow::Record) -> u128| records.iter().map(of).sum::<u128>().to_string();
    let want = [
        records.len().to_string(),
        sum(|r| r.sides[0].length.min.into()),
        sum(|r| r.sides[1].length.squares),
        sum(|r| r.sides[0].gap.max.into()),
        sum(|r| r.sides[1].gap.sum.into()),
        sum(|r| if r.sides[0].packets > 0 { r.sides[0].first.nanos().into() } else { 0 }),
        "0".into(),
        "True".into(),
        "netgrain.interfaces".into(),
    ];
    assert_eq!(told.split_whitespace().collect::<Vec<_>>(), want.each_ref().map(String::as_str));
}
