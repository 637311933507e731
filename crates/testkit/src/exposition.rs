//! Checks a metrics page: the text format 0.0.4 of Prometheus, and the rules for names and units of Prometheus' linter
//! (`promtool check metrics`).

use crate::go_tool;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;

/// Words that a metric name must not contain: names of units that are not base units (the base units are seconds, bytes
/// and ratio), and names of metric types.
const NOT_IN_NAMES: [&str; 22] = [
    "minutes",
    "hours",
    "days",
    "weeks",
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "ms",
    "us",
    "ns",
    "bits",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "kb",
    "mb",
    "gb",
    "percent",
    "counter",
    "gauge",
    "histogram",
    "summary",
];

/// The permitted units. A unit is the last word of a metric name, or the last word before `total`.
const UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

/// The problems of this page, one sentence each. HTTP headers before an empty line are skipped.
pub fn exposition_problems(page: &str) -> Vec<String> {
    let body = page.split_once("\r\n\r\n").map_or(page, |(_, body)| body);
    let mut found = Vec::new();
    let (mut known, mut family) = (BTreeSet::new(), Family::default());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            found.append(&mut family.problems());
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if help.is_empty() {
                found.push(format!("{name} has no help"));
            }
            if !known.insert(name.to_owned()) {
                found.push(format!("{name} occurs twice"));
            }
            family = Family { name: name.to_owned(), ..Family::default() };
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            match rest.split_once(' ') {
                Some((name, kind)) if name == family.name && family.kind.is_empty() => family.kind = kind.to_owned(),
                _ => found.push(format!("a TYPE line must follow the HELP line of its metric, once: {line}")),
            }
        } else {
            family.take(line, &mut found);
        }
    }
    found.append(&mut family.problems());
    found
}

/// The samples of one metric family.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    /// Values of the samples. The key is the part of the sample's name after the name of the metric family, and the
    /// labels.
    samples: BTreeMap<(String, String), f64>,
    /// The buckets of a histogram in the order of the page. Each has its labels without `le`, its upper bound and its
    /// value.
    buckets: Vec<(String, f64, f64)>,
}

