//! A group as an engine reports it on the control socket (docs/reference/groups.md).

use crate::outcome::Failure;
use group::{FragmentCounts, MapUsage, UnresponsiveQueue};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A reported group: the document for `--json`, which may have values of a newer engine, and the values that this
/// program reads.
pub struct ReportedGroup {
    pub document: Value,
    pub report: GroupReport,
}

impl ReportedGroup {
    /// Reads the JSON document of a group.
    ///
    /// # Errors
    /// The type of a value differs from its type in this version of netgrain.
    pub fn read(document: Value) -> Result<Self, Failure> {
        match GroupReport::deserialize(&document) {
            Ok(report) => Ok(Self { document, report }),
            Err(e) => Err(Failure::Said(format!(
                "the report of a group cannot be read: {e}; use the version of netgrain that the engine has"
            ))),
        }
    }

    /// Reads the JSON documents of all groups, one document for each group.
    ///
    /// # Errors
    /// As [`ReportedGroup::read`].
    pub fn read_all(documents: Vec<Value>) -> Result<Vec<Self>, Failure> {
        documents.into_iter().map(Self::read).collect()
    }

    /// True if both reports are about the same group, which is reported by the socket of each of its interfaces.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.report.group, &self.report.sources) == (&other.report.group, &other.report.sources)
    }
}

/// The values of a group. The report of an older engine may lack some values, which are then zero or empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupReport {
    pub group: String,
    pub policy: String,
    pub generation: u64,
    /// The interfaces whose packets the group gets.
    pub sources: Vec<String>,
    /// The first line of the program; `None` for the default program, and if the program is hidden.
    pub headline: Option<String>,
    /// True if the program is visible only to its owner.
    pub hidden: bool,
    pub execution: Option<String>,
    /// The reason why the program is not executed as machine code.
    pub reason: Option<String>,
    pub received: u64,
    pub dropped: u64,
    pub no_member: u64,
    pub passed: u64,
    pub copies: u64,
    pub lost: u64,
    pub skipped: u64,
    pub to_host: u64,
    pub forward_lost: u64,
    pub forward_own: u64,
    /// Egress interfaces of the program.
    pub interfaces: Vec<SinkReport>,
    /// The packet counters of each class, by class name.
    pub classes: BTreeMap<String, ClassReport>,
    /// Counters of the program; a counter may be negative.
    pub counters: BTreeMap<String, i64>,
    pub maps: Vec<MapUsage>,
    pub fragments: Option<FragmentCounts>,
    pub members: Vec<MemberReport>,
    pub departed: DepartedReport,
    pub unresponsive: Vec<UnresponsiveQueue>,
    /// The accounting equations that do not hold, as text.
    pub accounting_errors: Vec<String>,
}

impl GroupReport {
    /// True if a packet was lost on the way to a member, an interface or a file, or refused there.
    pub fn has_losses(&self) -> bool {
        let sinks = self.members.iter().filter_map(|member| member.sink.as_ref());
        let failed = self.interfaces.iter().chain(sinks).any(|sink| sink.failed > 0) || self.departed.failed > 0;
        failed || self.lost > 0 || self.forward_lost > 0
    }
}

/// The packet counters of an egress interface, or of a member that is an interface or a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SinkReport {
    pub interface: String,
    pub sent: u64,
    pub failed: u64,
    /// Packets that were not forwarded because this host had sent them.
    pub own_traffic: u64,
}

/// The packets of a class.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClassReport {
    pub packets: u64,
    pub copies: u64,
    pub no_member: u64,
    pub lost: u64,
}

/// A member.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MemberReport {
    pub slot: u64,
    pub name: String,
    pub pid: u64,
    pub classes: Vec<String>,
    pub weight: u64,
    pub delivered: u64,
    pub refused: u64,
    pub lost: u64,
    pub overwritten: u64,
    /// Fill level of the member's branch: 0 to 1.
    pub fill: f64,
    /// Present if the member is an interface or a file.
    pub sink: Option<SinkReport>,
}

/// The sums of the counters of former members, interfaces and files.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DepartedReport {
    pub delivered: u64,
    pub lost: u64,
    pub overwritten: u64,
    /// Packets that the members have read.
    pub seen: u64,
    pub sent: u64,
    pub failed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_values_are_empty_and_a_value_of_another_type_is_an_error() {
        let null =
            json!({"group": "g", "reason": null, "execution": null, "fragments": null, "members": [{"sink": null}]});
        let read = ReportedGroup::read(null).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!((read.report.group.as_str(), read.report.members.len()), ("g", 1));
        assert!(read.report.reason.is_none() && read.report.members[0].sink.is_none());
        let refused = ReportedGroup::read(json!({"received": "many"})).err();
        assert!(matches!(refused, Some(Failure::Said(text)) if text.contains("version of netgrain")));
    }
}
