//! The largest permitted capacity of a program's largest map, for a program whose maps are too large together.

use ir::Map;
use jit::table::Table;

/// Returns advice about the capacity with which the maps take at most `bytes` bytes.
pub fn advice(maps: &[Map], bytes: u64) -> String {
    let Some(largest) = maps.iter().max_by_key(|map| Table::bytes_of(map)) else { return "it has none".into() };
    let all = maps.iter().map(Table::bytes_of).fold(0, u64::saturating_add);
    let room = bytes.saturating_sub(all - Table::bytes_of(largest));
    let fits = |n: u32| Table::bytes_of(&Map { capacity: n, ..largest.clone() }) <= room;
    // Bisection: `low` fits and `high` does not.
    let (mut low, mut high) = (0, largest.capacity);
    while high - low > 1 {
        let n = low + (high - low) / 2;
        if fits(n) { low = n } else { high = n }
    }
    let name = &largest.name;
    match low {
        0 => format!("there is no room beside its other maps even for `up_to 1` at {name}; make all of them smaller"),
        n => format!("write `up_to {n}` at {name}, the largest, and it fits"),
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
        lang::compile(&text).expect("sound").program.maps
    }

    #[test]
    fn advice_names_the_capacity_that_fits() {
        const ROOM: u64 = 200 << 20;
        let bytes = |most: u32| maps(most).iter().map(Table::bytes_of).sum::<u64>();
        let large = maps(60_000_000);
        let text = advice(&large, ROOM);
        let n = text.split(['`', ' ']).find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        assert!(text.contains("at m, the largest"), "{text}");
        assert!(bytes(n) <= ROOM && bytes(n + 1) > ROOM, "{text}");
        assert!(advice(&large, 1000).contains("make all of them smaller"));
    }
}
