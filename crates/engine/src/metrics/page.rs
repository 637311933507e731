//! Writes metric families in the Prometheus text format 0.0.4.

use std::fmt::Write as _;

/// The lines of one metric family: its `HELP` and `TYPE` lines, and its samples.
pub struct Family {
    head: String,
    samples: String,
}

/// The metric families so far, and the interface to which the next samples belong.
pub struct Page<'a> {
    families: &'a mut Vec<Family>,
    interface: String,
}

impl Family {
    /// Returns the lines of the family.
    pub fn text(self) -> String {
        self.head + &self.samples
    }
}

impl<'a> Page<'a> {
    /// Prepares to add the samples of an interface to these families.
    pub fn new(families: &'a mut Vec<Family>, interface: &str) -> Self {
        Self { families, interface: escape(interface) }
    }

    /// Returns the samples of the family with this name. The first call with a name writes its `HELP` and `TYPE` lines.
    fn of(&mut self, name: &str, kind: &str, help: &str) -> &mut String {
        let head = format!("# HELP netgrain_{name} {help}\n# TYPE netgrain_{name} {kind}\n");
        let i = self.families.iter().position(|f| f.head == head).unwrap_or_else(|| {
            self.families.push(Family { head, samples: String::new() });
            self.families.len() - 1
        });
        &mut self.families[i].samples
    }

    /// Adds samples to the family `name`. Each sample has a value and the labels that follow the label `interface`,
    /// each with a comma before it.
    pub fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
        let interface = self.interface.clone();
        let lines = self.of(name, kind, help);
        for (labels, value) in samples {
            let _ = writeln!(lines, "netgrain_{name}{{interface=\"{interface}\"{labels}}} {value}");
        }
    }

    /// Adds a histogram. `bounds` are the upper bounds of all buckets except the last, `counts` the number of
    /// observations in each bucket, and `sum` the sum of all observations.
    pub fn histogram(&mut self, name: &str, help: &str, bounds: &[f64], counts: &[u64], sum: f64) {
        let interface = self.interface.clone();
        let lines = self.of(name, "histogram", help);
        let mut all = 0;
        let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            // The count of a bucket includes the observations in the buckets below.
            all += count;
            let _ = writeln!(lines, "netgrain_{name}_bucket{{interface=\"{interface}\",le=\"{bound}\"}} {all}");
        }
        let _ = writeln!(lines, "netgrain_{name}_sum{{interface=\"{interface}\"}} {sum}");
        let _ = writeln!(lines, "netgrain_{name}_count{{interface=\"{interface}\"}} {all}");
    }
}

/// Escapes a label value.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
