//! Where flow records and rows go: the store, and collectors.

use crate::config::Config;
use crate::outcome::Failure;
use engine::Outlet;

/// What outlets for collectors are called among themselves.
pub const EXPORT: &str = "export";

/// Refuses what cannot be before anything is opened.
///
/// # Errors
/// The target that is not understood.
pub fn check(_config: &Config) -> Result<(), Failure> {
    Ok(())
}

/// All outlets of one interface.
///
/// # Errors
/// In one line, what cannot be opened.
pub fn outlets(config: &Config, _label: &str, number: u16) -> Result<Vec<Box<dyn Outlet>>, String> {
    exports(config, number)
}

/// Those for collectors.
///
/// # Errors
/// As [`outlets`].
pub fn exports(_config: &Config, _number: u16) -> Result<Vec<Box<dyn Outlet>>, String> {
    Ok(Vec::new())
}
