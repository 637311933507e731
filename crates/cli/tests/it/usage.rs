//! Help texts of every verb, and one-line errors with advice.

use crate::common;

use common::{Output, arg, netgrain, run, run_command};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use testkit::{Sandbox, TempDir};

/// Asserts that the command failed with status 2, nothing on stdout, and one line on stderr that contains `names` and
/// `advice`.
#[track_caller]
fn assert_error(output: &Output, names: &str, advice: &str) {
    assert_eq!((output.status, output.out.as_str()), (Some(2), ""), "{output:?}");
    let line = output.err.strip_suffix('\n').expect("a line");
    let line = line.lines().last().unwrap_or_default();
    assert!(line.starts_with("netgrain: ") && line.contains(names) && line.contains(advice), "{}", output.err);
    assert_eq!(output.err.lines().filter(|l| !l.contains("TPACKET_V3, because")).count(), 1, "{}", output.err);
}

#[test]
fn every_verb_has_help() {
    assert!(run(&["--version"]).out.starts_with("netgrain "));
    let all = run(&["--help"]);
    assert_eq!((all.status, all.err.as_str()), (Some(0), ""));
    for verb in ["record", "listen", "gen", "check", "demo"] {
        assert!(all.out.contains(verb), "{verb} is not in the help");
        for help in [run(&[verb, "--help"]), run(&[verb, "-h"]), run(&["help", verb])] {
            assert_eq!((help.status, help.err.as_str()), (Some(0), ""), "{verb}");
            assert!(help.out.contains("Usage: netgrain"), "{}", help.out);
        }
    }
}

#[test]
fn the_help_of_flows_has_every_filter_word_of_flow_records() {
    let help = run(&["flows", "--help"]).out;
    let words: Vec<&str> = help.split(|c: char| !c.is_alphanumeric()).collect();
    let (_, about_filters) =
        help.split_once("A filter applies to the whole flow record").expect("a paragraph about filters");
    for word in filter::OF_FLOWS {
        assert!(about_filters.split_whitespace().any(|w| w == word), "{word} is not in the help of flows");
    }
    assert!(words.contains(&"initiator"));
}

/// The lines that contain the word port in another sense than a TCP or UDP port or a filter primitive.
fn lines_with_other_ports(text: &str) -> Vec<String> {
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let is_other = |line: &&str| {
        let words = words(line);
        (0..words.len()).any(|i| {
            let at = |i: usize| words.get(i).map_or("", String::as_str);
            let before = if i == 0 { "" } else { at(i - 1) };
            let is_number = at(i + 1).starts_with(|c: char| c.is_ascii_digit());
            let is_of_filters = ["net", "dport"].contains(&before) || at(i + 1) == "proto";
            matches!(at(i), "port" | "ports")
                && !is_number
                && !is_of_filters
                && !["tcp", "TCP", "udp", "UDP"].contains(&before)
        })
    };
    text.lines().filter(is_other).map(str::to_owned).collect()
}

