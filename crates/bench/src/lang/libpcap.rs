//! Runs libpcap's filter over the same frames: compiles a C program that loads the system's libpcap (no headers
//! needed), compiles and optimizes the filter with it, and calls `bpf_filter` for each frame in memory. The time
//! excludes reading and delivery.

use crate::output::Stop;
use crate::process::{Helper, find};
use crate::volume::ScratchDir;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Declares the parts of libpcap's public API that the program calls (pcap(3PCAP), `pcap/bpf.h`).
const SOURCE: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
struct program { unsigned len; void *code; };
enum { PLACE = 64, FRAME = 60, ETHERNET = 1, ROUNDS = 50 };
int main(int argc, char **argv) {
    void *library = dlopen("libpcap.so.0.8", RTLD_NOW);
    if (!library) library = dlopen("libpcap.so.1", RTLD_NOW);
    if (!library) return 3;
    void *(*open_dead)(int, int) = dlsym(library, "pcap_open_dead");
    int (*compile)(void *, struct program *, const char *, int, unsigned) = dlsym(library, "pcap_compile");
    unsigned (*filter)(const void *, const unsigned char *, unsigned, unsigned) = dlsym(library, "bpf_filter");
    if (!open_dead || !compile || !filter) return 3;
    if (argc < 3) return 0;
    struct program program;
    if (compile(open_dead(ETHERNET, 65535), &program, argv[2], 1, 0xffffffff)) return 2;
    FILE *file = fopen(argv[1], "rb");
    if (!file) return 2;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    unsigned char *frames = malloc(size);
    if (!frames || fread(frames, 1, size, file) != size) return 2;
    long count = size / PLACE, matched = 0;
    struct timespec from, to;
    for (int round = 0; round <= ROUNDS; round++) {
        if (round == 1) clock_gettime(CLOCK_MONOTONIC, &from);
        matched = 0;
        for (long i = 0; i < count; i++) matched += filter(program.code, frames + i * PLACE, FRAME, FRAME) != 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ns = (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
    printf("%ld %f\n", matched, ns / count / ROUNDS);
    return 0;
}
"#;

/// The compiled program and the frames.
pub struct LibpcapFilter {
    program: PathBuf,
    frames: PathBuf,
}

impl LibpcapFilter {
    /// Compiles the program; `None` without a C compiler or libpcap.
    pub fn build(work: &ScratchDir, frames: &[u8]) -> Result<Option<Self>, Stop> {
        let Some(compiler) = find("cc") else { return Ok(None) };
        let directory = work.path();
        let (source, program, data) = (directory.join("filter.c"), directory.join("filter"), directory.join("frames"));
        std::fs::write(&source, SOURCE).and_then(|()| std::fs::write(&data, frames)).map_err(Stop::error)?;
        let built = Command::new(compiler).args(["-O2", "-o"]).arg(&program).arg(&source).arg("-ldl").output();
        if !built.is_ok_and(|b| b.status.success()) {
            return Ok(None);
        }
        let works = Command::new(&program).status().is_ok_and(|s| s.success());
        Ok(works.then_some(Self { program, frames: data }))
    }

    /// Runs the filter once over all frames and returns the number of matches; appends the nanoseconds per frame to
    /// `times`.
    pub fn run(&self, filter: &str, times: &mut Vec<f64>) -> Result<u64, Stop> {
        let mut command = Command::new(&self.program);
        command.arg(&self.frames).arg(filter);
        let output = Helper::start(command, "libpcap")?.finish(Duration::from_secs(60))?;
        let mut words = output.split_whitespace();
        let (matched, ns) = (words.next().and_then(|w| w.parse().ok()), words.next().and_then(|w| w.parse().ok()));
        match (matched, ns) {
            (Some(matched), Some(ns)) => {
                times.push(ns);
                Ok(matched)
            }
            _ => Err(Stop::error(format_args!("libpcap printed {output:?} for {filter:?}"))),
        }
    }
}
