//! Tests that DuckDB, Polars and pyarrow read the written values from the files.

use crate::common;

use netgrain_columns::{Config, DataFileKind, Writer, files, read_flows, write_flows};
use testkit::TempDir;

/// For each of the three programs: sums of columns, which are selected by name. The sums are correct only if no known
/// value is null.
const SCRIPT: &str = r#"
import sys
path = sys.argv[1]
import duckdb
columns = ["fwd_packets", "rev_bytes", "duration_ns", "bytes", "packets", "second", "age_ns", "fwd_length_max",
           "rev_start_ns", "fwd_iat_sum_ns", "rev_iat_max_ns", "position_span", "syn_rtt_ns", "src_port"]
sums = ", ".join("sum(%s)::varchar, count(%s)" % (c, c) for c in columns)
d = duckdb.sql("select %s from '%s'" % (sums, path)).fetchall()[0]
duckdb.sql("select * from '%s'" % path).fetchall()
import pyarrow.parquet as pq, pyarrow.compute as pc
t = pq.read_table(path, page_checksum_verification=True)
assert pq.ParquetFile(path).metadata.num_rows == t.num_rows
import polars as pl
p = pl.read_parquet(path)
for i, c in enumerate(columns):
    theirs = [(str(pc.sum(t[c].cast("int64")).as_py() or 0), len(t) - t[c].null_count),
              (str(p[c].cast(pl.Int64).sum()), p[c].count())]
    assert theirs == [(d[2 * i] or "0", d[2 * i + 1])] * 2, (c, theirs, d[2 * i:2 * i + 2])
one = "select sum(len(initial_lengths)), sum(list_sum(initial_iats_ns)), sum(list_sum(initial_flags)), min(src), \
 count(distinct dst), " \
      "count(*) filter (abs(epoch_us(last - first) - duration_ns // 1000) > 1), count(distinct date_trunc('minute', \
       first)), " \
      "string_agg(distinct interface, ','), string_agg(distinct end_reason, ',' order by end_reason), " \
      "string_agg(distinct protocol, ',' order by protocol) from '%s'" % path
print(*(x for row in duckdb.sql(one).fetchall() for x in row))
print(*(x for pair in zip(d[::2], d[1::2]) for x in pair))
"#;

#[test]
fn duckdb_polars_and_pyarrow_read_our_files_and_agree() {
    let test = "duckdb_polars_and_pyarrow_read_our_files_and_agree";
    let Some(mut python) = testkit::python_with(test, "duckdb, polars, pyarrow") else { return };
    let store = TempDir::new("columns-engines");
    let records = kept(store.path());
    let file = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").remove(0).path;
    let out = python.args(["-c", SCRIPT]).arg(&file).output().expect("Python");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let reported = String::from_utf8_lossy(&out.stdout).into_owned();
    let reported: Vec<&str> = reported.split_whitespace().collect();
    let early = |of: fn(&flow::InitialPacket) -> u64| {
        records.iter().flat_map(|r| &r.initial_packets).map(of).sum::<u64>().to_string()
    };
    let after: u64 = records.iter().filter_map(|r| Some(r.initial_packets.last()?.offset_ns)).sum();
    assert_eq!(reported[..3], [early(|_| 1), after.to_string(), early(|e| e.flags.into())]);
    assert_eq!(
        (reported[5], reported[7], reported[8], reported[9]),
        ("0", "eth1", "end_of_flow,idle_timeout", "tcp,udp")
    );
    let sums = [
        known(&records, |r| Some(r.directions[0].packets)),
        known(&records, |r| Some(r.directions[1].bytes)),
        known(&records, |r| Some(r.last().nanos() - r.first().nanos())),
        known(&records, |r| Some(r.bytes())),
        known(&records, |r| Some(r.packets())),
        known(&records, |r| Some(r.first().secs())),
        known(&records, |_| Some(0)),
        known(&records, |r| Some(r.directions[0].length.max)),
        known(&records, |r| (r.directions[1].packets > 0).then(|| r.directions[1].first.nanos() - r.first().nanos())),
        known(&records, |r| (r.directions[0].iat_count > 0).then_some(r.directions[0].iat.sum)),
        known(&records, |r| (r.directions[1].iat_count > 0).then_some(r.directions[1].iat.max)),
        known(&records, |r| r.location.map(|at| at.last - at.first)),
        known(&records, |r| r.syn_rtt),
        known(&records, |r| Some(r.key.src_port.into())),
    ];
    let sums: Vec<String> = sums.into_iter().flatten().collect();
    assert_eq!(reported[10..], sums);
}