impl Family {
    fn take(&mut self, line: &str, found: &mut Vec<String>) {
        let parts = line.rsplit_once(' ').and_then(|(left, value)| {
            let (name, labels) = left.strip_suffix('}')?.split_once('{')?;
            Some((name.strip_prefix(&self.name)?.to_owned(), labels_of(labels)?, value.parse::<f64>().ok()?))
        });
        let Some((suffix, mut labels, value)) = parts else {
            found.push(format!("not a sample of {}: {line}", self.name));
            return;
        };
        if self.samples.insert((suffix.clone(), format!("{labels:?}")), value).is_some() {
            found.push(format!("a duplicate sample: {line}"));
        }
        let suffixes: &[&str] = if self.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        if !suffixes.contains(&suffix.as_str()) {
            found.push(format!("not a sample name of a {}: {line}", self.kind));
        }
        let bound = labels.iter().position(|(name, _)| name == "le").map(|i| labels.remove(i).1);
        match bound.map(|bound| bound.parse()) {
            Some(Ok(bound)) if suffix == "_bucket" => self.buckets.push((format!("{labels:?}"), bound, value)),
            None if suffix != "_bucket" => {}
            _ => {
                found.push(format!("the label le is required for buckets and not permitted for other samples: {line}"))
            }
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        let name = &self.name;
        if name.is_empty() {
            return found;
        }
        let mut says = |wrong: bool, what: &str| {
            if wrong {
                found.push(format!("{name} ({}) {what}", self.kind));
            }
        };
        let words: Vec<&str> = name.split('_').collect();
        let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        says(!plain || words.contains(&""), "is not lower-case words joined by _");
        says(words[0] != "netgrain", "does not begin with netgrain_");
        says(!matches!(self.kind.as_str(), "counter" | "gauge" | "histogram"), "has no type");
        says(
            (self.kind == "counter") != (words.last() == Some(&"total")),
            "is a counter without the suffix _total, or has the suffix and is no counter",
        );
        for word in ["bucket", "sum", "count"] {
            says(words.last() == Some(&word), "ends in a suffix that is reserved for histograms");
        }
        for word in words.iter().filter(|w| NOT_IN_NAMES.contains(w)) {
            says(true, &format!("has {word} in its name"));
        }
        let unit = words.iter().position(|w| UNITS.contains(w));
        let last = words.len() - 1 - usize::from(words.last() == Some(&"total"));
        says(unit.is_some_and(|i| i != last), "does not have its unit last");
        let of = |suffix: &str, labels: &str| self.samples.get(&(suffix.to_owned(), labels.to_owned())).copied();
        for (i, (labels, bound, value)) in self.buckets.iter().enumerate() {
            let next = self.buckets.get(i + 1).filter(|next| next.0 == *labels);
            says(next.is_some_and(|n| n.1 <= *bound || n.2 < *value), "has buckets whose bounds or values do not grow");
            says(next.is_none() && bound.is_finite(), "has no bucket with the bound +Inf");
            let whole = of("_count", labels) == Some(*value) && of("_sum", labels).is_some();
            says(next.is_none() && !whole, "has no count of its largest bucket, or no sum");
        }
        says(self.kind == "histogram" && !self.samples.is_empty() && self.buckets.is_empty(), "has no bucket");
        found
    }
}

/// Labels and values of a sample; `None` if they are not well-formed.
fn labels_of(text: &str) -> Option<Vec<(String, String)>> {
    let (mut labels, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (name, more) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = more.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        labels.push((name.to_owned(), more[..end].to_owned()));
        rest = &more[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            Some(_) => return None,
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    labels.iter().all(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).then_some(labels)
}

/// Returns the output of `promtool check metrics` for this page. The output is empty if the page has no problem. If
/// promtool is not installed, the test `test` is reported as skipped.
pub fn promtool_problems(test: &str, page: &str) -> String {
    let body = page.split_once("\r\n\r\n").map_or(page, |(_, body)| body);
    let Some(mut command) = go_tool(test, "promtool") else { return String::new() };
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    // Errors are ignored: if promtool exits before it has read everything, its output has the reason.
    let _ = child.stdin.take().expect("a pipe").write_all(body.as_bytes());
    let output = child.wait_with_output().expect("promtool ends");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if output.status.success() { printed } else { format!("{printed}promtool: {}", output.status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_invalid_pages_are_found() {
        let head = |name: &str, kind: &str| format!("# HELP {name} What.\n# TYPE {name} {kind}\n");
        let good = head("netgrain_a_bytes_total", "counter") + "netgrain_a_bytes_total{interface=\"a\\\"\\\\\"} 1\n";
        assert_eq!(exposition_problems(&good), [""; 0]);
        let buckets = |name: &str, values: [u64; 2]| {
            let [a, b] = values;
            head(name, "histogram") + &format!("{name}_bucket{{le=\"1\"}} {a}\n{name}_bucket{{le=\"+Inf\"}} {b}\n")
        };
        let histogram = buckets("netgrain_h_seconds", [1, 2]);
        let ends = "netgrain_h_seconds_sum{} 1.5\nnetgrain_h_seconds_count{} 2\n";
        assert_eq!(exposition_problems(&(histogram.clone() + ends)), [""; 0]);
        for wrong in [
            head("netgrain_a_bytes_total", "gauge") + "netgrain_a_bytes_total{} 1\n",
            head("netgrain_a_bytes", "counter") + "netgrain_a_bytes{} 1\n",
            head("netgrain_a_hours", "gauge") + "netgrain_a_hours{} 1\n",
            head("netgrain_seconds_a", "gauge") + "netgrain_seconds_a{} 1\n",
            head("netgrain_s_bucket", "gauge") + "netgrain_s_bucket{} 1\n",
            head("netgrain_a_counter", "gauge"),
            head("netgrain_a", "gauge") + "netgrain_a{} x\n",
            head("netgrain_a", "gauge") + "netgrain_a{x=\"1} 1\n",
            head("netgrain_a", "gauge") + "netgrain_a{} 1\nnetgrain_a{} 2\n",
            head("netgrain_a", "gauge") + "netgrain_a{le=\"1\"} 1\n",
            head("netgrain_a", "gauge") + &head("netgrain_a", "gauge"),
            "# HELP netgrain_a\n# TYPE netgrain_a gauge\n".to_owned(),
            histogram,
            buckets("netgrain_h_seconds", [3, 2]) + ends,
        ] {
            assert!(!exposition_problems(&wrong).is_empty(), "{wrong}");
        }
    }
}
