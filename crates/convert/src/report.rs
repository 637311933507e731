//! The counters of a conversion, and the information that it could not preserve.

use crate::Format;
use crate::anonymise::AnonymisationCounts;
use base::units::show_count;
use pcap::LinkType;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters of packets. `read = written + outside + filtered + duplicate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of packets in the inputs.
    pub read: u64,
    /// Number of packets that were written.
    pub written: u64,
    /// Number of packets outside of the interval.
    pub outside: u64,
    /// Number of packets in the time interval that did not match the filter.
    pub filtered: u64,
    /// Number of duplicates that were removed.
    pub duplicate: u64,
    /// The counters of the comparison with earlier packets; `None` if the plan does not remove duplicates.
    pub duplicates: Option<DuplicateReport>,
    /// Number of written packets that are shorter than in the input.
    pub cut: u64,
    /// Number of files that were written.
    pub files: u64,
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Number of packets whose timestamp is earlier than the timestamp of the preceding packet of the same input.
    pub out_of_order: u64,
    /// Number of packets that were written after a packet with a later timestamp.
    pub late: u64,
    /// Number of packets in the interval for each unsupported link type; counted only if the plan has a filter or
    /// truncates by headers.
    pub unknown_link_types: BTreeMap<u16, u64>,
    /// Counters of the information that the target format could not hold.
    pub format_losses: FormatLosses,
    /// Counters of the anonymisation.
    pub anonymised: AnonymisationCounts,
    /// The inputs that are damaged, so that only the packets before the damage were converted.
    pub damaged_inputs: Vec<DamagedInput>,
    /// True if the stop flag of the plan ended the conversion early.
    pub stopped: bool,
}

/// The result of the removal of duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateReport {
    /// The counters by class.
    pub counts: duplicates::Counts,
    /// The reach of the table at the end.
    pub reach: Duration,
}

/// An input of which only the beginning could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedInput {
    /// The name of the input.
    pub input: String,
    /// Offset of the damage in the (decompressed) content of the input.
    pub offset: u64,
    /// A description of the damage.
    pub reason: String,
}

/// Counters of information that the inputs contain and the output does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatLosses {
    /// Number of timestamps whose nanoseconds were cut to microseconds.
    pub without_nanos: u64,
    /// Number of timestamps after the year 2106, or for RAW at the epoch itself, that were replaced by the nearest
    /// representable timestamp.
    pub clamped: u64,
    /// Number of packets without a timestamp, to which the timestamp of the preceding packet of the input was given.
    pub unstamped: u64,
    /// Number of packets whose wire length was less than their captured length; the captured length was written as the
    /// wire length.
    pub wire_raised: u64,
    /// Number of packets whose direction (received or sent) the output format cannot store.
    pub without_direction: u64,
    /// Number of packets that the capturing program lost, if the inputs record this loss and the output does not.
    pub drops: u64,
    /// Number of interfaces that can no longer be distinguished; 0 if there was only one interface.
    pub interfaces: u64,
    /// Number of packets whose frame check sequence was removed.
    pub without_fcs: u64,
    /// Number of packets that were longer than the format can hold, and were truncated at its limit.
    pub over_long: u64,
    /// Number of packets whose wire length exceeds the range of the format.
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
        let mut warn = |count: u64, text: &str| {
            if count > 0 {
                lines.push(format!("{} {text}", show_count(count)));
            }
        };
        warn(
            self.out_of_order,
            "packets have a timestamp before that of the preceding packet of the same input; --sort puts them in order",
        );
        warn(self.late, "packets were written after a packet with a later timestamp");
        warn(
            without_nanos,
            &format!("timestamps lost their nanoseconds: {format} has microseconds; choose pcap to keep nanoseconds"),
        );
        warn(
            clamped,
            &format!(
                "timestamps are out of the range of {format} and were replaced by the nearest timestamp in the range"
            ),
        );
        warn(unstamped, "packets have no timestamp and got that of the preceding packet");
        warn(
            without_direction,
            &format!("packets have a direction (received or sent), which {format} cannot store; pcapng can"),
        );
        warn(
            drops,
            match format {
                Format::PcapNg => {
                    "lost packets that the capturing program recorded after the last written packet are not recorded \
                     in the output"
                }
                _ => {
                    "lost packets that the capturing program recorded are not recorded in the output; pcapng can hold \
                     them"
                }
            },
        );
        warn(
            interfaces,
            &format!("interfaces cannot be distinguished in {format}; pcapng stores the interface of each packet"),
        );
        warn(without_fcs, "packets lost their frame check sequence");
        warn(
            self.format_losses.over_long,
            &format!("packets are longer than {format} can hold and were truncated at its limit"),
        );
        warn(self.format_losses.wire_len, &format!("packets have a wire length that exceeds the range of {format}"));
        lines.extend((wire_raised > 0).then(|| pcap::wire_raised(wire_raised)));
        lines.extend(self.unknown_link_types.iter().map(|(link_type, packets)| {
            format!(
                "{} packets have link type {}, which is not supported: only the filters `len`, `less`, `greater` and \
                 `link[…]` match them, and --slice does not truncate them",
                show_count(*packets),
                LinkType(*link_type)
            )
        }));
        lines.extend(self.anonymised.warnings());
        lines.extend(self.damaged_inputs.iter().map(|d| {
            let (input, offset, advice) = (&d.input, d.offset, repair_advice(&d.input));
            format!("{input}: byte {offset}: {}; everything before this byte was converted{advice}", d.reason)
        }));
        lines
    }
}

/// The command that saves the records after the broken record of an input; empty for standard input and compressed
/// captures, which `netgrain repair` does not read.
fn repair_advice(input: &str) -> String {
    match input == "-" || [".gz", ".zst"].iter().any(|ending| input.ends_with(ending)) {
        true => String::new(),
        false => format!("; netgrain repair {input} saves the complete records after this byte, if there are any"),
    }
}
