//! The words of the primitives that test flow records: quantities and their units, TCP flags, and the names of TCP states
//! and of flow end reasons.

use crate::tree::Quantity;

/// Primitives for flow records.
pub const OF_FLOWS: [&str; 10] = ["bytes", "packets", "duration", "bps", "pps", "bpp", "rtt", "flags", "state", "end"];

/// Names of TCP states; the index is the number of the state in flow records. Number 0 (not TCP) has no name.
pub const TCP_STATES: [&str; 8] =
    ["", "midstream", "syn_sent", "syn_received", "established", "half_closed", "closed", "reset"];

/// Names of flow end reasons; the index is the number in flowEndReason (IPFIX element 136). Number 0 has no name.
pub const END_REASONS: [&str; 6] =
    ["", "idle_timeout", "active_timeout", "end_of_flow", "forced_end", "lack_of_resources"];

/// The quantity of a flow record (such as its duration) that has this name in filters.
pub fn quantity(name: &str) -> Option<Quantity> {
    Some(match name {
        "bytes" => Quantity::Bytes,
        "packets" => Quantity::Packets,
        "duration" => Quantity::Duration,
        "bps" => Quantity::BitRate,
        "pps" => Quantity::PacketRate,
        "bpp" => Quantity::PacketSize,
        "rtt" => Quantity::RoundTrip,
        _ => return None,
    })
}

/// True if a flow record contains this quantity separately for initiator and responder.
pub const fn has_directions(quantity: Quantity) -> bool {
    !matches!(quantity, Quantity::Duration | Quantity::RoundTrip)
}

/// The TCP flags as a bit mask, from their letters.
pub fn flags(text: &str) -> Option<u8> {
    const LETTERS: &str = "FSRPAUEC";
    let bit = |c: char| LETTERS.find(c.to_ascii_uppercase()).map(|i| 1 << i);
    text.chars().try_fold(0_u8, |bits, c| Some(bits | bit(c)?)).filter(|bits| *bits != 0)
}

/// Returns the letters of a set of TCP flags in which a dot stands for a flag that is not set (`.S....`, `...AP.`).
pub fn dotted_flags(text: &str) -> Option<String> {
    let is_flags = text.contains('.') && text.chars().all(|c| c == '.' || "FSRPAUECfsrpauec".contains(c));
    let letters: String = text.chars().filter(|c| *c != '.').collect();
    (is_flags && !letters.is_empty()).then(|| letters.to_ascii_uppercase())
}

/// Parses an amount with its unit, and converts it to the base unit of the quantity.
pub fn amount(text: &str, quantity: Quantity) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (units, example): (&[(&str, u64)], _) = match quantity {
        Quantity::Duration | Quantity::RoundTrip => (
            &[
                ("ns", 1),
                ("us", 1000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("m", 60_000_000_000),
                ("h", 3_600_000_000_000),
                ("d", 86_400_000_000_000),
            ],
            "`10s`, `20ms` or `1.5h`",
        ),
        _ => (
            &[
                ("", 1),
                ("k", 1000),
                ("K", 1000),
                ("M", 1_000_000),
                ("G", 1_000_000_000),
                ("T", 1_000_000_000_000),
                ("Ki", 1 << 10),
                ("Mi", 1 << 20),
                ("Gi", 1 << 30),
                ("Ti", 1 << 40),
            ],
            "`1500`, `10k`, `1M` or `1.5G` (`Ki`, `Mi` and `Gi` are powers of 1024)",
        ),
    };
    let wrong = || match quantity {
        Quantity::Duration | Quantity::RoundTrip if unit.is_empty() && number.parse::<u64>().is_ok() => {
            format!("the unit is missing; write `{number}ms` or `{number}s`")
        }
        _ if unit == "m" => format!("write `{number}M`"),
        _ => format!("not an amount; write a number with its unit, such as {example}"),
    };
    let factor = units.iter().find(|u| u.0 == unit).map(|u| u.1);
    // Zero needs no unit.
    let factor = factor.or((number == "0" && unit.is_empty()).then_some(1)).ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > 9 || part.contains('.') {
        return Err(wrong());
    }
    let whole: u128 = whole.parse().map_err(|_| wrong())?;
    let tenths = 10_u128.pow(part.len() as u32);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().map_err(|_| wrong())? };
    let all = whole.checked_mul(tenths).and_then(|n| n.checked_add(part)).and_then(|n| n.checked_mul(factor.into()));
    all.map(|n| n / tenths).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| "it is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units() {
        let of = |text, q| amount(text, q).ok();
        assert_eq!((of("1M", Quantity::Bytes), of("1.5k", Quantity::Packets)), (Some(1_000_000), Some(1500)));
        assert_eq!((of("2Mi", Quantity::Bytes), of("0", Quantity::Duration)), (Some(2 << 20), Some(0)));
        assert_eq!(
            (of("1.5s", Quantity::Duration), of("20ms", Quantity::RoundTrip)),
            (Some(1_500_000_000), Some(20_000_000))
        );
        for (text, q) in [
            ("10", Quantity::Duration),
            ("1s", Quantity::Bytes),
            ("", Quantity::Bytes),
            (".", Quantity::Bytes),
            ("99999999999999999999", Quantity::Bytes),
        ] {
            assert_eq!(of(text, q), None, "{text}");
        }
    }
}
