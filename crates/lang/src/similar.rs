//! Suggests names of functions and bindings for a misspelt name.

use base::nearest;

/// The maximum number of suggested names.
const MAX: usize = 3;

/// A question that suggests the names in `known` that `name` may stand for; `None` if no name is near. The suggested
/// names are the first of these that exist: names of which `name` is the first word (`steer` of `steer_flow`), the name
/// with the least edit distance, and names whose first word is near (`sterr` for `steer_flow`).
pub fn suggestion(name: &str, known: &[&str]) -> Option<String> {
    let mut near = with_first_word(name, known);
    if near.is_empty() {
        near.extend(nearest(name, known.iter().copied()));
    }
    // A name with a digit is more probably a value without quotes, such as the interface `eth1`.
    if near.is_empty() && !name.contains(|c: char| c.is_ascii_digit()) {
        let words = known.iter().filter_map(|known| Some(known.split_once('_')?.0));
        near = nearest(name, words).map(|word| with_first_word(word, known)).unwrap_or_default();
    }
    let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(", ")))
}

/// The names that consist of `word`, an underscore and more. Shorter names come first, because a shorter name is
/// usually that of the more general function.
fn with_first_word<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    let begins = |known: &&&str| known.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'));
    let mut begun: Vec<&str> = known.iter().filter(begins).copied().collect();
    begun.sort_by_key(|known| known.len());
    begun.truncate(MAX);
    begun
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_and_names_with_a_near_first_word_are_suggested() {
        let known = ["steer_flow", "steer_ip", "steer_vlan_id", "steer_packet", "drop", "is_udp"];
        let steer = Some("did you mean `steer_ip`, `steer_flow`, `steer_packet`?".to_owned());
        assert_eq!(suggestion("steer", &known), steer);
        assert_eq!(suggestion("sterr", &known), steer);
        assert_eq!(suggestion("steer_fow", &known).as_deref(), Some("did you mean `steer_flow`?"));
        assert_eq!(suggestion("dorp", &known).as_deref(), Some("did you mean `drop`?"));
        assert_eq!(suggestion("balance", &known), None);
        assert_eq!(suggestion("steer1", &known), None);
        assert_eq!(suggestion("x", &[]), None);
    }
}
