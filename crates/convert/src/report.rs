//! What a conversion did, and what could not be kept.

use crate::Format;
use crate::anonymise::AnonymisationCounts;
use base::units::show_count;
use pcap::LinkType;
use std::collections::BTreeMap;

/// What became of the packets. `read = written + outside + filtered`.
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
    /// Of those written, packets of which less was kept than the input had.
    pub cut: u64,
    /// Files written.
    pub files: u64,
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Packets that are older than the one before in their own input.
    pub out_of_order: u64,
    /// Packets written that are older than the one before in the output.
    pub late: u64,
    /// Packets in the interval of each link type that is not understood, where the plan asks for what headers say.
    pub unknown_link_types: BTreeMap<u16, u64>,
    /// What the target could not hold.
    pub format_losses: FormatLosses,
    /// What was done to addresses.
    pub anonymised: AnonymisationCounts,
    /// Inputs that broke off.
    pub damaged_inputs: Vec<DamagedInput>,
    /// It was ended early by the flag in the plan.
    pub stopped: bool,
}

/// An input of which only the beginning could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedInput {
    /// Its name.
    pub input: String,
    /// The byte of its (unpacked) content at which the trouble begins.
    pub offset: u64,
    /// The trouble.
    pub reason: String,
}

/// What was in the inputs and is not in the output, in packets unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatLosses {
    /// Stamps that lost their nanoseconds.
    pub without_nanos: u64,
    /// Stamps after the year 2106, or for RAW at the epoch itself, that became the nearest that fits.
    pub clamped: u64,
    /// Packets without a stamp of their own, which got that of the packet before.
    pub unstamped: u64,
    /// Packets that say fewer bytes on the wire than were captured, and now say as many.
    pub wire_raised: u64,
    /// Packets whose direction is no longer told.
    pub without_direction: u64,
    /// Losses that the capturing program had told of, in lost packets.
    pub drops: u64,
    /// Interfaces that can no longer be told apart; 0 where there was one.
    pub interfaces: u64,
    /// Packets whose frame check sequence was taken off.
    pub without_fcs: u64,
    /// Packets longer than the format can hold, cut at its limit.
    pub over_long: u64,
    /// Packets whose length on the wire exceeds what the format can say.
    pub wire_len: u64,
}

impl Report {
    /// What people should know, a line for each thing.
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
