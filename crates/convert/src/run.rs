//! The conversion loop: merges the inputs; filters, anonymises and truncates each packet; sorts the packets if the plan
//! requires it; writes them.

use crate::anonymise::Rewriter;
use crate::merge::{Input, Merge, Merged};
use crate::output::{Output, PacketMeta};
use crate::sort::SortWindow;
use crate::{DuplicateReport, Error, Files, Plan, Report, cut};
use base::Timestamp;
use base::memory::{Hints, NoHints};
use duplicates::Detector;
use std::io::Read;
use std::sync::atomic::Ordering;
use wire::{Headers, link};

/// Converts capture files. The inputs are merged in order of time. Of packets with equal timestamps, those of the
/// earlier input are first. The packets of one input keep their order.
///
/// A damaged input ends at the damage, and is listed in [`Report::damaged_inputs`].
///
/// # Errors
/// If the output cannot be written, or the format cannot hold the packets. Output files that were completed before the
/// error are not removed.
pub fn convert<R: Read, F: Files>(inputs: Vec<Input<R>>, plan: &Plan, files: &mut F) -> Result<Report, Error> {
    convert_with_hints(inputs, plan, files, NoHints)
}

/// As [`convert`], with hints for the memory of the table of duplicates.
///
/// # Errors
/// Those of [`convert`].
pub fn convert_with_hints<R: Read, F: Files>(
    inputs: Vec<Input<R>>,
    plan: &Plan,
    files: &mut F,
    hints: impl Hints,
) -> Result<Report, Error> {
    let link_type = inputs.first().map_or(pcap::ETHERNET, Input::link_type);
    let mut merge = Merge::new(inputs);
    let names: Vec<String> = merge.inputs().iter().map(|i| i.name().to_owned()).collect();
    let mut pipeline = PacketPipeline::new(plan, hints)?;
    let mut output = Output::new(files, plan)?;
    let mut window = plan.sort.map(SortWindow::new);
    let mut report = Report::default();
    while let Some(merged) = merge.next() {
        if plan.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            report.stopped = true;
            break;
        }
        report.read += 1;
        let Some((ts, data, meta)) = pipeline.take(&merged, &mut report) else {
            output.skip(&pipeline.meta(&merged));
            continue;
        };
        let Some(window) = &mut window else {
            output.write(ts, data, &meta, &names[meta.input])?;
            continue;
        };
        window.push(ts, data, meta);
        while let Some(held) = window.overflow() {
            output.write(held.ts(), &held.data, &held.meta, &names[held.meta.input])?;
        }
    }
    while let Some(held) = window.as_mut().and_then(SortWindow::pop) {
        output.write(held.ts(), &held.data, &held.meta, &names[held.meta.input])?;
    }
    output.finish(link_type)?;
    report.duplicates = pipeline
        .detector
        .as_ref()
        .map(|detector| DuplicateReport { counts: *detector.counts(), reach: detector.reach() });
    let (unstamped, wire_raised) = (merge.unstamped, merge.wire_raised);
    let format_losses =
        crate::FormatLosses { unstamped, wire_raised, without_fcs: report.format_losses.without_fcs, ..output.losses };
    Ok(Report {
        written: output.written,
        files: output.begun,
        bytes: output.bytes,
        out_of_order: if plan.sort.is_some() { 0 } else { merge.disordered },
        late: output.late,
        format_losses,
        damaged_inputs: merge.damaged,
        ..report
    })
}

/// Filters, anonymises and truncates each packet; contains the buffers for that.
struct PacketPipeline<'p, H> {
    plan: &'p Plan,
    /// The anonymised packet.
    changed: Vec<u8>,
    anonymiser: Option<Rewriter>,
    detector: Option<Detector<H>>,
}

/// The key of the hash. The key is constant, so that a conversion of the same files gives the same result each time.
const HASH_KEY: u64 = 0x6475_706c_6963_6174;

/// The number of an interface in the comparison of duplicates. If the numbers of two interfaces are equal, because an
/// input has more than 256 interfaces, only evidence is lost.
fn interface_number(merged: &Merged<'_>) -> u16 {
    (merged.input as u16) << 8 ^ merged.packet.interface as u16
}

impl<'p, H: Hints> PacketPipeline<'p, H> {
    fn new(plan: &'p Plan, hints: H) -> Result<Self, Error> {
        let anonymiser = plan.anonymise.as_ref().map(|a| a.rewriter());
        let settings = plan.duplicates.clone();
        let detector = settings.map(|settings| Detector::with_hints(settings, HASH_KEY, hints)).transpose()?;
        Ok(Self { plan, changed: Vec::new(), anonymiser, detector })
    }

    /// The packet to be written, or `None` if the interval or the filter excludes the packet, or if the packet is a
    /// duplicate. Counts the packet in the report.
    fn take<'a>(&'a mut self, merged: &Merged<'a>, report: &mut Report) -> Option<(Timestamp, &'a [u8], PacketMeta)> {
        let (plan, ts, packet) = (self.plan, merged.ts, &merged.packet);
        if ts < plan.from || ts > plan.to {
            report.outside += 1;
            return None;
        }
        // The frame check sequence is removed: neither pcap nor RAW files, as written here, can mark the last bytes of
        // a packet as a check sequence, and other programs would read them as payload.
        let wire_len = packet.wire_len.saturating_sub(u32::from(packet.fcs));
        let data = &packet.data[..packet.data.len().min(wire_len as usize)];
        let headers = Headers::of(data, wire_len, packet.link_type);
        if !link::is_understood(packet.link_type) && (plan.slice.is_some() || !plan.filter.is_empty()) {
            *report.unknown_link_types.entry(packet.link_type).or_default() += 1;
        }
        if !plan.filter.matches(data, wire_len, &headers) {
            report.filtered += 1;
            return None;
        }
        if let Some(detector) = &mut self.detector {
            let (link_type, interface) = (packet.link_type, interface_number(merged));
            if detector.inspect(&duplicates::Packet { ts, data, wire_len, link_type, interface }).is_some() {
                report.duplicate += 1;
                return None;
            }
        }
        report.format_losses.without_fcs += u64::from(packet.fcs > 0);
        let whole = data.len();
        let mut end = whole;
        if let Some(slice) = plan.slice {
            end = end.min(cut::kept(slice, data, &headers));
        }
        if plan.snaplen > 0 {
            end = end.min(plan.snaplen as usize);
        }
        let meta = PacketMeta { wire_len, ..self.meta(merged) };
        let data = match &mut self.anonymiser {
            None => &data[..end],
            Some(anonymiser) => {
                self.changed.clear();
                self.changed.extend_from_slice(data);
                let kept = anonymiser.rewrite(&mut self.changed, packet.link_type, &mut report.anonymised);
                &self.changed[..end.min(kept)]
            }
        };
        report.cut += u64::from(data.len() < whole);
        Some((ts, data, meta))
    }

    /// The metadata of a packet, whether it is written or skipped. The losses that a skipped packet records are added
    /// to the next packet of the same interface, so both packets must refer to the same interface description.
    fn meta(&self, merged: &Merged<'_>) -> PacketMeta {
        let packet = &merged.packet;
        PacketMeta {
            input: merged.input,
            interface: packet.interface,
            link_type: packet.link_type,
            // Interface descriptions are omitted, because names, comments and filters often contain addresses.
            described: if self.anonymiser.is_some() { None } else { merged.described.clone() },
            direction: packet.direction,
            drops: packet.drops,
            wire_len: packet.wire_len,
            offset: packet.offset,
        }
    }
}
