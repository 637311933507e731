//! The values of a flow record that a flow filter tests.

use filter::FlowTerms;
use flow::{DirectionStats, Record};

/// The values of a record that `filter::FlowFilter` tests.
///
/// A further record of a long flow has the counters of its own period: a direction without packets in this period has 0
/// packets.
#[inline]
pub fn terms(record: &Record) -> FlowTerms {
    let [forward, reverse] = &record.directions;
    FlowTerms {
        src: record.key.src,
        dst: record.key.dst,
        src_port: record.key.src_port,
        dst_port: record.key.dst_port,
        protocol: record.key.protocol,
        vlans: record.encapsulation.vlans,
        macs: [forward.mac, reverse.mac],
        mpls: record.encapsulation.mpls,
        packets: [forward.packets, reverse.packets],
        bytes: [forward.bytes, reverse.bytes],
        duration: record.last().since(record.first()).as_nanos() as u64,
        flags: [flags(forward), flags(reverse)],
        state: record.tcp_state as u8,
        end: record.end_reason as u8,
        rtt: record.syn_rtt,
    }
}

/// The TCP flags that occurred in a direction, one bit each.
fn flags(counters: &DirectionStats) -> u8 {
    counters.flags.iter().enumerate().fold(0, |bits, (i, packets)| bits | u8::from(*packets > 0) << i)
}

#[cfg(test)]
mod tests {
    use filter::flow::{END_REASONS, TCP_STATES};
    use flow::{EndReason, TcpState};

    #[test]
    fn names_in_filters_have_the_numbers_of_the_record_enums() {
        let states =
            [("established", TcpState::Established), ("reset", TcpState::Reset), ("midstream", TcpState::Midstream)];
        for (word, state) in states {
            assert_eq!(TCP_STATES[state as usize], word);
        }
        for (word, end) in [
            ("idle_timeout", EndReason::IdleTimeout),
            ("end_of_flow", EndReason::EndOfFlow),
            ("lack_of_resources", EndReason::LackOfResources),
        ] {
            assert_eq!(END_REASONS[end as usize], word);
        }
    }
}