#[test]
fn an_interface_is_called_an_interface() {
    assert_eq!(lines_with_other_ports("port 53\nfor each port\nall ports together").len(), 2);
    let mut texts = vec![("config --dump".to_owned(), run(&["config", "--dump"]).out)];
    let all = run(&["--help"]).out;
    let verbs = all.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    for verb in verbs.filter_map(|l| l.split_whitespace().next()) {
        texts.push((format!("{verb} --help"), run(&[verb, "--help"]).out));
    }
    assert!(texts.len() > 10, "{all}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = [
        "reference/run",
        "reference/configuration",
        "reference/doctor",
        "reference/privileges",
        "reference/verify-and-repair",
        "reference/retention",
        "design/live-queries",
    ];
    let mut files: Vec<_> = pages.map(|page| root.join(format!("docs/{page}.md"))).into();
    let units = std::fs::read_dir(root.join("dist/systemd")).expect("a directory");
    files.extend(units.flatten().map(|entry| entry.path()).filter(|path| path.is_file()));
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        texts.push((file.display().to_string(), text));
    }
    let lines: Vec<_> =
        texts.iter().flat_map(|(of, text)| lines_with_other_ports(text).into_iter().map(move |l| (of, l))).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn completions_into_a_closed_pipe_end_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = netgrain(&["completions", "bash"]);
    let done = command.stdout(writer).stderr(std::process::Stdio::piped()).output().expect("the process starts");
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn completions_and_man_pages_come_from_the_same_table() {
    let dir = TempDir::new("man");
    assert_eq!(run(&["man", arg(dir.path())]).status, Some(0));
    for page in ["netgrain.1", "netgrain-record.1", "netgrain-listen.1", "netgrain-gen.1", "netgrain-check.1"] {
        assert!(dir.join(page).is_file(), "{page}");
    }
    // The arguments after `--` are hidden, because they have the same meaning as the other words of the filter.
    for entry in std::fs::read_dir(dir.path()).expect("the pages") {
        let page = std::fs::read_to_string(entry.expect("an entry").path()).expect("a page");
        let synopsis = page.split(".SH ").find(|part| part.starts_with("SYNOPSIS")).expect("a synopsis");
        assert!(synopsis.matches("FILTER").count() <= 1, "{synopsis}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).out.contains("netgrain"), "{shell}");
    }
}

#[test]
fn unknown_arguments_are_rejected_with_advice() {
    let dir = TempDir::new("usage");
    let store = dir.join("store");
    let record = |more: &[&str]| run(&[&["record", "--store", arg(&store), "--ring", "8MiB"], more].concat());
    assert_error(&run(&["packets", "--store", arg(&store), "--limit", "0"]), "'0'", "at least 1");
    assert_error(&run(&["recrod"]), "'recrod'", "record");
    assert_error(&run(&["record", "--stoer", "x"]), "'--stoer'", "'--store'");
    assert_error(&run(&["record", "--sim", "60"]), "--store <DIR>", "see netgrain record --help");
    assert_error(&record(&[]), "--interface <IFACE>", "see netgrain record --help");
    assert_error(&record(&["--sim", "60", "-r", "x"]), "--sim <SPEC>", "see netgrain record --help");
    assert_error(&record(&["--sim", "60", "--segment", "much"]), "\"much\" is not a size", "write 512MiB");
    assert_error(&record(&["--sim", "60", "--duration", "soon"]), "soon", "10s");
    assert_error(&record(&["--sim", "60", "--cpu", "fast"]), "\"fast\"", "write 2 or 2,3");
    assert_error(&record(&["--sim", "sixty"]), "\"sixty\"", "write a length");
    assert_error(&record(&["--sim", "60", "--filter", "hsot 1.2.3.4"]), "`hsot` at column 1", "did you mean `host`?");
    assert_error(&record(&["-r", "no-such-file"]), "no-such-file", "check the path");
    assert_error(&record(&["-i", "no-such-port"]), "no-such-port", "see ip link");
    // Flags that apply only to live interfaces are errors with other sources.
    let interface_flags = [&["--source-kind", "tpacket"][..], &["--dedicated"], &["--queues", "2"], &["--busy-poll"]];
    for flag in interface_flags {
        let output = record(&[&["--sim", "60,packets=1"], flag].concat());
        assert_error(&output, flag[0], "cannot be used with");
        assert_error(&record(&[&["-r", "x"], flag].concat()), flag[0], "cannot be used with");
    }
    for flag in &interface_flags[..2] {
        let output = run(&[&["run", "--store", arg(&store), "--sim", "60,packets=1"], *flag].concat());
        assert_error(&output, flag[0], "cannot be used with");
    }
    assert_error(&record(&["-i", "lo", "--source-kind", "pcap"]), "'pcap'", "auto, af-xdp, tpacket");
    assert_error(&run(&["run", "-i", "lo", "--source-kind", "pcap"]), "'pcap'", "auto, af-xdp, tpacket");
    assert_error(&run(&["gen", "-i", "no-such-port"]), "no-such-port", "see ip link");
    assert_error(&run(&["gen", "-w", "x"]), "a file needs a limit", "add --packets or --duration");
    assert_error(&run(&["gen", "-i", "lo", "--packets", "many"]), "\"many\"", "write 100k");
    assert_error(
        &run(&["listen", "-i", "no-such-port"]),
        "/run/netgrain/no-such-port.",
        "is `netgrain record` running",
    );
    assert_error(&run(&["listen", "--socket", "x", "--filter", "port http and"]), "filter", "");
    assert_error(&run(&["check", arg(dir.path())]), arg(dir.path()), "name the directory of a store");
    // Every error was reported before a file was created.
    assert!(common::walk(dir.path()).is_empty());
}

#[test]
fn run_names_the_flag_of_an_unreadable_value_and_the_key_of_a_refused_value() {
    let dir = TempDir::new("usage-keys");
    let store = dir.join("store");
    let message = |verb: &str, more: &[&str]| {
        let output = run(&[&[verb, "--sim", "60,packets=1", "--store", arg(&store)], more].concat());
        assert_eq!(output.status, Some(2), "{output:?}");
        output.err
    };
    for verb in ["run", "record"] {
        for flag in [["--segment", "foo"], ["--snaplen", "x"], ["--rotate", "300ms"]] {
            assert!(message(verb, &flag).contains(&format!("for '{} ", flag[0])), "{}", message(verb, &flag));
        }
    }
    for (flag, value, key) in [
        ("--filter", "hsot 1.2.3.4", "capture.filter"),
        ("--metrics", "x", "status.metrics"),
        ("--max-size", "1GB", "packets.max_size"),
    ] {
        let (of_run, of_record) = (message("run", &[flag, value]), message("record", &[flag, value]));
        assert!(of_run.starts_with(&format!("netgrain: {key}: ")), "{of_run}");
        assert!(of_record.starts_with(&format!("netgrain: {flag}")) && !of_record.contains(key), "{of_record}");
    }
    let set = message("run", &["--set", "packets.segment=foo"]);
    assert!(set.starts_with("netgrain: --set: packets.segment: "), "{set}");
}

#[test]
fn misspelt_names_have_a_suggestion() {
    let only = |check: &str| run(&["doctor", "--only", check]);
    assert_error(&only("privilege"), "no check has this name", "did you mean privileges?");
    assert_error(&only("clock"), "no check has this name", "did you mean clock-source?");
    assert_error(&only("xyz"), "no check has this name", "the checks are link, ");
    let operator = run(&["lang", "check", "-e", "main = udp >- steer_flow"]);
    assert!(operator.status == Some(2) && operator.err.contains("did you mean `>->`?"), "{operator:?}");
}

#[test]
fn an_interval_of_one_nanosecond_has_a_hint() {
    let dir = TempDir::new("usage-nanosecond");
    let file = dir.join("a.pcap");
    assert_eq!(run(&["gen", "-w", arg(&file), "60", "--packets", "10"]).status, Some(0));
    let day = ["--from", "2026-11-21", "--to", "2026-11-21"];
    for verb in ["packets", "flows", "series"] {
        let output = run(&[&[verb, "-r", arg(&file)], &day[..]].concat());
        assert!(output.err.contains("the interval is one nanosecond") && output.err.contains("--around"), "{output:?}");
        let output = run(&[verb, "-r", arg(&file), "--from", "2026-11-21", "--to", "2026-11-22"]);
        assert!(!output.err.contains("one nanosecond"), "{output:?}");
    }
    let output = run(&[&["convert", arg(&file), "-w", arg(&dir.join("b.pcap"))], &day[..]].concat());
    assert!(output.err.contains("the interval is one nanosecond"), "{output:?}");
}

#[test]
fn an_unwritable_store_is_reported_before_the_capture() {
    let dir = TempDir::new("blocked");
    let blocked = dir.join("file");
    std::fs::write(&blocked, "x").expect("a file");
    let output = run(&["record", "--sim", "60,packets=10", "--ring", "8MiB", "--store", arg(&blocked)]);
    assert_error(&output, arg(&blocked), "--store");
}

#[test]
fn an_unsuitable_source_is_rejected_with_a_suitable_one() {
    let test = "an_unsuitable_source_is_rejected_with_a_suitable_one";
    let Some(sandbox) = Sandbox::new(test) else { return };
    let Some(mut ip) = testkit::tool(test, "ip") else { return };
    let (_va, vb) = sandbox.veth("va", "vb");
    let address = sys::netlink::Address { link: vb.index, ip: [192, 0, 2, 9].into(), prefix: 24 };
    sandbox.netlink().add_address(&address).expect("an address");
    let dir = TempDir::new(test);
    for (verb, more) in [("record", "-q"), ("run", "--no-packets")] {
        let on = |port: &str, flags: &[&str]| {
            let usual = [verb, "-i", port, "--store", arg(dir.path()), more, "--duration", "200ms"];
            run(&[&usual[..], flags].concat())
        };
        assert_error(
            &on("vb", &["--source-kind", "af-xdp"]),
            "192.0.2.9",
            "--source-kind tpacket to share the interface, or --dedicated",
        );
        for flags in [&["--source-kind", "af-xdp"][..], &["--source-kind", "af-xdp", "--dedicated"]] {
            assert_error(&on("lo", flags), "lo: AF_XDP", "use --source-kind tpacket");
        }
    }
    let shared =
        ["record", "-i", "vb", "--store", arg(dir.path()), "--ring", "8MiB", "--socket", "none", "--duration", "200ms"];
    let output = run(&[&shared[..], &["--source-kind", "tpacket", "--dedicated", "--busy-poll"]].concat());
    for warning in ["the host continues to receive", "TPACKET runs without it"] {
        assert!(output.status == Some(0) && output.err.contains(warning), "{output:?}");
    }
    // The frames of a tun interface have no Ethernet header.
    if !ip.args(["tuntap", "add", "tn", "mode", "tun"]).status().expect("the program runs").success() {
        return testkit::skip(test, "no tun devices");
    }
    for kind in ["auto", "af-xdp", "tpacket"] {
        let mut output = run(&[
            "record",
            "-i",
            "tn",
            "--store",
            arg(dir.path()),
            "--socket",
            "none",
            "--source-kind",
            kind,
            "--duration",
            "200ms",
        ]);
        // The interface is down, which is a warning before the error.
        let is_error = |line: &&str| !line.contains("no packets arrive");
        output.err = output.err.lines().filter(is_error).map(|line| format!("{line}\n")).collect();
        assert_error(&output, "tn: its frames", "not Ethernet; capture its lower interface");
    }
}

#[test]
fn a_missing_privilege_is_reported() {
    let test = "a_missing_privilege_is_reported";
    const NOBODY: u32 = 65_534;
    let Some(sandbox) = Sandbox::new(test) else { return };
    let _ports = sandbox.veth("va", "vb");
    // The program is copied to the directory for temporary files, because other users may be unable to enter the build
    // directory.
    let dir = std::env::temp_dir().join(format!("netgrain-nobody-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("store")).expect("a directory");
    for path in [&dir, &dir.join("store")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let program = dir.join("netgrain");
    common::copy_program(&program);
    let as_nobody = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        run_command(command.args(args).uid(NOBODY).gid(NOBODY).current_dir(&dir))
    };
    let record = ["record", "--store", "store", "--ring", "8MiB", "--socket", "none"];
    let tpacket = as_nobody(&[&record[..], &["-i", "vb", "--source-kind", "tpacket"]].concat());
    let afxdp = as_nobody(&[&record[..], &["-i", "vb", "--source-kind", "af-xdp", "--dedicated"]].concat());
    let generate = as_nobody(&["gen", "-i", "va", "--packets", "1"]);
    // A simulation needs no privilege.
    let simulated = as_nobody(&[&record[..], &["--sim", "60,packets=10"]].concat());
    std::fs::remove_dir_all(&dir).expect("clean up");
    assert_error(&tpacket, "vb", "CAP_NET_RAW");
    assert_error(&afxdp, "vb", "CAP_");
    assert_error(&generate, "va", "CAP_");
    assert_eq!(simulated.status, Some(0), "{simulated:?}");
}

#[test]
fn an_engine_does_not_replace_the_socket_of_another_engine() {
    let dir = TempDir::new("twice");
    let (socket, store) = (dir.join("s"), dir.join("store"));
    let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--socket", arg(&socket)];
    let (first, err) = common::Running::start(&mut netgrain(&args));
    common::until("the ring socket exists", || socket.exists());
    let second = run(&[&args[..], &["-q"]].concat());
    assert_eq!(second.status, Some(2), "{second:?}");
    assert!(second.err.contains(&first.0.id().to_string()) && second.err.contains("--store"), "{}", second.err);
    let other_store = dir.join("other_store");
    let args: Vec<&str> = args.iter().map(|a| if *a == arg(&store) { arg(&other_store) } else { a }).collect();
    let third = run(&[&args[..], &["-q"]].concat());
    assert_eq!(third.status, Some(2), "{third:?}");
    assert!(third.err.contains(arg(&socket)) && third.err.contains("--socket"), "{}", third.err);
    common::signal(&first.0, "TERM");
    assert_eq!(first.end(err).status, Some(0));
    assert!(!socket.exists(), "the socket still exists");
}

#[test]
fn name_sets_the_interface_name_of_simulations_and_captures() {
    let dir = TempDir::new("named");
    let store = dir.join("store");
    let frames = dir.join("frames.pcap");
    assert_eq!(run(&["gen", "-w", arg(&frames), "60", "--packets", "10"]).status, Some(0));
    for (verb, source, name) in [
        ("run", ["--sim", "60,packets=10"], "made"),
        ("record", ["--sim", "60,packets=10"], "made-too"),
        ("run", ["-r", arg(&frames)], "read"),
        ("record", ["-r", arg(&frames)], "read-too"),
    ] {
        let output = run(&[&[verb], &source[..], &["--name", name, "--store", arg(&store), "-q"]].concat());
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(store.join(name).is_dir(), "{verb} {source:?}: {:?}", common::walk(&store));
    }
    let names: Vec<_> = std::fs::read_dir(&store).expect("a store").flatten().map(|e| e.file_name()).collect();
    assert!(!names.iter().any(|name| name == "sim" || name == "frames.pcap"), "{names:?}");
}

#[test]
fn a_store_without_flow_records_is_reported_with_advice() {
    let dir = TempDir::new("recorded-only");
    let store = dir.join("store");
    assert_eq!(run(&["record", "--sim", "60,packets=10", "--store", arg(&store), "-q"]).status, Some(0));
    for (verb, what) in [("flows", "has no flow records"), ("series", "has no rows of the series")] {
        let output = run(&[verb, "--store", arg(&store)]);
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(output.err.contains(what) && output.err.contains("`netgrain run -r FILE --store DIR`"), "{output:?}");
    }
    let output = run(&["packets", "--store", arg(&store), "--flow", "1"]);
    assert!(output.err.contains("has no flow records"), "{output:?}");
    // A store with flow records, none of which match.
    assert_eq!(run(&["run", "--sim", "60,packets=10", "--store", arg(&store), "-q"]).status, Some(0));
    let output = run(&["flows", "--store", arg(&store), "port 1"]);
    assert!(output.status == Some(1) && output.err.contains("when its flow ends"), "{output:?}");
}

#[test]
fn an_invalid_metrics_address_is_rejected_before_recording() {
    let dir = TempDir::new("metrics-form");
    let store = dir.join("store");
    for verb in ["run", "record"] {
        let output = run(&[verb, "--sim", "60,packets=10", "--store", arg(&store), "-q", "--metrics", ":80"]);
        assert_error(&output, "metrics", "write 127.0.0.1:80");
    }
    assert!(common::walk(dir.path()).is_empty());
}

#[test]
fn a_query_outside_the_time_of_the_store_reports_its_time_range() {
    let dir = TempDir::new("outside");
    let (store, capture) = (dir.join("store"), dir.join("x.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    assert_eq!(run(&["run", "-r", arg(&capture), "--store", arg(&store), "-q"]).status, Some(0));
    let times: Vec<String> = common::objects(&run(&["packets", "-r", arg(&capture), "--json"]).out)
        .iter()
        .map(|packet| packet["time"].as_str().expect("a time").to_owned())
        .collect();
    let (first, last) = (times.first().expect("a packet"), times.last().expect("a packet"));
    for verb in ["packets", "flows", "series"] {
        let output = run(&[verb, "--store", arg(&store), "--from", "2001-01-01", "--to", "2001-01-02"]);
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(output.err.contains(&format!("(packets from {first} to {last})")), "{}", output.err);
    }
}

#[test]
fn a_file_argument_without_its_option_is_rejected_with_the_option() {
    let dir = TempDir::new("file-as-filter");
    let (store, capture) = (dir.join("store"), dir.join("x.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    assert_eq!(run(&["run", "-r", arg(&capture), "--store", arg(&store), "-q"]).status, Some(0));
    let (is_file, advice) = (format!("{} is a file", arg(&capture)), format!("use -r {}", arg(&capture)));
    for verb in ["packets", "flows", "series"] {
        assert_error(&run(&[verb, arg(&capture)]), &is_file, &advice);
        assert_error(&run(&[verb, "--store", arg(&store), arg(&capture)]), &is_file, &advice);
        assert_error(&run(&[verb, arg(&store)]), "is a directory", &format!("use --store {}", arg(&store)));
        assert_error(&run(&[verb, "no-such.pcap"]), "there is no file no-such.pcap", "use -r no-such.pcap");
    }
    assert_error(&run(&["record", "-r", arg(&capture)]), "--store <DIR>", "the directory for the packet files");
    assert_error(&run(&["verify", "-r", arg(&capture)]), "netgrain verify has no option '-r'", "netgrain verify FILE");
}

#[test]
fn a_ranking_of_flows_advises_how_to_group_by_other_fields() {
    let dir = TempDir::new("top-flows");
    let capture = dir.join("x.pcap");
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    let top = run(&["flows", "-r", arg(&capture), "--top", "3"]);
    assert!(
        top.err.contains(" flows; all flows: ") && top.err.contains("add --group, as in --group src,dport"),
        "{top:?}"
    );
    assert!(top.err.contains("fields: src, dst, host"), "{top:?}");
    let grouped = run(&["flows", "-r", arg(&capture), "--top", "3", "--group", "src"]);
    assert!(grouped.err.contains(" groups; all groups: ") && !grouped.err.contains("add --group"), "{grouped:?}");
}

#[test]
fn a_run_without_a_source_names_every_source_with_an_example() {
    let dir = TempDir::new("no-source");
    let store = dir.join("store");
    for args in [&["run"][..], &["run", "--store", arg(&store)]] {
        let output = run(args);
        assert_error(&output, "no source of packets", "(-i eth1)");
        assert_error(&output, "(-r monday.pcap)", "(--sim 60,packets=1000)");
    }
}

#[test]
fn an_unreadable_file_is_reported_with_the_cause() {
    const NOBODY: u32 = 65_534;
    // The program is copied to the directory for temporary files, because other users may be unable to enter the build
    // directory.
    let dir = std::env::temp_dir().join(format!("netgrain-unreadable-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("directory")).expect("a directory");
    let (program, capture) = (dir.join("netgrain"), dir.join("secret.pcap"));
    common::copy_program(&program);
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    let mode = |path: &Path, bits| std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("set");
    mode(&dir, 0o755);
    mode(&capture, 0o600);
    mode(&dir.join("directory"), 0o700);
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let run_as_nobody = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        run_command(command.args(args).current_dir(&dir))
    };
    let mut outputs = Vec::new();
    for verb in [&["packets", "-r"][..], &["flows", "-r"], &["series", "-r"], &["check"], &["lang", "check"]] {
        outputs.push((run_as_nobody(&[verb, &["nosuch"]].concat()), "nosuch", "there is no such file or directory"));
        if is_root {
            outputs.push((run_as_nobody(&[verb, &["secret.pcap"]].concat()), "secret.pcap", "no permission"));
        }
    }
    // An interface of a store that the user may not read.
    let store = dir.join("store");
    std::fs::create_dir_all(store.join("secret/2026")).expect("directories");
    mode(&store, 0o755);
    mode(&store.join("secret"), 0o700);
    if is_root {
        for verb in ["packets", "flows", "series"] {
            let query = [verb, "--store", "store"];
            outputs.push((run_as_nobody(&query), "store/secret", "no permission to read this directory"));
        }
        std::fs::create_dir_all(store.join("public/2026")).expect("directories");
        for verb in ["packets", "flows", "series"] {
            let of_all = run_as_nobody(&[verb, "--store", "store"]);
            assert!(of_all.err.contains("store: no permission to read secret: the result lacks"), "{of_all:?}");
            outputs.push((run_as_nobody(&[verb, "--store", "store", "-i", "secret"]), "store/secret", "no permission"));
            let of_public = run_as_nobody(&[verb, "--store", "store", "-i", "public"]);
            assert!(!of_public.err.contains("no permission"), "{of_public:?}");
        }
    }
    for (verb, cause) in [
        (&["packets", "-r"][..], "a directory"),
        (&["flows", "-r"], "a directory"),
        (&["series", "-r"], "a directory"),
        (&["lang", "check"], "a directory"),
    ] {
        outputs.push((run(&[verb, &[arg(&dir)]].concat()), arg(&dir), cause));
    }
    if is_root {
        for verb in ["packets", "flows", "series"] {
            outputs.push((
                run_as_nobody(&[verb, "--store", "directory"]),
                "directory",
                "run as the owner of the store",
            ));
        }
        outputs.push((
            run_as_nobody(&["packets", "-r", "/dev/null", "-w", "out.pcap"]),
            "out.pcap",
            "no permission to write",
        ));
    }
    std::fs::remove_dir_all(&dir).expect("clean up");
    for (output, path, cause) in outputs {
        assert_error(&output, path, cause);
        assert!(!output.err.contains("os error"), "{output:?}");
    }
}
