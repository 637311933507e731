//! Compiles and runs C programs for the tests of the headers.
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

/// The directory with the library, which is the directory of the test program.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("this program").parent().expect("its directory").to_owned()
}

/// The library with which a program is linked.
#[derive(Clone, Copy, Debug)]
pub enum Link {
    Shared,
    Static,
}

/// Compiles a program from one source, with warnings as errors; `None` without a compiler (the test is then skipped).
pub fn compile(
    test: &str,
    compiler: &str,
    standard: &str,
    source: &Path,
    link: Link,
    directory: &TempDir,
) -> Option<PathBuf> {
    let program = directory.join(format!("program-{link:?}"));
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

/// The standard output as text.
pub fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).expect("text")
}

/// Compiles and runs a C source; returns its output.
pub fn run_source(test: &str, compiler: &str, standard: &str, source: &str) -> Option<String> {
    let directory = TempDir::new(test);
    let path = directory.join(if compiler == "cc" { "test.c" } else { "test.cc" });
    std::fs::write(&path, source).expect("a file");
    let program = compile(test, compiler, standard, &path, Link::Shared, &directory)?;
    let out = Command::new(program).output().expect("it runs");
    assert!(out.status.success(), "{out:?}");
    Some(stdout(&out))
}
