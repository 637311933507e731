//! The counters of a conversion, and the information that it could not preserve.

use crate::Format;
use crate::anonymise::AnonymisationCounts;
use base::units::show_count;
use pcap::LinkType;
use std::collections::BTreeMap;

/// Counters of packets. `read = written + outside + filtered`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Packets in the inputs.
    pub read: u64,
    /// Packets written.
    pub written: u64,
    /// Packets outside of the interval.
    pub outside: u64,
    /// Packets within it that did not match the filter.
    pub filtered: u64,
    /// Of those written, packets that were truncated further than in the input.
    pub cut: u64,
    /// Files written.
    pub files: u64,
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Packets with a timestamp before that of the preceding packet of the same input.
    pub out_of_order: u64,
    /// Packets written with a timestamp before that of the preceding packet of the output.
    pub late: u64,
    /// Packets in the interval by unknown link type, if the plan depends on headers.
    pub unknown_link_types: BTreeMap<u16, u64>,
    /// Information that the target format could not hold.
    pub format_losses: FormatLosses,
    /// Counters of the anonymisation.
    pub anonymised: AnonymisationCounts,
    /// Inputs whose end could not be read.
    pub damaged_inputs: Vec<DamagedInput>,
    /// True if the plan's flag ended the conversion early.
    pub stopped: bool,
}

/// An input of which only the beginning could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedInput {
    /// Its name.
    pub input: String,
    /// Offset of the damage in its (decompressed) content.
    pub offset: u64,
    /// A description of the damage.
    pub reason: String,
}

/// Information in the inputs that is not in the output, in packets unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatLosses {
    /// Timestamps that lost their nanoseconds.
    pub without_nanos: u64,
    /// Timestamps after the year 2106, or for RAW at the epoch itself, that were replaced by the nearest representable
    /// one.
    pub clamped: u64,
    /// Packets without a timestamp, which got that of the preceding packet.
    pub unstamped: u64,
    /// Packets whose wire length was less than their captured length, and was raised to it.
    pub wire_raised: u64,
    /// Packets that lost their direction.
    pub without_direction: u64,
    /// Losses that the capturing program had recorded, in lost packets.
    pub drops: u64,
    /// Interfaces that can no longer be distinguished; 0 if there was only one.
    pub interfaces: u64,
    /// Packets whose frame check sequence was removed.
    pub without_fcs: u64,
    /// Packets longer than the format can hold, truncated at its limit.
    pub over_long: u64,
    /// Packets whose wire length exceeds the range of the format.
    pub wire_len: u64,
}

impl Report {
    /// Warnings for people, one per line.
    pub fn warnings(&self, format: Format) -> Vec<String> {
        let FormatLosses {
            without_nanos,
            clamped,
            unstamped,
            wire_raised,
            without_direction,
            drops,
            interfaces,
            without_fcs,
            ..
        } = self.format_losses;
        let mut lines = Vec::new();
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                lines.push(format!("{} {what}", show_count(count)));
            }
        };
        say(self.out_of_order, "packets are older than the one before in their own input; --sort puts them in order");
        say(self.late, "packets are written behind a later one");
        say(without_nanos, &format!("stamps lost their nanoseconds: {format} has none; pcap has"));
        say(clamped, &format!("stamps do not fit {format} and became the nearest that does"));
        say(unstamped, "packets have no stamp of their own and got that of the packet before");
        say(wire_raised, "packets say fewer bytes on the wire than were captured, and now say as many");
        say(without_direction, &format!("packets had a direction, which {format} cannot tell; pcapng can"));
        say(
            drops,
            match format {
                Format::PcapNg => {
                    "packets that the capturing program had lost behind the last one written are not told of"
                }
                _ => "packets that the capturing program had lost are not told of; pcapng could",
            },
        );
        say(interfaces, &format!("interfaces can no longer be told apart in {format}; pcapng keeps them"));
        say(without_fcs, "packets lost their frame check sequence");
        say(
            self.format_losses.over_long,
            &format!("packets are longer than {format} can hold and were cut at its limit"),
        );
        say(self.format_losses.wire_len, &format!("packets were longer on the wire than {format} can say"));
        lines.extend(self.unknown_link_types.iter().map(|(link_type, packets)| {
            format!(
                "{} packets are of link type {}, which is not understood: no filter but `less` and `greater` matches them, \
                 and they are not cut by headers",
                show_count(*packets),
                LinkType(*link_type)
            )
        }));
        lines.extend(self.anonymised.warnings());
        lines.extend(
            self.damaged_inputs
                .iter()
                .map(|b| format!("{}: byte {}: {}; what precedes is converted", b.input, b.offset, b.reason)),
        );
        lines
    }
}
