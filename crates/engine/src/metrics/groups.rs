//! The metrics of groups: the numbers of `netgrain group stats`, by group, class, member and interface.

use super::page::escape;
use group::{CLASSES, ClassCounts, FragmentCounts, GroupView, MemberView, class};

/// Adds all metric families of these groups.
pub fn collect(groups: &[GroupView], mut family: impl FnMut(&str, &str, &str, &[(String, f64)])) {
    if groups.is_empty() {
        return;
    }
    let label = |group: &GroupView| format!(",group=\"{}\"", escape(&group.name));
    let mut one = |name: &str, kind: &str, help: &str, value: &dyn Fn(&GroupView) -> u64| {
        let samples: Vec<_> = groups.iter().map(|group| (label(group), value(group) as f64)).collect();
        family(&format!("group_{name}"), kind, help, &samples);
    };
    one("received_packets_total", "counter", "Packets that a group's program evaluated.", &|g| g.counts.received);
    one("dropped_packets_total", "counter", "Packets that a group's program dropped.", &|g| g.counts.dropped);
    one("no_member_packets_total", "counter", "Packets for classes without members.", &|g| g.counts.no_member);
    one("passed_packets_total", "counter", "Packets that the program passed to at least one member.", &|g| {
        g.counts.passed
    });
    one(
        "skipped_packets_total",
        "counter",
        "Packets that a group skipped because its dispatcher was too far behind.",
        &|g| g.counts.skipped,
    );
    one("forwarded_packets_total", "counter", "Packets put into the forwarding queue of an egress interface.", &|g| {
        g.counts.forwarded
    });
    one(
        "forward_lost_packets_total",
        "counter",
        "Packets for which the forwarding queue of an egress interface had no space.",
        &|g| g.counts.forward_lost,
    );
    one("to_host_packets_total", "counter", "Packets that a group's program passed to the host.", &|g| {
        g.counts.to_kernel
    });
    one(
        "lost_packets_total",
        "counter",
        "Copies lost because a member's branch had no space; losses of former members are included.",
        &|g| g.counts.all_members().lost,
    );
    one(
        "accounting_errors",
        "gauge",
        "Contradictions in the accounting of the group; a value other than 0 is a bug.",
        &|g| g.counts.contradictions().len() as u64,
    );
    one("unresponsive_queues", "gauge", "Queues whose dispatcher has failed or does not respond.", &|g| {
        g.unresponsive.len() as u64
    });
    one("departed_lost_packets_total", "counter", "Copies lost by former members.", &|g| g.counts.departed.lost);
    one("generation", "gauge", "Generation of the running program.", &|g| g.generation);
    one("members", "gauge", "Number of members.", &|g| g.members.len() as u64);

    let member = |value: &dyn Fn(&GroupView, &MemberView) -> f64| -> Vec<(String, f64)> {
        let of = |g| move |m| (g, m);
        let all = groups.iter().flat_map(|g: &GroupView| g.members.iter().map(of(g)));
        all.map(|(g, m)| (format!("{},slot=\"{}\",member=\"{}\"", label(g), m.slot, escape(&m.name)), value(g, m)))
            .collect()
    };
    let part = |g: &GroupView, m: &MemberView| g.counts.members[usize::from(m.slot)];
    let mut each = |name: &str, kind: &str, help: &str, value: &dyn Fn(&GroupView, &MemberView) -> f64| {
        family(&format!("group_member_{name}"), kind, help, &member(value));
    };
    each("delivered_packets_total", "counter", "Packets put into a member's branch.", &|g, m| {
        part(g, m).delivered as f64
    });
    each("refused_packets_total", "counter", "Packets that did not match a member's own filter.", &|g, m| {
        part(g, m).refused as f64
    });
    each("lost_packets_total", "counter", "Packets for which a member's branch had no space.", &|g, m| {
        part(g, m).lost as f64
    });
    each("fill_ratio", "gauge", "Fill level of a member's fullest branch, 0 to 1.", &|_, m| m.fill);
    each(
        "failed_packets_total",
        "counter",
        "Packets that could not be written to a member's interface or file.",
        &|_, m| m.sink.as_ref().map_or(0.0, |(_, sums)| sums.failed as f64),
    );

    let classes = groups.iter().flat_map(|g| (0..CLASSES as u8).map(move |c| (g, c, g.counts.of_class(c))));
    let classes: Vec<_> = classes
        .filter(|(.., part)| *part != ClassCounts::default())
        .map(|(g, c, part)| (format!("{},class=\"{}\"", label(g), class::name(c)), part))
        .collect();
    let mut by_class = |name: &str, help: &str, value: fn(&ClassCounts) -> u64| {
        let samples: Vec<_> = classes.iter().map(|(labels, part)| (labels.clone(), value(part) as f64)).collect();
        family(&format!("group_class_{name}_total"), "counter", help, &samples);
    };
    by_class("packets", "Packets that the program passed to a class.", |part| part.packets);
    by_class("copies", "Copies for members of a class.", |part| part.copies);
    by_class("no_member_packets", "Packets for a class without members.", |part| part.no_member);
    by_class("lost_packets", "Copies for members of a class, lost because a branch was full.", |part| part.lost);
    let ports = groups.iter().flat_map(|g| g.ports.iter().map(move |(port, sums)| (g, port, sums)));
    let ports: Vec<_> =
        ports.map(|(g, port, sums)| (format!("{},out_interface=\"{}\"", label(g), escape(port)), sums)).collect();
    let of = |value: fn(&group::SinkTotals) -> u64| -> Vec<_> {
        ports.iter().map(|(labels, sums)| (labels.clone(), value(sums) as f64)).collect()
    };
    family(
        "group_interface_sent_packets_total",
        "counter",
        "Packets that the group sent through an egress interface.",
        &of(|sums| sums.sent),
    );
    family(
        "group_interface_failed_packets_total",
        "counter",
        "Packets that an egress interface refused.",
        &of(|sums| sums.failed),
    );
    let maps = groups.iter().flat_map(|g| g.maps.iter().map(move |m| (g, m)));
    let maps: Vec<_> = maps.map(|(g, m)| (format!("{},map=\"{}\"", label(g), escape(&m.map)), m)).collect();
    let used: Vec<_> = maps.iter().map(|(labels, m)| (labels.clone(), m.used as f64)).collect();
    family("group_map_entries", "gauge", "Entries of a flow map of a group's program.", &used);
    let refused: Vec<_> = maps.iter().map(|(labels, m)| (labels.clone(), m.refused as f64)).collect();
    family(
        "group_map_refused_total",
        "counter",
        "Insertions into a flow map that were refused because the map was full.",
        &refused,
    );

    let datagrams: Vec<_> = groups.iter().filter_map(|g| Some((label(g), g.datagrams?))).collect();
    let of = |value: fn(&FragmentCounts) -> u64| -> Vec<_> {
        datagrams.iter().map(|(labels, d)| (labels.clone(), value(d) as f64)).collect()
    };
    family(
        "group_fragment_entries_created_total",
        "counter",
        "Fragmented datagrams that were entered into the fragment tracking.",
        &of(|d| d.created),
    );
    family("group_fragment_entries", "gauge", "Fragmented datagrams in the fragment tracking.", &of(|d| d.entries));
    type Count = fn(&FragmentCounts) -> u64;
    let causes: [(&str, Count); 3] = [("room", |d| d.evicted), ("time", |d| d.expired), ("replaced", |d| d.replaced)];
    let removed: Vec<_> = datagrams
        .iter()
        .flat_map(|(labels, d)| causes.map(|(cause, value)| (format!("{labels},cause=\"{cause}\""), value(d) as f64)))
        .collect();
    family(
        "group_fragment_entries_removed_total",
        "counter",
        "Fragmented datagrams removed from the fragment tracking, by cause.",
        &removed,
    );
    let parts: [(&str, Count); 2] = [("yes", |d| d.matched), ("no", |d| d.orphaned)];
    let parts: Vec<_> = datagrams
        .iter()
        .flat_map(|(labels, d)| {
            parts.map(|(known, value)| (format!("{labels},first_known=\"{known}\""), value(d) as f64))
        })
        .collect();
    family(
        "group_later_fragments_total",
        "counter",
        "Later fragments, by whether their first fragment was known.",
        &parts,
    );
}
