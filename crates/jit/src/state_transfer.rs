//! Reports the state transfer when one program replaces another. A flow map that both programs define in the same way
//! retains its entries; the other flow maps of the new program start empty. The report names the maps that retained
//! their entries and the maps that start empty.

use ir::{Expiry, Map};
use serde::Serialize;
use std::fmt;

/// The result of a state transfer; see the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateTransfer {
    /// Names of the maps that retain their entries.
    pub kept: Vec<String>,
    /// The maps that both programs have and that start empty in the new program.
    pub restarted: Vec<RestartedMap>,
    /// Names of the maps that only the previous program had.
    pub dropped: Vec<String>,
}

/// A map that starts empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestartedMap {
    /// The map's name.
    pub map: String,
    /// The difference between the old and the new map that prevents the transfer of the entries.
    pub why: String,
}

impl StateTransfer {
    /// Compares the maps of two programs. The function `wall` gets the index of an old map and the index of a new map
    /// with the same definition. It returns the reason why the entries of the old map nevertheless cannot be
    /// transferred, or `None` if they can.
    pub fn between(old: &[Map], new: &[Map], wall: impl Fn(usize, usize) -> Option<&'static str>) -> Self {
        let mut transfer = Self::default();
        for (n, map) in new.iter().enumerate() {
            let Some((o, before)) = old.iter().enumerate().find(|(_, old)| old.name == map.name) else { continue };
            let mut why = differences(before, map);
            if why.is_empty() {
                why.extend(wall(o, n).map(str::to_owned));
            }
            if why.is_empty() {
                transfer.kept.push(map.name.clone());
            } else {
                transfer.restarted.push(RestartedMap { map: map.name.clone(), why: why.join(", ") });
            }
        }
        let gone = old.iter().filter(|old| !new.iter().any(|new| new.name == old.name));
        transfer.dropped = gone.map(|old| old.name.clone()).collect();
        transfer
    }

    /// True if neither program had state to transfer.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the reason why the entries of the flow maps in user space cannot be transferred, if one of the two programs
/// runs as machine code and the other in the interpreter: their tables have different layouts.
pub fn changes_form(was_native: bool, native: bool) -> Option<&'static str> {
    (was_native != native).then_some(if native { "now machine code" } else { "now interpreted" })
}

/// The location of a program's flow map: in the kernel or in user space, and in machine code or in the interpreter.
#[derive(Clone, Copy, Debug)]
pub struct MapState {
    /// True if the stages in the kernel use the map. Packets that the kernel leaves undecided then use a second map in
    /// user space.
    pub in_kernel: bool,
    /// True if the part of the program in user space is machine code.
    pub native: bool,
}

impl MapState {
    /// Returns the reason why the entries of a map with this location in the previous program cannot be transferred to
    /// the location `next` in the new program; `None` if they can.
    pub fn wall(self, next: Self) -> Option<&'static str> {
        let changes_form = changes_form(self.native, next.native);
        match (self.in_kernel, next.in_kernel) {
            (true, true) => {
                changes_form.map(|_| "only in user space, because the tables of machine code and interpreter differ")
            }
            (false, true) => Some("now in the kernel"),
            (true, false) => Some("now in user space"),
            (false, false) => changes_form,
        }
    }
}

fn differences(old: &Map, new: &Map) -> Vec<String> {
    let mut all = Vec::new();
    if (old.key, old.words) != (new.key, new.words) {
        all.push(format!("its key is {} instead of {}", new.key, old.key));
    }
    if old.capacity != new.capacity {
        all.push(format!("up_to {} instead of {}", new.capacity, old.capacity));
    }
    if old.expiry != new.expiry {
        all.push(format!("{} instead of {}", words(new.expiry), words(old.expiry)));
    }
    all
}

fn words(expiry: Expiry) -> String {
    match expiry {
        Expiry::Never => "without a timeout".into(),
        Expiry::Idle(ns) => format!("idle_after {} ms", ns as f64 / 1e6),
        Expiry::Lifetime(ns) => format!("for_ms {}", ns as f64 / 1e6),
    }
}

impl fmt::Display for StateTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.kept.is_empty() {
            parts.push(format!("keeps {}", self.kept.join(", ")));
        }
        parts.extend(self.restarted.iter().map(|RestartedMap { map, why }| format!("{map} starts empty ({why})")));
        if !self.dropped.is_empty() {
            parts.push(format!("forgets {}", self.dropped.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(source: &str) -> Vec<Map> {
        lang::compile(source).expect("sound").program.maps
    }

    #[test]
    fn every_map_of_both_programs_is_named_with_what_becomes_of_it_and_why() {
        let old = maps(
            "a = flow_map 0 key_5tuple\nb = up_to 1000 (flow_map 0 key_ip_src)\nc = flow_map 0 key_ip_src\n\
             main = incr_fstate a >-> incr_fstate b >-> incr_fstate c",
        );
        let new = maps(
            "a = flow_map 0 key_5tuple\nb = up_to 1200 (flow_map 0 key_ip_dst)\nd = flow_map 0 key_ip_src\n\
             main = incr_fstate a >-> incr_fstate b >-> incr_fstate d",
        );
        let transfer = StateTransfer::between(&old, &new, |_, _| None);
        let said =
            "keeps a; b starts empty (its key is ip_dst instead of ip_src, up_to 1200 instead of 1000); forgets c";
        assert_eq!(transfer.to_string(), said);
        let transfer = StateTransfer::between(&old, &new, |_, _| Some("now in the kernel"));
        assert!(transfer.to_string().starts_with("a starts empty (now in the kernel); b starts empty (its key"));
        assert!(StateTransfer::between(&[], &new, |_, _| None).is_empty(), "nothing was there before");
    }

    #[test]
    fn a_map_goes_on_where_it_was_and_in_the_form_that_it_had() {
        let at = |in_kernel, native| MapState { in_kernel, native };
        let wall = |was: MapState, now: MapState| was.wall(now);
        for native in [false, true] {
            assert_eq!(wall(at(true, native), at(true, native)), None);
            assert_eq!(wall(at(false, native), at(false, native)), None);
            assert_eq!(wall(at(false, native), at(true, true)), Some("now in the kernel"));
            assert_eq!(wall(at(true, native), at(false, true)), Some("now in user space"));
        }
        assert_eq!(wall(at(false, true), at(false, false)), Some("now interpreted"));
        let apart = wall(at(true, true), at(true, false)).expect("the entries in user space are lost");
        assert!(apart.starts_with("only in user space"), "{apart}");
    }
}
