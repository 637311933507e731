//! The program of the interfaces, in a file of its own.

use engine::ProgramPlan;
use std::path::Path;

/// The program of a file.
///
/// # Errors
/// That the file cannot be read, and which file is meant.
pub fn read_program(path: &Path) -> Result<ProgramPlan, String> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(ProgramPlan { name, text }),
        Err(e) => Err(format!("{name}: {e}; name a file with a program (netgrain lang check FILE)")),
    }
}
