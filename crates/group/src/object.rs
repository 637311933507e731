//! Groups as JSON objects, for the control socket and for `--json`.

use crate::engine_services::PacketSink;
use crate::entry::{GroupView, MemberView};
use crate::request::MESSAGE_MAX;
use crate::steering::{Steering, members};
use crate::verdict::class;
use serde_json::{Map, Value, json};

/// The maximum number of characters of a program or a filter in a list; the request `Program` returns the whole
/// program.
const SHOWN: usize = 400;

/// The maximum number of characters of a program or a filter, if the message would exceed its size limit with `SHOWN`
/// characters.
const SHOWN_MIN: usize = 16;

impl GroupView {
    /// Makes the JSON object of a group; `docs/reference/groups.md` describes the fields.
    pub fn object(&self) -> Value {
        object(self, usize::MAX)
    }

    /// Serialises the object as one message. Long programs and filters are shortened as far as necessary, so that one
    /// group cannot make the whole list exceed the message limit.
    pub(crate) fn message(&self) -> String {
        let fits = |reported: &String| reported.len() <= MESSAGE_MAX;
        let cut = [SHOWN, SHOWN_MIN].into_iter().map(|most| object(self, most).to_string()).find(fits);
        cut.unwrap_or_else(|| {
            let mut reported = object(self, SHOWN_MIN);
            for list in ["members", "interfaces", "maps"] {
                reported[list] = json!([]);
            }
            reported["shortened"] = true.into();
            reported.to_string()
        })
    }
}

/// Returns the first `most` characters of a text, with an ellipsis if there are more.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn object(group: &GroupView, most: usize) -> Value {
    let members: Vec<Value> = group.members.iter().map(|m| member(m, group, most)).collect();
    let c = &group.counts;
    let classes: Map<String, Value> = (0..class::MANAGEMENT)
        .filter(|class| {
            let part = &c.classes[usize::from(*class)];
            part.packets + part.copies > 0 || group.members.iter().any(|m| m.classes >> class & 1 == 1)
        })
        .map(|class| (class::name(class), json!(c.of_class(class))))
        .collect();
    let counters: Map<String, Value> =
        group.counters.iter().map(|(name, n)| (name.clone(), (*n as i64).into())).collect();
    let ports: Vec<Value> = group
        .ports
        .iter()
        .map(|(name, n)| json!({"interface": name, "sent": n.sent, "failed": n.failed, "own_traffic": n.own}))
        .collect();
    let maps: Vec<Value> = group
        .maps
        .iter()
        .map(|m| json!({"map": cut(&m.map, most), "used": m.used, "capacity": m.capacity, "refused": m.refused}))
        .collect();
    let about = group.program_info.as_ref();
    let spread = about.map(|a| a.partition_by.iter().map(|line| cut(line, most)).collect::<Vec<_>>());
    json!({
        "execution": about.map(|a| &a.execution),
        "reason": about.and_then(|a| a.reason.as_ref()).map(|why| cut(why, most)),
        "compile_us": about.map(|a| a.compile_us), "partition_by": spread,
        "group": group.name, "policy": group.policy, "uid": group.owner.uid, "pid": group.owner.pid,
        "steering": match group.steering { Steering::Rendezvous => "rendezvous", Steering::Fold => "fold" },
        "sources": group.sources, "queues": group.queues,
        "program": group.program.as_ref().map(|p| cut(p, most)),
        "headline": group.headline.as_ref().map(|line| cut(line, most)),
        "hidden": group.hidden, "generation": group.generation, "interfaces": ports,
        "received": c.received, "dropped": c.dropped, "no_member": c.no_member, "passed": c.passed,
        "copies": c.copies, "lost": c.all_members().lost, "skipped": c.skipped,
        "forwarded": c.forwarded, "forward_lost": c.forward_lost, "forward_own": c.forward_own,
        "to_host": c.to_kernel, "classes": classes, "counters": counters, "maps": maps,
        "fragments": group.datagrams, "members": members,
        "departed": {
            "delivered": c.departed.delivered, "refused": c.departed.refused, "lost": c.departed.lost,
            "seen": group.departed.taken, "overwritten": group.departed.overwritten,
            "sent": group.closed.sent, "failed": group.closed.failed, "own_traffic": group.closed.own,
        },
        "unresponsive": group.unresponsive, "accounting_errors": c.contradictions(),
    })
}

/// Makes the JSON object of a member.
fn member(m: &MemberView, group: &GroupView, most: usize) -> Value {
    let part = &group.counts.members[usize::from(m.slot)];
    let classes: Vec<String> = members(m.classes).map(class::name).collect();
    let egress = m.sink.as_ref().map(|(to, n)| match to {
        PacketSink::Port(name) => json!({"interface": name, "sent": n.sent, "failed": n.failed, "own_traffic": n.own}),
        PacketSink::File { path, max_bytes: most } => {
            json!({"file": path, "max_bytes": most, "sent": n.sent, "failed": n.failed})
        }
    });
    json!({
        "slot": m.slot, "name": m.name, "pid": m.pid, "classes": classes, "weight": m.weight,
        "filter": m.filter.as_ref().map(|f| cut(f, most)),
        "delivered": part.delivered, "refused": part.refused, "lost": part.lost,
        "seen": m.seen.taken, "overwritten": m.seen.overwritten, "fill": (m.fill * 1e4).round() / 1e4, "sink": egress,
    })
}
