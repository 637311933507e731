//! The packet program of the interfaces, read from a file.

use interface_program::ProgramPlan;
use std::path::Path;

/// Reads the program from a file.
///
/// # Errors
/// The file cannot be read; the text names the file.
pub fn read_program(path: &Path) -> Result<ProgramPlan, String> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(ProgramPlan { name, text }),
        Err(e) => {
            Err(format!("{name}: {}; name a file with a program (netgrain lang check FILE)", sys::advice::cause(&e)))
        }
    }
}
