//! The test program once more, as a process of its own that can be killed.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// This test program in which one test runs alone; killed when dropped.
#[derive(Debug)]
pub struct ChildTest(Child);

impl ChildTest {
    /// Starts the process. The `test` of this name in `module` (as `module_path!` gives it) is the body of the process, and
    /// recognises by the environment variable that it is.
    ///
    /// # Panics
    /// If no process can be started.
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

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills it as nothing else can, and waits until it is gone.
    ///
    /// # Panics
    /// If it has gone before.
    pub fn kill(&mut self) {
        self.0.kill().expect("a process to kill");
        self.0.wait().expect("it ends");
    }
}

/// The name of a test as the test program lists it: `module` is what `module_path!` gives where the test is.
pub fn test_name(module: &str, test: &str) -> String {
    module.split_once("::").map_or_else(|| test.to_owned(), |(_, inner)| format!("{inner}::{test}"))
}

impl Drop for ChildTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
