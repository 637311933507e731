//! Tables of groups.

use super::report::{DepartedReport, GroupReport, ReportedGroup};
use crate::outcome::{self, Failure, Outcome};
use base::units::show_count;
use group::FragmentCounts;
use std::io::{self, Write};

/// The maximum length of a program in a line, in characters.
const PROGRAM_WIDTH: usize = 40;

/// Prints the result of loading a program as JSON.
pub fn loaded(group: &str, response: &group::Response) -> Result<(), Failure> {
    let about = response.about.clone().unwrap_or_default();
    let done = serde_json::json!({
        "group": group, "generation": response.generation, "took_us": response.took_us, "late": response.late,
        "execution": about.execution, "reason": about.reason, "compile_us": about.compile_us,
        "partition_by": about.partition_by, "notes": about.notes, "unresponsive": response.unresponsive,
    });
    Ok(outcome::json(&done)?)
}

/// Prints the result of loading a program as text: notes on the program, and the queues on which the program does not
/// run.
pub fn print_notes(response: &group::Response) {
    response.unresponsive.iter().for_each(|queue| sys::say!("netgrain: {queue}"));
    let Some(about) = &response.about else { return };
    if let Some(why) = &about.reason {
        sys::say!("netgrain: the program runs {}: {why}", about.execution);
    }
    for key in &about.partition_by {
        sys::say!("netgrain: members that keep state of their own can be steered by {key}");
    }
    about.notes.iter().for_each(|note| sys::say!("netgrain: {note}"));
}

/// Prints one line for each group.
pub fn list(groups: &[ReportedGroup], json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        groups.iter().try_for_each(|g| writeln!(out, "{}", outcome::versioned(g.document.clone())))?;
        return Ok(());
    }
    if groups.is_empty() {
        sys::say!("netgrain: no groups; netgrain group create makes one");
        return Ok(());
    }
    let name = groups.iter().map(|g| g.report.group.chars().count()).max().unwrap_or(0).max(16);
    writeln!(out, "{:<name$} {:<10} {:>7} {:>10}  program", "group", "policy", "members", "generation")?;
    for ReportedGroup { report, .. } in groups {
        let GroupReport { group, policy, members, generation, .. } = report;
        writeln!(out, "{group:<name$} {policy:<10} {:>7} {generation:>10}  {}", members.len(), program(report))?;
    }
    Ok(())
}

/// Prints the accounting of each group. Returns `No` if there is no group, if an accounting equation does not hold, if
/// a queue did not report, or if a current or former member, interface or file lost a packet.
pub fn stats(groups: &[ReportedGroup], json: bool) -> Result<Outcome, Failure> {
    let mut out = io::stdout().lock();
    let mut healthy = !groups.is_empty();
    for (i, ReportedGroup { document, report }) in groups.iter().enumerate() {
        healthy &= report.accounting_errors.is_empty() && report.unresponsive.is_empty() && !report.has_losses();
        if json {
            writeln!(out, "{}", outcome::versioned(document.clone()))?;
            continue;
        }
        if i > 0 {
            writeln!(out)?;
        }
        program_stats(report, &mut out)?;
        member_stats(report, &mut out)?;
        report.accounting_errors.iter().for_each(|e| sys::say!("netgrain: {e}"));
        for queue in &report.unresponsive {
            sys::say!("netgrain: queue {} of {}: {}", queue.queue, queue.port, queue.why);
        }
    }
    Ok(Outcome::of(healthy))
}

/// Prints the counters of the packets that the program evaluated, by outcome, and the state of the program.
fn program_stats(g: &GroupReport, out: &mut impl Write) -> io::Result<()> {
    let n = show_count;
    writeln!(out, "group {}, generation {}: {}", g.group, g.generation, program(g))?;
    if let Some(why) = &g.reason {
        writeln!(out, "  runs {}: {why}", g.execution.as_deref().unwrap_or_default())?;
    }
    writeln!(
        out,
        "  received {}: dropped by the program {}, no member {}, passed {} (copies {}, lost {})",
        n(g.received),
        n(g.dropped),
        n(g.no_member),
        n(g.passed),
        n(g.copies),
        n(g.lost)
    )?;
    if g.skipped > 0 {
        writeln!(out, "  skipped because the dispatcher was too far behind: {}", n(g.skipped))?;
    }
    if g.to_host > 0 {
        writeln!(out, "  to the host {}", n(g.to_host))?;
    }
    for sink in &g.interfaces {
        writeln!(out, "  through {}: sent {}, failed {}", sink.interface, n(sink.sent), n(sink.failed))?;
    }
    if g.forward_lost > 0 {
        writeln!(out, "  lost because a forwarding queue was full: {}", n(g.forward_lost))?;
    }
    if g.forward_own > 0 {
        writeln!(out, "  not forwarded, sent by this host: {}", n(g.forward_own))?;
    }
    for (name, class) in &g.classes {
        let [packets, no_member, copies, lost] = [class.packets, class.no_member, class.copies, class.lost].map(n);
        writeln!(out, "  class {name}: {packets} packets, no member {no_member}, copies {copies}, lost {lost}")?;
    }
    for (name, value) in g.counters.iter().filter(|(_, value)| **value != 0) {
        let sign = if *value < 0 { "-" } else { "" };
        writeln!(out, "  counter {name}: {sign}{}", n(value.unsigned_abs()))?;
    }
    for map in &g.maps {
        let [used, capacity, refused] = [map.used, map.capacity, map.refused].map(n);
        writeln!(out, "  map {}: {used} of {capacity} entries, refused {refused}", map.map)?;
    }
    match g.fragments.as_ref().and_then(fragments) {
        Some(line) => writeln!(out, "  {line}"),
        None => Ok(()),
    }
}

