//! Measurements: each stage by itself, with dummies in place of its neighbours, so that the bottleneck has a name.
#![forbid(unsafe_code)]

use std::io::Write;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Stage {
    /// The ring: one producer, listeners in other processes
    Ring,
}

impl Stage {
    /// Measures and prints.
    ///
    /// # Errors
    /// In one line, what could not be measured and what to do.
    pub fn run(&self, _out: &mut dyn Write) -> Result<(), String> {
        Ok(())
    }
}
