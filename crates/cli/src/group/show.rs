//! Tables of groups.

use crate::outcome::{self, Failure, Outcome};
use base::units::show_count;
use serde_json::Value;
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

/// Prints the result as text: notes on the program, and the queues on which the program does not run.
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
pub fn list(groups: &[Value], json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        groups.iter().try_for_each(|g| writeln!(out, "{}", outcome::versioned(g.clone())))?;
        return Ok(());
    }
    if groups.is_empty() {
        sys::say!("netgrain: no groups; netgrain group create makes one");
        return Ok(());
    }
    writeln!(out, "{:<16} {:<10} {:>7} {:>10}  program", "group", "policy", "members", "generation")?;
    for g in groups {
        let members = g["members"].as_array().map_or(0, Vec::len);
        let (name, policy, generation) = (text(g, "group"), text(g, "policy"), number(g, "generation"));
        writeln!(out, "{name:<16} {policy:<10} {members:>7} {generation:>10}  {}", program(g))?;
    }
    Ok(())
}

/// Prints the accounting of each group. `No` if there is no group, if an equation has a residue, if a queue did not
/// report, or if a current or former member, interface or file lost a packet.
pub fn stats(groups: &[Value], json: bool) -> Result<Outcome, Failure> {
    let mut out = io::stdout().lock();
    let mut healthy = !groups.is_empty();
    for (i, g) in groups.iter().enumerate() {
        let members: Vec<&Value> = g["members"].as_array().into_iter().flatten().collect();
        let accounting_errors: Vec<&str> = list_of(g, "accounting_errors");
        let unresponsive: Vec<&Value> = g["unresponsive"].as_array().into_iter().flatten().collect();
        let interfaces: Vec<&Value> = g["interfaces"].as_array().into_iter().flatten().collect();
        let departed_counts = &g["departed"];
        let lost = number(g, "lost") > 0 || number(g, "forward_lost") > 0;
        let sinks = members.iter().map(|m| &m["sink"]);
        let failed = interfaces.iter().copied().chain(sinks).chain([departed_counts]).any(|o| number(o, "failed") > 0);
        healthy &= accounting_errors.is_empty() && unresponsive.is_empty() && !lost && !failed;
        if json {
            writeln!(out, "{}", outcome::versioned(g.clone()))?;
            continue;
        }
        if i > 0 {
            writeln!(out)?;
        }
        writeln!(out, "group {}, generation {}: {}", text(g, "group"), number(g, "generation"), program(g))?;
        if let Some(why) = g["reason"].as_str() {
            writeln!(out, "  runs {}: {why}", text(g, "execution"))?;
        }
        let n = |key: &str| show_count(number(g, key));
        writeln!(
            out,
            "  received {}: dropped by the program {}, no member {}, passed {} (copies {}, lost {})",
            n("received"),
            n("dropped"),
            n("no_member"),
            n("passed"),
            n("copies"),
            n("lost")
        )?;
        if number(g, "skipped") > 0 {
            writeln!(out, "  skipped because the dispatcher was too far behind: {}", n("skipped"))?;
        }
        if number(g, "to_host") > 0 {
            writeln!(out, "  to the host {}", n("to_host"))?;
        }
        for interface in interfaces {
            let (sent, failed) = (show_count(number(interface, "sent")), show_count(number(interface, "failed")));
            writeln!(out, "  through {}: sent {sent}, failed {failed}", text(interface, "interface"))?;
        }
        if number(g, "forward_lost") > 0 {
            writeln!(out, "  lost before the egress interface: {}", n("forward_lost"))?;
        }
        if number(g, "forward_own") > 0 {
            writeln!(out, "  not forwarded, sent by this host: {}", n("forward_own"))?;
        }
        for (name, part) in g["classes"].as_object().into_iter().flatten() {
            let [packets, copies, without_member, lost] =
                ["packets", "copies", "no_member", "lost"].map(|key| show_count(number(part, key)));
            writeln!(
                out,
                "  class {name}: {packets} packets, no member {without_member}, copies {copies}, lost {lost}"
            )?;
        }
        for (name, n) in g["counters"].as_object().into_iter().flatten() {
            // A counter may be negative.
            if let Some(n) = n.as_i64().filter(|n| *n != 0) {
                let sign = if n < 0 { "-" } else { "" };
                writeln!(out, "  counter {name}: {sign}{}", show_count(n.unsigned_abs()))?;
            }
        }
        for map in g["maps"].as_array().into_iter().flatten() {
            let [used, capacity, refused] = ["used", "capacity", "refused"].map(|key| show_count(number(map, key)));
            writeln!(out, "  map {}: {used} of {capacity} entries, refused {refused}", text(map, "map"))?;
        }
        if let Some(line) = fragments(&g["fragments"]) {
            writeln!(out, "  {line}")?;
        }
        if !members.is_empty() {
            let titles = ["delivered", "refused", "lost", "late"].map(|h| format!("{h:>14}")).concat();
            writeln!(out, "   slot  pid      weight  classes         {titles}   full  name")?;
        }
        for m in &members {
            let counts = ["delivered", "refused", "lost", "late"].map(|k| format!("{:>14}", show_count(number(m, k))));
            writeln!(
                out,
                "  {:>5}  {:<7}  {:>6}  {:<16}{}  {:>4.0}%  {}",
                number(m, "slot"),
                number(m, "pid"),
                number(m, "weight"),
                list_of(m, "classes").join(","),
                counts.concat(),
                m["fill"].as_f64().unwrap_or(0.0) * 100.0,
                text(m, "name")
            )?;
        }
        for m in members.iter().filter(|m| m["sink"].is_object()) {
            let (to, counts) = (text(m, "name"), &m["sink"]);
            let (sent, failed) = (show_count(number(counts, "sent")), show_count(number(counts, "failed")));
            let own = number(counts, "own_traffic");
            let own = if own > 0 {
                format!(", not sent again because it came from this host {}", show_count(own))
            } else {
                String::new()
            };
            writeln!(out, "  to {to}: sent {sent}, failed {failed}{own}")?;
        }
        if number(departed_counts, "delivered") + number(departed_counts, "lost") > 0 {
            writeln!(out, "  members that have left: {}", departed(departed_counts))?;
        }
        if number(departed_counts, "sent") + number(departed_counts, "failed") > 0 {
            let (sent, failed) =
                (show_count(number(departed_counts, "sent")), show_count(number(departed_counts, "failed")));
            writeln!(out, "  closed interfaces and files: sent {sent}, failed {failed}")?;
        }
        accounting_errors.iter().for_each(|c| sys::say!("netgrain: {c}"));
        for queue in unresponsive {
            let (interface, why) = (text(queue, "interface"), text(queue, "reason"));
            sys::say!("netgrain: queue {} of {interface}: {why}", number(queue, "queue"));
        }
    }
    Ok(Outcome::of(healthy))
}

