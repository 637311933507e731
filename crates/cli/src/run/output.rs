//! The output of a capture: its status once a second and its report at the end, as text or JSON.

use super::captures::CapturedInterface;
use crate::group::report::ReportedGroup;
use crate::group::show;
use crate::outcome::{Failure, json};
use crate::screen::{StatusLine, Warnings, data_types, summary};
use crate::{program, retain};
use engine::{Report, Retention, Second};
use std::io::Write;

/// The output while captures run. An output error never ends a capture: the status output ends, and the error is
/// returned at the end.
pub struct StatusOutput {
    format: StatusFormat,
    line: StatusLine,
    /// The warnings of each interface.
    warnings: Vec<Warnings>,
    failure: Option<Failure>,
}

enum StatusFormat {
    /// Status as JSON: one object for each interface.
    Json,
    /// Status as text: one line for all interfaces. Warnings are printed too.
    Line,
    /// No status; only warnings are printed.
    Quiet,
}

impl StatusOutput {
    /// Starts the output.
    pub fn new(json: bool, quiet: bool) -> Self {
        let format = match (json, quiet) {
            (_, true) => StatusFormat::Quiet,
            (true, false) => StatusFormat::Json,
            (false, false) => StatusFormat::Line,
        };
        Self { format, line: StatusLine::new(), warnings: Vec::new(), failure: None }
    }

    /// Prints the state of all interfaces.
    pub fn show(&mut self, interfaces: &[CapturedInterface], reports: &[Report]) {
        if let StatusFormat::Json = self.format {
            self.objects(interfaces, reports);
            return;
        }
        self.warnings.resize_with(reports.len(), Warnings::default);
        self.warnings.iter_mut().zip(reports).for_each(|(warnings, report)| warnings.print(report));
        if let StatusFormat::Line = self.format {
            self.line.show(reports);
        }
    }

    fn objects(&mut self, interfaces: &[CapturedInterface], reports: &[Report]) {
        if self.failure.is_some() {
            return;
        }
        for (interface, report) in interfaces.iter().zip(reports) {
            let kept = interface.retention.as_ref().map(Retention::report);
            if let Err(e) = json(&serde_json::json!({ "live": report, "retention": kept })) {
                let failure = Failure::from(e);
                match &failure {
                    Failure::ClosedPipe => {
                        sys::say!("netgrain: the reader of the reports closed the pipe; recording goes on")
                    }
                    Failure::Said(text) => sys::say!("netgrain: {text}; recording goes on without reports"),
                }
                self.failure = Some(failure);
                return;
            }
        }
    }

    /// Ends the output.
    ///
    /// # Errors
    /// The first output error, if there was any.
    pub fn done(self) -> Result<(), Failure> {
        self.line.done();
        self.failure.map_or(Ok(()), Err)
    }
}

/// Ends the retention of an interface and prints its report.
///
/// # Errors
/// An output error.
pub fn finish(interface: &mut CapturedInterface, report: &Report, as_json: bool) -> Result<(), Failure> {
    // Retention ends before the report is printed. So the report is the last line, and its number of removed files
    // includes all removals that were printed before.
    let kept = interface.retention.take().map(Retention::end);
    let groups = interface.capture.group_accounting();
    if as_json {
        let ledger: Vec<Second> = interface.capture.ledger().rows().map(|row| Second::from(&row)).collect();
        json(&serde_json::json!({ "report": report, "ledger": ledger, "retention": kept, "groups": groups }))?;
        return Ok(());
    }
    let program = report.program.as_ref().map(program::summary).unwrap_or_default();
    let data_types = report.meter.as_ref().map(data_types).unwrap_or_default();
    let kept = kept.as_ref().map(retain::summary).unwrap_or_default();
    std::io::stdout().write_all((summary(report) + &program + &data_types + &kept).as_bytes())?;
    if !groups.is_empty() {
        // Losses of members are reported, but do not make the recording incomplete.
        let _ = show::stats(&ReportedGroup::read_all(groups)?, false)?;
    }
    Ok(())
}
