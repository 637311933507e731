//! Compares the number of instructions that the kernel's verifier processes for typical programs with a golden file.
//! The verifier rejects a program after a million processed instructions, and a program swap takes longer the more
//! instructions the verifier processes.

use crate::kernel;

use kernel::{Kernel, OPTIONS};
use kernel_programs::{EmitOptions, Metadata, emit};
use std::fmt::Write;

/// A large program, with three maps and 32 predicates.
fn largest() -> String {
    let ports: Vec<_> = (1..=26).map(|n| format!("has_port {}", n * 100)).collect();
    let (first, second) = ports.split_at(13);
    format!(
        "a = flow_map 0 key_5tuple\nb = for_ms 1000 (flow_map 0 key_ip_src)\n\
         c = idle_after 1000 (flow_map 0 key_ip_dst)\n\
         main = do\n  filter (is_ip .&&. (is_tcp .||. is_udp))\n  when ({}) (mark 1)\n  when ({}) (mark 2)\n  \
         incr_fstate a\n  incr_fstate b\n  incr_fstate c\n  filter (get_fstate b .<= 1000)\n  \
         unless (has_addr 10.0.0.0/8) (inc 1)\n  when (ip_ttl .< 5) drop\n  steer_flow\n",
        first.join(" .||. "),
        second.join(" .||. ")
    )
}

fn programs() -> Vec<(&'static str, Metadata, String)> {
    let flow = "main = ip >-> steer_flow".to_owned();
    let with_record = [
        ("ip and flow", flow.clone()),
        ("mark and pair", "main = when is_tcp (mark 42) >-> steer_p2p".to_owned()),
        ("forward or steer", "main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow".to_owned()),
        ("count flows", "flows = flow_map 0 key_5tuple\nmain = incr_fstate flows >-> steer_flow".to_owned()),
        ("tcpdump", "main = bpf \"(tcp port 80 or udp port 53) and not net 10.0.0.0/8\" >-> steer_link".to_owned()),
        ("three maps, 32 predicates", largest()),
    ];
    let mut all: Vec<_> = with_record.into_iter().map(|(name, text)| (name, Metadata::Full, text)).collect();
    all.push(("ip and flow, compact metadata", Metadata::Compact, flow));
    all
}

/// The series of the running kernel, such as `6.18`. The numbers in the golden file are valid only for kernels of one
/// series.
fn series() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[test]
fn the_verifier_processes_no_more_instructions_than_before() {
    const LIMIT: u32 = 50_000;
    let test = "the_verifier_processes_no_more_instructions_than_before";
    let golden = include_str!("budget.txt");
    let of_series = golden.lines().next().and_then(|l| l.rsplit(' ').next()).unwrap_or_default();
    let mut now =
        format!("Instructions of each program, and instructions that the verifier processed, kernel {}\n", series());
    let mut worse = Vec::new();
    for (name, metadata, text) in programs() {
        let ir = lang::compile(&text).unwrap_or_else(|e| panic!("{}", e.show(&text, name))).program;
        let object = emit(&ir, &EmitOptions { metadata, ..OPTIONS }).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(object.stages, ir.stages.len(), "{name}: all stages run in the kernel");
        let instructions = object.code.insns().len();
        let Some(kernel) = Kernel::load(test, object) else { return };
        let verified = kernel.program.info().expect("information about the loaded program").verified_insns;
        assert!(verified < LIMIT, "{name}: the verifier processed {verified} instructions");
        let _ = writeln!(now, "{name}: {instructions} {verified}");
        let before = golden.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")?.split_once(' '));
        let (before, processed) = before.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))).unwrap_or((0, 0));
        if instructions > before || of_series == series() && verified > processed + processed / 10 {
            worse.push(name);
        }
    }
    eprintln!("{now}");
    assert!(
        worse.is_empty(),
        "more instructions than in crates/bpf/tests/it/budget.txt for {worse:?}; if this is intended, replace the file \
         by:\n{now}"
    );
}
