//! Programs in C, made and run: what the tests of the header share.
#![allow(dead_code, reason = "each program uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::TempDir;

/// The source of an example.
pub fn example(name: &str) -> PathBuf {
    workspace().join(format!("examples/c/{name}.c"))
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo put the library: beside this program.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("this program").parent().expect("its folder").to_owned()
}

/// How a program is linked.
#[derive(Clone, Copy, Debug)]
pub enum Link {
    Shared,
    Static,
}

/// A program made of one source, with every warning an error; `None` where there is no compiler (and the test skips).
pub fn compile(
    test: &str,
    compiler: &str,
    standard: &str,
    source: &Path,
    link: Link,
    folder: &TempDir,
) -> Option<PathBuf> {
    let program = folder.join(format!("program-{link:?}"));
    let mut cc = testkit::tool(test, compiler)?;
    cc.args(["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-O1", standard, "-I"]);
    cc.arg(workspace().join("include")).arg(source).arg("-o").arg(&program);
    let libraries = libraries();
    match link {
        Link::Shared => cc.arg("-L").arg(&libraries).args(["-lnetgrain", "-Wl,-rpath"]).arg(&libraries),
        Link::Static => cc.arg(libraries.join("libnetgrain.a")).args(["-lpthread", "-ldl", "-lm"]),
    };
    let out = cc.output().expect("the compiler runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(program)
}

/// What it printed.
pub fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).expect("text")
}

/// Runs a C source of a test and gives what it prints.
pub fn run_source(test: &str, compiler: &str, standard: &str, source: &str) -> Option<String> {
    let folder = TempDir::new(test);
    let path = folder.join(if compiler == "cc" { "test.c" } else { "test.cc" });
    std::fs::write(&path, source).expect("a file");
    let program = compile(test, compiler, standard, &path, Link::Shared, &folder)?;
    let out = Command::new(program).output().expect("it runs");
    assert!(out.status.success(), "{out:?}");
    Some(stdout(&out))
}
