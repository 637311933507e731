//! A record as the filter sees it.

use filter::FlowTerms;
use flow::{DirectionStats, Record};

/// What `filter::FlowFilter` asks of a flow, out of its record.
///
/// A later record of a long flow says what its own period saw: a direction that was silent in it has no packets there.
#[inline]
pub fn terms(record: &Record) -> FlowTerms {
    let [there, back] = &record.directions;
    FlowTerms {
        src: record.key.src,
        dst: record.key.dst,
        src_port: record.key.src_port,
        dst_port: record.key.dst_port,
        protocol: record.key.protocol,
        vlans: record.encapsulation.vlans,
        macs: [there.mac, back.mac],
        mpls: record.encapsulation.mpls,
        packets: [there.packets, back.packets],
        bytes: [there.bytes, back.bytes],
        duration: record.last().since(record.first()).as_nanos() as u64,
        flags: [flags(there), flags(back)],
        state: record.tcp_state as u8,
        end: record.end_reason as u8,
        rtt: record.syn_rtt,
    }
}

/// The flags of TCP that a side sent, in the order of their bits.
fn flags(side: &DirectionStats) -> u8 {
    side.flags.iter().enumerate().fold(0, |bits, (i, packets)| bits | u8::from(*packets > 0) << i)
}

#[cfg(test)]
mod tests {
    use filter::flow::{END_REASONS, TCP_STATES};
    use flow::{EndReason, TcpState};

    #[test]
    fn the_words_of_filters_have_the_numbers_of_records() {
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
