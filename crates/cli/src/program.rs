//! The packet program of an interface, for `record` and `run`: its flags, its swap at SIGHUP, and its report.

use crate::outcome::Failure;
use clap::Args;
use engine::Capture;
use interface_program::{MapUsage, ProgramPlan, ProgramReport};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The flags.
#[derive(Args, Clone, Debug, Default)]
pub struct PortProgramArgs {
    /// File with a program of the packet language that decides on every packet before it is stored, in the kernel as
    /// far as possible (docs/design/kernel-programs.md); SIGHUP rereads it
    #[arg(long, value_name = "FILE", conflicts_with = "expression")]
    pub program: Option<PathBuf>,
    /// Text of a program of the packet language, in place of the file of --program
    #[arg(short = 'e', long, value_name = "PROGRAM")]
    pub expression: Option<String>,
}

/// Swaps the program of a running capture; returns the result in one line.
pub fn swap(capture: &Capture, plan: &ProgramPlan) -> Result<String, Failure> {
    match capture.swap_program(plan)? {
        None => Ok(format!("program {} has not changed", plan.name)),
        Some(report) => Ok(description(&report)),
    }
}

/// A description of the way in which the program runs, in one line.
pub fn description(r: &ProgramReport) -> String {
    let mut out = format!("program {} (generation {}): ", r.name, r.generation);
    let user = if r.native { "machine code" } else { "interpreted" };
    match (r.in_kernel, &r.kernel_refusal) {
        (0, Some(why)) => _ = write!(out, "all {} stages in user space, {user}: {why}", r.stages),
        (0, None) => _ = write!(out, "all {} stages in user space, {user}", r.stages),
        (n, _) => {
            let verified = r.verified_instructions;
            _ = write!(out, "{n} of {} stages in the kernel, {verified} instructions verified", r.stages);
            _ = write!(out, "; loaded in {:.1} ms, swapped in {:.1} ms", r.load_ms, r.swap_ms);
        }
    }
    if !r.state_transfer.is_empty() {
        _ = write!(out, "; {}", r.state_transfer);
    }
    if let Some(why) = &r.native_refusal {
        _ = write!(out, "; the user part is interpreted: {why}");
    }
    if !r.kernel_maps.is_empty() {
        let maps = r.kernel_maps.join(", ");
        _ = write!(
            out,
            "; undecided packets have entries of their own in user space, apart from those of {maps} in the kernel \
             (docs/design/kernel-programs.md)"
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
        _ = writeln!(
            out,
            "  {:<14}{:>18} of packets that were stored, forwarded or passed to the host",
            "unsent copies", user.copies_unsent
        );
    }
    if r.undecided > 0 {
        _ = writeln!(out, "  {:<14}{:>18} in the kernel; user space decided these packets", "undecided", r.undecided);
    }
    if user.forward_own > 0 {
        _ = writeln!(
            out,
            "  {:<14}{:>18} packets not forwarded, because this host had sent them",
            "withheld", user.forward_own
        );
    }
    for map in &r.maps {
        let in_user = Some(map.user).filter(|user| map.kernel.is_none() || user.used > Some(0) || user.refused > 0);
        for (place, usage) in [("in the kernel", map.kernel), ("in user space", in_user)] {
            let Some(MapUsage { used, capacity, refused }) = usage else { continue };
            let used = used.map_or("more than 1000".into(), |n| n.to_string());
            _ = writeln!(out, "  map {:<10}{used:>18} of {capacity} entries {place}, {refused} refused", map.map);
        }
    }
    for (counter, n) in &r.counters {
        _ = writeln!(out, "  {:<14}{n:>18}", format!("counter {counter}"));
    }
    out
}
