//! Conversions of real capture files are compared with those of editcap, mergecap, tshark and tcpdump.

use crate::support;

use filter::Filter;
use netgrain_convert::{Format, Plan};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Packet, captures, converted, one, packets};
use testkit::TempDir;

/// Every seventh of the capture files that are undamaged, small, and of a single link type.
fn captures_of_one_link_type(test: &str) -> Option<Vec<PathBuf>> {
    let fits = |path: &PathBuf| {
        let bytes = std::fs::read(path).expect("a file");
        let mut reader = pcap::Reader::open(&bytes[..]).expect("a capture");
        let (first, mut packet_count) = (reader.link_type(), 0);
        loop {
            match reader.next() {
                Ok(Some(p)) if p.link_type == first && p.fcs == 0 => packet_count += 1,
                Ok(None) => return (3..5000).contains(&packet_count),
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    let files: Vec<PathBuf> = captures(test)?.into_iter().filter(fits).step_by(7).collect();
    assert!(files.len() >= 10, "only {} captures", files.len());
    Some(files)
}

/// Runs a tool that writes the file `out`, and returns the packets in this file.
fn run_tool(mut tool: Command, args: &[&str], out: &Path) -> Vec<Packet> {
    support::output({
        tool.args(args);
        tool
    });
    packets(&std::fs::read(out).expect("the output of the tool"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

#[test]
fn editcap_converts_and_truncates_to_the_same_packets() {
    let test = "editcap_converts_and_truncates_to_the_same_packets";
    let Some(files) = captures_of_one_link_type(test) else { return };
    let directory = TempDir::new(test);
    let out = directory.join("out");
    for path in files {
        for (format, name) in [(Format::Pcap, "nsecpcap"), (Format::PcapMicros, "pcap"), (Format::PcapNg, "pcapng")] {
            let Some(editcap) = testkit::tool(test, "editcap") else { return };
            let theirs = run_tool(editcap, &["-F", name, "-s", "60", text(&path), text(&out)], &out);
            let (_, ours) = one(&bytes(&path), &Plan { format, snaplen: 60, ..Plan::default() });
            assert_eq!(packets(&ours), theirs, "{} to {name}", path.display());
        }
    }
}

#[test]
fn tshark_finds_the_interface_names_of_the_input() {
    let test = "tshark_finds_the_interface_names_of_the_input";
    let Some(mut files) = captures(test) else { return };
    let directory = TempDir::new(test);
    let out = directory.join("out.pcapng");
    // The captures have few interface names, so the test adds a file with several interface names.
    let mut made = pcap::ng::Writer::new(Vec::new(), "a test", "").expect("memory");
    for name in ["eth0", "wlan0", "a bridge"] {
        let number = made.interface(name, pcap::ETHERNET).expect("memory");
        made.packet(number, base::Timestamp::from_nanos(7), 60, &[0; 60], Default::default()).expect("memory");
    }
    files.push(directory.join("made.pcapng"));
    std::fs::write(directory.join("made.pcapng"), made.finish().expect("memory")).expect("a file");
    let mut named_packets = 0;
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "pcapng")) {
        let (_, ours) = one(&bytes(path), &Plan { format: Format::PcapNg, ..Plan::default() });
        std::fs::write(&out, ours).expect("a file");
        let names = |path: &Path| {
            let mut tshark = testkit::tool(test, "tshark")?;
            tshark.args(["-n", "-T", "fields", "-e", "frame.interface_name", "-r"]).arg(path);
            Some(support::output(tshark))
        };
        let (Some(before), Some(after)) = (names(path), names(&out)) else { return };
        assert_eq!(after, before, "{}", path.display());
        named_packets += after.lines().filter(|l| !l.is_empty() && *l != "unknown").count();
    }
    assert!(named_packets >= 3, "only {named_packets} packets have a named interface");
}

#[test]
fn mergecap_merges_to_the_same_packets() {
    let test = "mergecap_merges_to_the_same_packets";
    let Some(files) = captures_of_one_link_type(test) else { return };
    let directory = TempDir::new(test);
    let out = directory.join("out");
    for pair in files.windows(3).step_by(2) {
        let Some(mergecap) = testkit::tool(test, "mergecap") else { return };
        let args = ["-F", "pcapng", "-I", "none", "-w", text(&out), text(&pair[0]), text(&pair[1]), text(&pair[2])];
        let theirs = run_tool(mergecap, &args, &out);
        let inputs: Vec<Vec<u8>> = pair.iter().map(|p| bytes(p)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let (_, memory) = converted(&inputs, &Plan { format: Format::PcapNg, ..Plan::default() }).expect("converted");
        let plain = |packets: Vec<Packet>| -> Vec<Packet> {
            packets.into_iter().map(|p| Packet { interface: 0, ..p }).collect()
        };
        assert_eq!(plain(packets(&memory.files[0])), plain(theirs), "{pair:?}");
    }
}

#[test]
fn tcpdump_selects_the_same_packets_and_reads_our_files() {
    let test = "tcpdump_selects_the_same_packets_and_reads_our_files";
    let Some(files) = captures_of_one_link_type(test) else { return };
    let directory = TempDir::new(test);
    let (out, ours_at) = (directory.join("out.pcap"), directory.join("ours.pcap"));
    let mut compared = 0;
    for path in files {
        // Filters that have the same meaning in netgrain and in tcpdump for packets without VLAN tags
        // (docs/reference/filters.md).
        for filter in ["tcp or udp port 53", "greater 100", "not ip", "host 10.0.0.1 or net 192.168.0.0/16"] {
            let plan = Plan { filter: Filter::parse(filter).expect("a filter"), ..Plan::default() };
            let (_, ours) = one(&bytes(&path), &plan);
            std::fs::write(&ours_at, &ours).expect("a file");
            let tagged = packets(&bytes(&path))
                .iter()
                .any(|p| p.data.get(12..14).is_some_and(|t| t == [0x81, 0] || t == [0x88, 0x47]));
            let Some(mut probe) = testkit::tool(test, "tcpdump") else { return };
            let args = |file, filter| ["-n", "-r", file, "--time-stamp-precision=nano", "-w", text(&out), filter];
            // tcpdump fails if libpcap does not support the filter for this link type.
            if tagged || !probe.args(args(text(&path), filter)).output().is_ok_and(|o| o.status.success()) {
                continue;
            }
            let theirs = packets(&bytes(&out));
            assert_eq!(packets(&ours), theirs, "{}: {filter}", path.display());
            let Some(tcpdump) = testkit::tool(test, "tcpdump") else { return };
            assert_eq!(run_tool(tcpdump, &args(text(&ours_at), ""), &out), theirs, "{}: {filter}", path.display());
            compared += theirs.len();
        }
    }
    assert!(compared > 100, "only {compared} packets");
}
