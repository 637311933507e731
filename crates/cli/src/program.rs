//! The packet program of an interface, for `record` and `run`: its source text, its exchange at SIGHUP, and its report.

use crate::outcome::Failure;
use clap::Args;
use engine::{Capture, MapUsage, ProgramPlan, ProgramReport};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The flags.
#[derive(Args, Clone, Debug, Default)]
pub struct PortProgramArgs {
    /// File with a program of the packet language that judges every packet before it is stored, in the kernel as far as
    /// it can (docs/design/kernel-programs.md); SIGHUP reads it again
    #[arg(long, value_name = "FILE", conflicts_with = "expression")]
    pub program: Option<PathBuf>,
    /// The same, given here
    #[arg(short = 'e', long, value_name = "PROGRAM")]
    pub expression: Option<String>,
}

impl PortProgramArgs {
    /// The program plan for the engine, if there is a program.
    pub fn plan(&self) -> Result<Option<ProgramPlan>, Failure> {
        match (&self.expression, &self.program) {
            (Some(text), _) => Ok(Some(ProgramPlan { name: "-e".into(), text: text.clone() })),
            (None, Some(path)) => read(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Reads the program from a file.
pub fn read(path: &Path) -> Result<ProgramPlan, Failure> {
    config::read_program(path).map_err(Failure::say)
}

/// Exchanges the program of a running capture; returns the result in one line.
pub fn exchange(capture: &Capture, plan: &ProgramPlan) -> Result<String, Failure> {
    match capture.swap_program(plan)? {
        None => Ok(format!("program {} is as it was", plan.name)),
        Some(report) => Ok(description(&report)),
    }
}

/// The way the program runs, in one line.
pub fn description(r: &ProgramReport) -> String {
    let mut out = format!("program {} (generation {}): ", r.name, r.generation);
    let user = if r.native { "machine code" } else { "interpreted" };
    match (r.in_kernel, &r.kernel_refusal) {
        (0, Some(why)) => _ = write!(out, "all {} stages in user space, {user}: {why}", r.stages),
        (0, None) => _ = write!(out, "all {} stages in user space, {user}", r.stages),
        (n, _) => {
            let verified = r.verified_instructions;
            _ = write!(out, "{n} of {} stages in the kernel, {verified} instructions verified", r.stages);
            _ = write!(out, "; loaded in {:.1} ms, exchanged in {:.1} ms", r.load_ms, r.swap_ms);
        }
    }
    if !r.state_transfer.is_empty() {
        _ = write!(out, "; {}", r.state_transfer);
    }
    if let Some(why) = &r.native_refusal {
        _ = write!(out, "; the user half is interpreted: {why}");
    }
    if !r.kernel_maps.is_empty() {
        let maps = r.kernel_maps.join(", ");
        _ = write!(
            out,
            "; what the kernel leaves undecided is remembered apart from its {maps} (docs/design/kernel-programs.md)"
        );
    }
    out
}

/// The counters of the program, for the summary at the end.
pub fn summary(r: &ProgramReport) -> String {
    let mut out = format!("{}\n", description(r));
    let (kernel, user) = (&r.kernel, &r.user);
    for (name, in_kernel, in_user) in [
        ("dropped", kernel.dropped, user.dropped),
        ("forwarded", kernel.forwarded, user.forwarded),
        ("to host", kernel.to_host, user.to_host),
        ("not sent", kernel.unsent, user.unsent),
    ] {
        if in_kernel + in_user > 0 {
            _ = writeln!(out, "  {name:<14}{in_kernel:>18} in the kernel, {in_user} in user space");
        }
    }
    if user.copies > 0 {
        _ = writeln!(out, "  {:<14}{:>18} of stored packets", "copies", user.copies);
    }
    if user.copies_unsent > 0 {
        _ = writeln!(out, "  {:<14}{:>18} of packets that went another way as well", "not copied", user.copies_unsent);
    }
    if r.undecided > 0 {
        _ = writeln!(out, "  {:<14}{:>18} by the kernel, judged in user space", "undecided", r.undecided);
    }
    if user.forward_own > 0 {
        _ = writeln!(
            out,
            "  {:<14}{:>18} forwards, because this host had sent the packet",
            "withheld", user.forward_own
        );
    }
    for map in &r.maps {
        let in_user = Some(map.user).filter(|user| map.kernel.is_none() || user.used > Some(0) || user.refused > 0);
        for (place, it) in [("in the kernel", map.kernel), ("in user space", in_user)] {
            let Some(MapUsage { used, capacity: most, refused }) = it else { continue };
            let used = used.map_or("more than 1000".into(), |n| n.to_string());
            _ = writeln!(out, "  map {:<10}{used:>18} of {most} entries {place}, {refused} refused", map.map);
        }
    }
    for (counter, n) in &r.counters {
        _ = writeln!(out, "  {:<14}{n:>18}", format!("counter {counter}"));
    }
    out
}
