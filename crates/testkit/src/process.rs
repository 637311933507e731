//! The test program once more, as a process of its own that can be killed.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// This test program in which one test runs alone; killed when dropped.
#[derive(Debug)]
pub struct Alone(Child);

impl Alone {
    /// Starts it. The `test` of this name is the body of the process, and knows by the environment that it is.
    ///
    /// # Panics
    /// If no process can be started.
    pub fn start(test: &str, variable: &str, value: impl AsRef<OsStr>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .args(["--exact", test, "--nocapture"])
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

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