/// Writes so many records that the pages are large enough for every compression method.
fn kept(store: &std::path::Path) -> Vec<flow::Record> {
    let mut site = common::TrafficModel::new(1, 1000.0);
    let records: Vec<_> = (0..40_000).map(|_| site.record()).collect();
    let mut writer = Writer::new(Config { wait_when_full: true, ..Config::new(store, "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    (0..100).for_each(|n| writer.row(&series::Row { second: common::START + n, ..series::Row::default() }));
    writer.finish();
    records
}

/// The sum of the known values of a field, and their number.
fn known(records: &[flow::Record], of: fn(&flow::Record) -> Option<u64>) -> [String; 2] {
    let known: Vec<u64> = records.iter().filter_map(of).collect();
    [known.iter().sum::<u64>().to_string(), known.len().to_string()]
}

const ROWS: &str = r#"
import sys
path = sys.argv[1]
import duckdb, pyarrow.parquet as pq, polars as pl
d = duckdb.sql("select count(*), min(second), max(second), sum(packets), sum(tcp_bytes), sum(lost_ring_full), "
               "count(*) filter (direction = 'out'), sum(interface_id) from '%s'" % path).fetchall()[0]
duckdb.sql("select * from '%s'" % path).fetchall()
a = pq.read_table(path, page_checksum_verification=True).to_pydict()
p = pl.read_parquet(path)
mine = (len(a["second"]), min(a["second"]), max(a["second"]), sum(a["packets"]), sum(a["tcp_bytes"]),
        sum(a["lost_ring_full"]), a["direction"].count("out"), sum(a["interface_id"]))
theirs = (p.height, p["second"].min(), p["second"].max(), p["packets"].sum(), p["tcp_bytes"].sum(),
          p["lost_ring_full"].sum(), p.filter(pl.col("direction") == "out").height,
          p["interface_id"].cast(pl.Int64).sum())
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
    // All seconds are in the same hour, because each hour has its own file.
    for second in 0..1200 {
        for direction in series::Direction::ALL {
            let mut row = series::Row { second: common::START + second, interface: 3, direction, ..Default::default() };
            row.total.packets = prng.below(1 << 40);
            row.classes[series::TrafficClass::Tcp as usize].bytes = prng.below(300);
            row.ledger.lost[base::Cause::RingFull as usize] = prng.below(20) / 19;
            rows.push(row);
        }
    }
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    rows.iter().for_each(|row| writer.row(row));
    writer.finish();
    let file = files(store.path(), "eth1", DataFileKind::Series).expect("a listing").remove(0).path;
    let out = python.args(["-c", ROWS]).arg(&file).output().expect("Python");
    assert!(out.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&out.stderr));
    let sum = |of: fn(&series::Row) -> u64| rows.iter().map(of).sum::<u64>();
    let want = [
        2400,
        common::START,
        common::START + 1199,
        sum(|row| row.total.packets),
        sum(|row| row.classes[series::TrafficClass::Tcp as usize].bytes),
        sum(|row| row.ledger.lost[base::Cause::RingFull as usize]),
        1200,
        3 * 2400,
    ];
    let reported = String::from_utf8_lossy(&out.stdout);
    let reported: Vec<u64> = reported.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    assert_eq!(reported, want, "seed {seed}");
}

const GIVEN: &str = r#"
import sys
import duckdb
store, given = sys.argv[1:]
duckdb.sql("SET TimeZone = 'America/Lima'")
duckdb.sql("CREATE VIEW kept AS SELECT * FROM '%s'" % store)
duckdb.sql("CREATE VIEW given AS SELECT * EXCLUDE community_id FROM '%s'" % given)
for one, other in ("kept", "given"), ("given", "kept"):
    differ = duckdb.sql("SELECT * FROM %s EXCEPT ALL SELECT * FROM %s LIMIT 1" % (one, other))
    names, rows = differ.columns, differ.fetchall()
    assert not rows, (one, dict(zip(names, rows[0])))
ids = "count(distinct community_id), min(community_id), count(community_id)"
print(*duckdb.sql("select %s from '%s'" % (ids, given)).fetchall()[0])
metadata = duckdb.sql("select key::varchar, value::varchar from parquet_kv_metadata('%s')" % given).fetchall()
print(*[name for name, value in metadata if name == "netgrain.interfaces" and value == "1=eth1"])
"#;

#[test]
fn a_standalone_file_has_the_store_columns_and_the_community_id() {
    let test = "a_standalone_file_has_the_store_columns_and_the_community_id";
    let store = TempDir::new("columns-given");
    let mut site = common::TrafficModel::new(3, 1000.0);
    let mut records: Vec<_> = (0..5_000).map(|_| site.record()).collect();
    records.iter_mut().for_each(|record| record.interface = 1);
    let mut writer =
        Writer::new(Config { wait_when_full: true, ..Config::new(store.path(), "eth1") }).expect("threads");
    records.iter().for_each(|record| writer.record(record));
    writer.finish();
    let file = files(store.path(), "eth1", DataFileKind::Flows).expect("a listing").remove(0).path;
    let given = store.join("given.parquet");
    records.sort_by_key(|r| (r.first(), r.id, r.record_index));
    let out = std::fs::File::create(&given).expect("a file");
    let names = || vec![(1, "eth1".to_owned())];
    write_flows(out, &mut records.iter().cloned(), &names).expect("written");
    let back = read_flows(&given).expect("a file");
    assert_eq!(back.names(), names());
    assert!(back.map(|r| r.expect("whole")).eq(records.iter().cloned()), "the file has the records that were written");
    let Some(mut python) = testkit::python_with(test, "duckdb") else { return };
    let out = python.args(["-c", GIVEN]).arg(&file).arg(&given).output().expect("Python");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let reported = String::from_utf8_lossy(&out.stdout).into_owned();
    let ids: std::collections::BTreeSet<String> =
        records.iter().map(|r| wire::community_id(&r.key.of_packet()).to_string()).collect();
    let want = [&ids.len().to_string(), ids.first().expect("records"), "5000", "netgrain.interfaces"];
    assert_eq!(reported.split_whitespace().collect::<Vec<_>>(), want);
}

/// Reads each column of these files separately with every reader, counts the nulls, and sums columns of the first file.
const OLD: &str = r#"
import sys
paths = [path for path in sys.argv[1:] if path != "everything"]
everything = "everything" in sys.argv
import duckdb, pyarrow.parquet as pq, polars as pl, fastparquet
troubles = []
for path, name in [(path, name) for path in paths for name in pq.ParquetFile(path).schema_arrow.names]:
    query = 'select count(*) - count("%s"), max("%s") from \'%s\'' % (name, name, path)
    readers = [
        ("pyarrow", lambda: pq.read_table(path, columns=[name])[name].null_count),
        ("duckdb", lambda: duckdb.connect().execute(query).fetchall()[0][0]),
    ]
    if everything or not name.endswith("squares") and not name.startswith("initial"):
        readers.append(("polars", lambda: pl.read_parquet(path, columns=[name])[name].null_count()))
    nulls = []
    for reader, read in readers:
        try:
            nulls.append(read())
        except BaseException as e:
            troubles.append("%s of %s, %s: %s" % (name, path, reader, str(e)[:200]))
    if len(set(nulls)) > 1:
        troubles.append("%s of %s: %s nulls" % (name, path, nulls))
    if not name.startswith("initial"):
        try:
            fastparquet.ParquetFile(path).to_pandas(columns=[name])
        except BaseException as e:
            troubles.append("%s of %s, fastparquet: %s" % (name, path, str(e)[:200]))
assert not troubles, "\n".join(troubles)
path = paths[0]
a = pq.read_table(path, columns=["fwd_bytes", "src_port"])
print(sum(a["fwd_bytes"].to_pylist()), sum(a["src_port"].to_pylist()),
      *duckdb.connect().execute("select sum(fwd_bytes)::bigint, sum(src_port)::bigint, count(date_trunc('minute', \
       first)) from '%s'" % path).fetchall()[0])
"#;

fn read_by(test: &str, environment: &str, more: &[&str]) {
    let Some(mut python) = testkit::python_of(test, environment) else { return };
    let store = TempDir::new(test);
    let mut records = kept(store.path());
    records.sort_by_key(|r| (r.first(), r.id, r.record_index));
    let sealed = |kind| files(store.path(), "eth1", kind).expect("a listing").remove(0).path;
    let given = store.join("given.parquet");
    let out = std::fs::File::create(&given).expect("a file");
    write_flows(out, &mut records.iter().cloned(), &|| vec![(1, "eth1".to_owned())]).expect("written");
    let three = [sealed(DataFileKind::Flows), sealed(DataFileKind::Series), given];
    let out = python.args(["-c", OLD]).args(&three).args(more).output().expect("Python");
    assert!(out.status.success(), "{environment}: {}", String::from_utf8_lossy(&out.stderr));
    let reported = String::from_utf8_lossy(&out.stdout).into_owned();
    let bytes: u64 = records.iter().map(|r| r.directions[0].bytes).sum();
    let ports: u64 = records.iter().map(|r| u64::from(r.key.src_port)).sum();
    // Some versions of the readers print warnings before the result.
    assert_eq!(
        reported.lines().last().unwrap_or_default(),
        format!("{bytes} {ports} {bytes} {ports} {}", records.len()),
        "{environment}"
    );
}

#[test]
fn readers_of_2022_read_all_columns_of_the_types_that_they_support() {
    // Polars of 2022 does not support decimals and lists of 32-bit numbers; fastparquet does not support lists.
    read_by("readers_of_2022_read_all_columns_of_the_types_that_they_support", "oracles-python-2022", &[]);
}

#[test]
fn readers_of_2023_read_all_columns_and_fastparquet_all_but_lists() {
    read_by("readers_of_2023_read_all_columns_and_fastparquet_all_but_lists", "oracles-python-2023", &["everything"]);
}
