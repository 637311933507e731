//! Tests of the synthetic traffic of `netgrain gen -w`: its flow records agree with the truth of the conversations, and
//! `netgrain check` finds no error in its frames.

use crate::common;
use crate::json_schemas::assert_valid;

use common::{arg, objects, run};
use serde_json::Value;
use std::collections::HashMap;
use testkit::TempDir;

#[test]
fn traffic_that_cannot_be_written_is_refused_with_advice() {
    let dir = TempDir::new("synthetic-arguments");
    let path = dir.join("x.pcap");
    for (args, advice) in [
        (vec!["-i", "lo", "tcp"], "netgrain replay sends the file"),
        (vec!["-w", arg(&path), "tcp,loss=99%"], "loss=1%"),
        (vec!["-w", arg(&path), "mix"], "add packets=100k or duration=10s"),
        (vec!["-w", arg(&path), "mix", "--packets", "5", "--rate", "1kpps"], "netgrain replay --speed"),
        (vec!["-w", arg(&path), "60", "--packets", "5", "--truth", "t"], "only with tcp"),
        (vec!["-w", arg(&path), "train", "--truth", "t"], "only with tcp"),
        (vec!["-w", arg(&path), "mix,packets=5", "--truth", "t"], "only with tcp"),
        (vec!["-w", arg(&path), "tcp,total=5", "--truth", arg(&path)], "two files"),
        (vec!["-w", "-", "tcp,total=5", "--truth", "/dev/stdout"], "two files"),
        (vec!["-w", arg(&path), "60", "--packets", "5", "--queue", "1"], "--queue"),
        (vec!["-i", "lo", "train", "--queue", "1"], "leave --queue out"),
        (vec!["-w", arg(&path), "60,rate=0.0001pps", "--packets", "5"], "rate="),
        (vec!["-w", arg(&path), "60", "--rate", "0.0001pps", "--packets", "5"], "at least 0.001pps"),
        (vec!["-w", "x.pcapng", "tcp"], "name the file .pcap"),
    ] {
        let output = run(&[&["gen"], &args[..]].concat());
        assert!(output.status == Some(2) && output.err.contains(advice), "{args:?}: {output:?}");
    }
}

#[test]
fn flow_records_agree_with_the_truth_of_the_conversations() {
    let dir = TempDir::new("synthetic-truth");
    let (capture, truth) = (dir.join("tcp.pcap"), dir.join("truth.json"));
    for loss in ["0%", "2%", "20%"] {
        let spec = format!("tcp,clients=30,total=400,response=pareto:1.2:1000:300kB,think=20ms,loss={loss}");
        let made = run(&["gen", "-w", arg(&capture), &spec, "--truth", arg(&truth), "--json", "--force"]);
        assert_eq!(made.status, Some(0), "{made:?}");
        let mut flows = HashMap::<(String, u64), [u64; 6]>::new();
        for record in objects(&run(&["flows", "-r", arg(&capture), "--json"]).out) {
            let number = |key: &str| record[key].as_u64().unwrap_or_else(|| panic!("{key}: {record}"));
            // The source of a flow record is the client, because the client sends the first packet.
            let sums = flows.entry((record["src"].to_string(), number("src_port"))).or_default();
            let keys =
                ["fwd_packets", "rev_packets", "fwd_bytes", "rev_bytes", "fwd_retransmitted", "rev_retransmitted"];
            sums.iter_mut().zip(keys).for_each(|(sum, key)| *sum += number(key));
        }
        let truths = objects(&std::fs::read_to_string(&truth).expect("the truth"));
        assert!(truths.len() > 380, "{} conversations with loss {loss}", truths.len());
        let (mut repeated, mut retransmitted, mut frames) = (0, 0, 0);
        for truth in &truths {
            let of = |side: &str, key: &str| truth[side][key].as_u64().expect("a number");
            let key = (truth["client"].to_string(), truth["client_port"].as_u64().expect("a port"));
            let found = flows.get(&key).unwrap_or_else(|| panic!("no flow record of {truth}"));
            let expected = ["packets", "bytes"].map(|key| [of("from_client", key), of("from_server", key)]).concat();
            assert_eq!(found[..4], expected, "loss {loss}: {truth}");
            frames += expected[0] + expected[1];
            repeated += of("from_client", "repeated") + of("from_server", "repeated");
            retransmitted += found[4] + found[5];
        }
        let made = objects(&made.out).remove(0);
        assert_eq!(made["made"], Value::from(frames), "the truth counts the frames of the file");
        assert_eq!(repeated > 0, loss != "0%");
        assert_eq!(retransmitted, repeated, "loss {loss}");
    }
}

#[test]
fn the_truth_of_traffic_with_a_limit_counts_the_frames_of_the_file() {
    let dir = TempDir::new("synthetic-limits");
    let (capture, truth) = (dir.join("tcp.pcap"), dir.join("truth.json"));
    for limit in [["--packets", "5000"], ["--duration", "3s"]] {
        let args =
            ["gen", "-w", arg(&capture), "tcp,clients=40,total=10k", "--truth", arg(&truth), "--json", "--force"];
        let made = run(&[&args[..], &limit].concat());
        assert_eq!(made.status, Some(0), "{made:?}");
        let truths = objects(&std::fs::read_to_string(&truth).expect("the truth"));
        truths.iter().for_each(|truth| assert_valid("conversation-truth", truth));
        let packets = |side: &str| truths.iter().filter_map(|truth| truth[side]["packets"].as_u64()).sum::<u64>();
        let made = objects(&made.out)[0]["made"].as_u64().expect("a number");
        assert_eq!(packets("from_client") + packets("from_server"), made, "{limit:?}");
        assert!(truths.iter().any(|truth| truth["complete"] == false), "some conversations are open at the end");
        assert!(truths.iter().any(|truth| truth["complete"] == true));
    }
}

#[test]
fn a_file_has_the_requested_duration_and_number_of_packets() {
    let dir = TempDir::new("synthetic-ends");
    let path = dir.join("x.pcap");
    for (spec, limit, frames) in [
        ("60,rate=1kpps", ["--duration", "1s"], 1000),
        ("60,rate=1kpps", ["--packets", "7"], 7),
        ("train", ["--packets", "1k"], 1000),
        ("train,trains=2", ["--packets", "1k"], 200),
        ("mix,gap=1ms", ["--duration", "1s"], 1000),
    ] {
        let made = run(&[&["gen", "-w", arg(&path), spec, "--json", "--force"], &limit[..]].concat());
        assert_eq!(objects(&made.out)[0]["made"], frames, "{spec} {limit:?}: {made:?}");
    }
}

#[test]
fn check_finds_no_error_in_frames_of_mix_and_onoff() {
    let dir = TempDir::new("synthetic-check");
    for spec in ["mix,size=uniform:60:1514,gap=exp:10us,packets=3000", "onoff,sources=50,packets=3000"] {
        let path = dir.join(format!("{}.pcap", &spec[..3]));
        let made = run(&["gen", "-w", arg(&path), spec, "--json"]);
        assert_eq!(objects(&made.out)[0]["made"], 3000, "{made:?}");
        let checked = run(&["check", arg(&path), "--json"]);
        assert_eq!(checked.status, Some(0), "{checked:?}");
    }
}
