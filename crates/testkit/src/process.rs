//! Runs a test of the same test program in a separate process that can be killed.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// A process of this test program that runs one test; killed when dropped.
#[derive(Debug)]
pub struct ChildTest(Child);

impl ChildTest {
    /// Starts this test program again, to run only the test `test` in `module` (the value of `module_path!`). The
    /// environment variable `variable` has the value `value` in the new process. The test reads the variable, and if it
    /// is set, does the work of the process instead of testing.
    ///
    /// # Panics
    /// The process cannot be started.
    pub fn start(module: &str, test: &str, variable: &str, value: impl AsRef<OsStr>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .args(["--exact", &test_name(module, test), "--nocapture"])
            .env(variable, value)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn();
        Self(child.expect("a process"))
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills the process with SIGKILL, and waits until it is gone.
    ///
    /// # Panics
    /// The process had already ended.
    pub fn kill(&mut self) {
        self.0.kill().expect("a process to kill");
        self.0.wait().expect("the process ends");
    }
}

/// The name of a test as the test program lists it: `module` is the value of `module_path!` at the test.
pub fn test_name(module: &str, test: &str) -> String {
    module.split_once("::").map_or_else(|| test.to_owned(), |(_, inner)| format!("{inner}::{test}"))
}

impl Drop for ChildTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
