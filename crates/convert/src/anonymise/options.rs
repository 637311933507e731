//! Options of IPv4, IPv6 and TCP: options without addresses are kept, the others are blanked in place, so that all
//! lengths remain valid.

/// IPv4 options that are kept (RFC 791 §3.1, RFC 2113): end of options, no-operation, and router alert.
mod v4 {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const ROUTER_ALERT: u8 = 148;
}

/// TCP options that are kept (RFC 9293 §3.2, 7323, 2018): segment size, window scale, selective acknowledgements,
/// timestamps. Not kept are multipath TCP, which announces addresses, and TCP cookies and signatures.
mod tcp {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const KEPT: [u8; 5] = [2, 3, 4, 5, 8];
}

/// IPv6 options that are kept (RFC 8200 §4.2, 2711, 2675): padding, router alert, jumbo length.
mod v6 {
    pub const PAD1: u8 = 0;
    pub const PADN: u8 = 1;
    pub const KEPT: [u8; 2] = [5, 0xc2];
}

/// Replaces all IPv4 options that are not in the list of kept options by no-operations; returns the number of replaced
/// options.
pub fn blank_v4(options: &mut [u8]) -> u64 {
    blank(options, v4::END, v4::NOP, &[v4::ROUTER_ALERT])
}

/// Replaces all TCP options that are not in the list of kept options by no-operations; returns the number of replaced
/// options.
pub fn blank_tcp(options: &mut [u8]) -> u64 {
    blank(options, tcp::END, tcp::NOP, &tcp::KEPT)
}

/// IPv4 and TCP options have the same layout: a kind, a length and data, where the length includes all three; the kinds
/// `end` and `nop` are single bytes. Bytes after the end of options have no meaning and are blanked without being
/// counted. An option that exceeds the header is blanked to the end of the header.
fn blank(options: &mut [u8], end: u8, nop: u8, kept: &[u8]) -> u64 {
    let (mut at, mut blanked) = (0, 0);
    while at < options.len() {
        let kind = options[at];
        if kind == end {
            options[at..].fill(end);
            break;
        }
        if kind == nop {
            at += 1;
            continue;
        }
        let len = options.get(at + 1).map_or(0, |len| usize::from(*len));
        let fits = len >= 2 && at + len <= options.len();
        let next = if fits { at + len } else { options.len() };
        if !fits || !kept.contains(&kind) {
            options[at..next].fill(nop);
            blanked += 1;
        }
        at = next;
    }
    blanked
}

/// Replaces all IPv6 options that are not in the list of kept options by padding; returns the number of replaced
/// options. The length field of an IPv6 option counts only the bytes after it.
pub fn blank_v6(options: &mut [u8]) -> u64 {
    let (mut at, mut blanked) = (0, 0);
    while at < options.len() {
        if options[at] == v6::PAD1 {
            at += 1;
            continue;
        }
        let len = options.get(at + 1).map(|len| usize::from(*len) + 2);
        let Some(len) = len.filter(|len| at + len <= options.len()) else {
            options[at..].fill(v6::PAD1);
            return blanked + 1;
        };
        let (kind, data) = (options[at], at + 2..at + len);
        if !v6::KEPT.contains(&kind) {
            blanked += u64::from(kind != v6::PADN);
            options[at] = v6::PADN;
            options[data].fill(0);
        }
        at += len;
    }
    blanked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_route_is_blanked_and_router_alert_is_kept() {
        let mut options = [1, 148, 4, 0, 0, 7, 7, 4, 10, 1, 2, 3, 0, 99];
        assert_eq!(blank_v4(&mut options), 1);
        assert_eq!(options, [1, 148, 4, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn multipath_tcp_addresses_are_blanked_and_timestamps_are_kept() {
        let mut options = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 30, 8, 0x30, 1, 10, 1, 2, 3];
        assert_eq!(blank_tcp(&mut options), 1);
        assert_eq!(options, [8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn options_with_an_invalid_length_are_blanked_to_the_end() {
        for mut options in [[2, 9, 5, 5], [2, 0, 5, 5], [1, 1, 1, 2]] {
            assert_eq!(blank_tcp(&mut options), 1);
            assert_eq!(options, [1; 4]);
        }
        let mut options = [0, 5, 2, 0, 0, 201, 16, 1];
        assert_eq!(blank_v6(&mut options), 1);
        assert_eq!(options, [0, 5, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_home_address_becomes_padding_and_padding_is_zeroed() {
        let mut options = [201, 4, 1, 2, 3, 4, 1, 2, 9, 9];
        assert_eq!(blank_v6(&mut options), 1);
        assert_eq!(options, [1, 4, 0, 0, 0, 0, 1, 2, 0, 0]);
    }
}