/// Prints the packet counters of current and former members.
fn member_stats(g: &GroupReport, out: &mut impl Write) -> io::Result<()> {
    let n = show_count;
    if !g.members.is_empty() {
        let titles = ["delivered", "refused", "lost", "overwritten"].map(|h| format!("{h:>14}")).concat();
        writeln!(out, "   slot  pid      weight  classes         {titles}   full  name")?;
    }
    for m in &g.members {
        let counts = [m.delivered, m.refused, m.lost, m.overwritten].map(|count| format!("{:>14}", n(count)));
        writeln!(
            out,
            "  {:>5}  {:<7}  {:>6}  {:<16}{}  {:>4.0}%  {}",
            m.slot,
            m.pid,
            m.weight,
            m.classes.join(","),
            counts.concat(),
            m.fill * 100.0,
            m.name
        )?;
    }
    for (m, sink) in g.members.iter().filter_map(|m| Some((m, m.sink.as_ref()?))) {
        let own = match sink.own_traffic {
            0 => String::new(),
            own => format!(", not sent because they come from this host {}", n(own)),
        };
        writeln!(out, "  to {}: sent {}, failed {}{own}", m.name, n(sink.sent), n(sink.failed))?;
    }
    let gone = &g.departed;
    if gone.delivered + gone.lost > 0 {
        writeln!(out, "  members that have left: {}", departed(gone))?;
    }
    if gone.sent + gone.failed > 0 {
        writeln!(out, "  closed interfaces and files: sent {}, failed {}", n(gone.sent), n(gone.failed))?;
    }
    Ok(())
}

/// The counters of fragment tracking; `None` if there were no fragments.
fn fragments(f: &FragmentCounts) -> Option<String> {
    let n = show_count;
    (f.created > 0 || f.orphaned > 0).then(|| {
        format!(
            "fragments: first fragments {}, entries {} of {}, evicted {}, expired {}, replaced {}; later fragments \
             with their first {}, orphans {}",
            n(f.created),
            n(f.entries),
            n(f.capacity),
            n(f.evicted),
            n(f.expired),
            n(f.replaced),
            n(f.matched),
            n(f.orphaned)
        )
    })
}

/// The counters of members that have left. A member updates its own counters with a delay, so those of a killed member
/// miss up to its last second.
fn departed(gone: &DepartedReport) -> String {
    let n = show_count;
    let mut out = format!(
        "delivered {}, lost {}, overwritten before they were read {}",
        n(gone.delivered),
        n(gone.lost),
        n(gone.overwritten)
    );
    let unseen = gone.delivered.saturating_sub(gone.seen);
    if unseen > 0 {
        out += &format!(", delivered but perhaps not read {}", n(unseen));
    }
    out
}

fn program(g: &GroupReport) -> String {
    let text = match &g.headline {
        None if g.hidden => "(visible only to its owner)",
        None => "copy",
        Some(text) => text,
    };
    // The program text may be from another user, and its control characters could manipulate this terminal.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= PROGRAM_WIDTH {
        return line;
    }
    line.chars().take(PROGRAM_WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_counters_are_printed_only_if_there_were_fragments() {
        let none = FragmentCounts { capacity: 16_384, ..FragmentCounts::default() };
        assert_eq!(fragments(&none), None);
        let some = FragmentCounts {
            created: 20_000,
            entries: 10_000,
            evicted: 7000,
            expired: 2999,
            replaced: 1,
            matched: 40_000,
            orphaned: 5,
            ..none
        };
        let reported = "fragments: first fragments 20 000, entries 10 000 of 16 384, evicted 7 000, expired 2 999, \
            replaced 1; later fragments with their first 40 000, orphans 5";
        assert_eq!(fragments(&some).as_deref(), Some(reported));
    }

    #[test]
    fn counters_of_departed_members_include_unread_packets() {
        let counts =
            DepartedReport { delivered: 65_527, lost: 15_772, overwritten: 10_358, ..DepartedReport::default() };
        let all_read = DepartedReport { seen: 65_527, ..counts };
        assert_eq!(departed(&all_read), "delivered 65 527, lost 15 772, overwritten before they were read 10 358");
        let reported = "delivered 65 527, lost 15 772, overwritten before they were read 10 358, delivered but \
            perhaps not read 527";
        assert_eq!(departed(&DepartedReport { seen: 65_000, ..all_read }), reported);
    }
}
