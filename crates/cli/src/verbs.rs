//! The verbs as one table: parsing, help, man pages and completions come from it. What a verb takes is in its own file.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Sees a network at every grain.
#[derive(Parser)]
#[command(name = "netgrain", version, about, propagate_version = true, max_term_width = 110)]
pub struct Netgrain {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Watch interfaces at every grain: packets, flow records and one row each second, stored and exported
    Run(Box<crate::run::RunArgs>),
    /// Record every packet of an interface, stamped and accounted for
    Record(Box<crate::record::RecordArgs>),
    /// Check or print the configuration of `netgrain run`
    Config(crate::config::ConfigArgs),
    /// Read along with a running engine from another process
    Listen(crate::listen::ListenArgs),
    /// Split what a running engine captures among programs that wait for it
    Group(Box<crate::group::GroupArgs>),
    /// Find packets again, by time and filter: in the ring, the open file and sealed files as one
    Packets(Box<crate::packets::PacketsArgs>),
    /// Find flow records by time and filter, add them up, rank them, and go on to their packets
    Flows(Box<crate::flows::FlowsArgs>),
    /// An interface's curve: packets, bytes, flows, bursts and losses of each second, or of steps
    Series(Box<crate::series::SeriesArgs>),
    /// Give foreign captures the index that makes them as quick to search as a store
    Index(Box<crate::index::IndexArgs>),
    /// Make room in a store: remove or archive the oldest files, by free space, size and age
    Retain(Box<crate::retain::RetainArgs>),
    /// Check a store or captures: order, checksums, counts, the ledger against the content, gaps
    Verify(Box<crate::verify::VerifyArgs>),
    /// Mend what a crash or a bad disk left of a store or a capture
    Repair(Box<crate::repair::RepairArgs>),
    /// Turn captures into captures: format, slice, split, merge, anonymise
    Convert(Box<crate::convert::ConvertArgs>),
    /// Find what makes capture fail, lose or lie on this machine, and mend it
    Doctor(Box<crate::doctor::DoctorArgs>),
    /// Send frames that carry their own truth
    Gen(crate::generate::GenArgs),
    /// Check stored frames of `netgrain gen` for missing, duplicated, reordered and damaged ones
    Check(crate::check::CheckArgs),
    /// Check, explain, tidy and try programs of the packet language
    Lang(Box<crate::lang::LangArgs>),
    /// Every grain on this machine in less than a minute: one incident walked through curve, flows and packets
    Demo(crate::demo::DemoArgs),
    /// Measure a stage by itself, with dummies in place of its neighbours
    Bench(crate::measure::BenchArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a folder
    #[command(hide = true)]
    Man { dir: PathBuf },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_is_sound() {
        Netgrain::command().debug_assert();
    }
}