/// The counters of fragment tracking; `None` if there were no fragments.
fn fragments(of: &Value) -> Option<String> {
    let n = |key: &str| show_count(number(of, key));
    let any = ["created", "orphaned"].iter().any(|key| number(of, key) > 0);
    any.then(|| {
        let (evicted, expired, replaced) = (n("evicted"), n("expired"), n("replaced"));
        format!(
            "fragments: first fragments {}, entries {} of {}, evicted {evicted}, expired {expired}, replaced \
             {replaced}; later fragments with their first {}, orphans {}",
            n("created"),
            n("entries"),
            n("capacity"),
            n("matched"),
            n("orphaned")
        )
    })
}

/// The counters of members that have left. A member updates its own counters with a delay, so those of a killed member
/// miss up to its last second.
fn departed(departed_counts: &Value) -> String {
    let n = |key: &str| show_count(number(departed_counts, key));
    let mut out = format!("delivered {}, lost {}, late {}", n("delivered"), n("lost"), n("late"));
    let unseen = number(departed_counts, "delivered").saturating_sub(number(departed_counts, "seen"));
    if unseen > 0 {
        out += &format!(", delivered but perhaps not read {}", show_count(unseen));
    }
    out
}

fn program(g: &Value) -> String {
    let text = match g["headline"].as_str() {
        None if g["hidden"] == true => "(visible only to its owner)",
        None => "copy",
        Some(text) => text,
    };
    // The program text may come from another user: control characters could manipulate this terminal.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= PROGRAM_WIDTH {
        return line;
    }
    line.chars().take(PROGRAM_WIDTH - 1).chain(['…']).collect()
}

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or_default()
}

fn number(v: &Value, key: &str) -> u64 {
    v[key].as_u64().unwrap_or_default()
}

fn list_of<'a>(v: &'a Value, key: &str) -> Vec<&'a str> {
    v[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fragment_counters_are_printed_only_if_there_were_fragments() {
        let mut of = json!({"created": 0, "entries": 0, "capacity": 16_384, "evicted": 0, "expired": 0, "replaced": 0, "matched": 0,
            "orphaned": 0});
        assert_eq!((fragments(&of), fragments(&Value::Null)), (None, None));
        for (key, n) in
            [("created", 20_000), ("entries", 10_000), ("evicted", 7000), ("expired", 2999), ("replaced", 1)]
        {
            of[key] = n.into();
        }
        (of["matched"], of["orphaned"]) = (40_000.into(), 5.into());
        let reported = "fragments: first fragments 20 000, entries 10 000 of 16 384, evicted 7 000, expired 2 999, \
            replaced 1; later fragments with their first 40 000, orphans 5";
        assert_eq!(fragments(&of).as_deref(), Some(reported));
    }

    #[test]
    fn counters_of_departed_members_include_unread_packets() {
        let mut departed_counts = json!({"delivered": 65_527, "lost": 15_772, "late": 10_358, "seen": 65_527});
        assert_eq!(departed(&departed_counts), "delivered 65 527, lost 15 772, late 10 358");
        departed_counts["seen"] = 65_000.into();
        let reported = "delivered 65 527, lost 15 772, late 10 358, delivered but perhaps not read 527";
        assert_eq!(departed(&departed_counts), reported);
    }
}
