//! Advice for a program whose maps need too much memory: the largest capacity of its largest map that the limit
//! permits.

use ir::Map;
use jit::table::Table;

/// Returns a sentence that recommends a capacity for the largest map, so that all maps of the program together need at
/// most `bytes` bytes.
pub fn advice(maps: &[Map], bytes: u64) -> String {
    let Some(largest) = maps.iter().max_by_key(|map| Table::bytes_of(map)) else {
        return "the program has no maps".into();
    };
    let all = maps.iter().map(Table::bytes_of).fold(0, u64::saturating_add);
    let available = bytes.saturating_sub(all - Table::bytes_of(largest));
    let fits = |n: u32| Table::bytes_of(&Map { capacity: n, ..largest.clone() }) <= available;
    // Bisection: the maps fit with the capacity `low` and do not fit with `high`.
    let (mut low, mut high) = (0, largest.capacity);
    while high - low > 1 {
        let n = low + (high - low) / 2;
        if fits(n) { low = n } else { high = n }
    }
    let name = &largest.name;
    match low {
        0 => format!(
            "the other maps of the program leave no memory for {name} even with `up_to 1`; make all maps smaller"
        ),
        n => format!("write `up_to {n}` at {name}, the largest map, to stay within the limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(most: u32) -> Vec<Map> {
        let text = format!(
            "small = flow_map 0 key_ip_src\nm = idle_after 9 (up_to {most} (flow_map 1 key_5tuple))\n\
             main = incr_fstate small >-> incr_fstate m"
        );
        lang::compile(&text).expect("a valid program").program.maps
    }

    #[test]
    fn advice_names_the_capacity_that_fits() {
        const LIMIT: u64 = 200 << 20;
        let bytes = |most: u32| maps(most).iter().map(Table::bytes_of).sum::<u64>();
        let large = maps(60_000_000);
        let text = advice(&large, LIMIT);
        let n = text.split(['`', ' ']).find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        assert!(text.contains("at m, the largest"), "{text}");
        assert!(bytes(n) <= LIMIT && bytes(n + 1) > LIMIT, "{text}");
        assert!(advice(&large, 1000).contains("make all maps smaller"));
    }
}
