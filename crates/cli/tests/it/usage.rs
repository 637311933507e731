//! Help that never fails, and errors of one line that say what to do.

use crate::common;

use common::{Said, arg, netgrain, run, say};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use testkit::{Sandbox, TempDir};

/// Nothing on stdout, one line on stderr that names the thing and says what to do, status 2.
#[track_caller]
fn refused(said: &Said, names: &str, advice: &str) {
    assert_eq!((said.status, said.out.as_str()), (Some(2), ""), "{said:?}");
    let line = said.err.strip_suffix('\n').expect("a line");
    let line = line.lines().last().unwrap_or_default();
    assert!(line.starts_with("netgrain: ") && line.contains(names) && line.contains(advice), "{}", said.err);
    assert_eq!(said.err.lines().filter(|l| !l.contains("TPACKET_V3, because")).count(), 1, "{}", said.err);
}

#[test]
fn help_and_version_are_answers_of_every_verb() {
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
fn the_help_of_flows_has_every_word_that_asks_records() {
    let help = run(&["flows", "--help"]).out;
    let words: Vec<&str> = help.split(|c: char| !c.is_alphanumeric()).collect();
    let (_, about_filters) =
        help.split_once("A filter applies to the whole flow record").expect("a paragraph about filters");
    for word in filter::OF_FLOWS {
        assert!(about_filters.split_whitespace().any(|w| w == word), "{word} is not in the help of flows");
    }
    assert!(words.contains(&"initiator"));
}

/// The lines that have the word port otherwise than as that of TCP or UDP, or as a word of filters.
fn says_port(text: &str) -> Vec<String> {
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
                && !["tcp", "udp", "UDP"].contains(&before)
        })
    };
    text.lines().filter(is_other).map(str::to_owned).collect()
}

#[test]
fn an_interface_is_called_an_interface() {
    assert_eq!(says_port("port 53\nfor each port\nall ports together").len(), 2);
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
    let units = std::fs::read_dir(root.join("dist/systemd")).expect("a folder");
    files.extend(units.flatten().map(|entry| entry.path()).filter(|path| path.is_file()));
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        texts.push((file.display().to_string(), text));
    }
    let said: Vec<_> = texts.iter().flat_map(|(of, text)| says_port(text).into_iter().map(move |l| (of, l))).collect();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn completions_into_a_closed_pipe_end_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = netgrain(&["completions", "bash"]);
    let done = command.stdout(writer).stderr(std::process::Stdio::piped()).output().expect("it starts");
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn completions_and_man_pages_come_from_the_same_table() {
    let dir = TempDir::new("man");
    assert_eq!(run(&["man", arg(dir.path())]).status, Some(0));
    for page in ["netgrain.1", "netgrain-record.1", "netgrain-listen.1", "netgrain-gen.1", "netgrain-check.1"] {
        assert!(dir.join(page).is_file(), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).out.contains("netgrain"), "{shell}");
    }
}

#[test]
fn what_is_not_understood_is_named_with_advice() {
    let dir = TempDir::new("usage");
    let store = dir.join("store");
    let record = |more: &[&str]| run(&[&["record", "--store", arg(&store), "--ring", "8MiB"], more].concat());
    refused(&run(&["packets", "--store", arg(&store), "--limit", "0"]), "'0'", "at least 1");
    refused(&run(&["recrod"]), "'recrod'", "record");
    refused(&run(&["record", "--stoer", "x"]), "'--stoer'", "'--store'");
    refused(&run(&["record", "--sim", "60"]), "--store <DIR>", "see netgrain record --help");
    refused(&record(&[]), "--interface <IFACE>", "see netgrain record --help");
    refused(&record(&["--sim", "60", "-r", "x"]), "--sim <SPEC>", "see netgrain record --help");
    refused(&record(&["--sim", "60", "--segment", "much"]), "\"much\" is not a size", "write 512MiB");
    refused(&record(&["--sim", "60", "--duration", "soon"]), "soon", "10s");
    refused(&record(&["--sim", "60", "--cpu", "fast"]), "\"fast\"", "write 2 or 2,3");
    refused(&record(&["--sim", "sixty"]), "\"sixty\"", "write a length");
    refused(&record(&["--sim", "60", "--filter", "hsot 1.2.3.4"]), "`hsot` at column 1", "did you mean `host`?");
    refused(&record(&["-r", "no-such-file"]), "no-such-file", "check the path");
    refused(&record(&["-i", "no-such-port"]), "no-such-port", "see ip link");
    // What is of ports alone is not passed over in silence where there is none.
    let of_ports = [&["--source-kind", "tpacket"][..], &["--dedicated"], &["--queues", "2"], &["--busy-poll"]];
    for flag in of_ports {
        let said = record(&[&["--sim", "60,packets=1"], flag].concat());
        refused(&said, flag[0], "cannot be used with");
        refused(&record(&[&["-r", "x"], flag].concat()), flag[0], "cannot be used with");
    }
    for flag in &of_ports[..2] {
        let said = run(&[&["run", "--store", arg(&store), "--sim", "60,packets=1"], *flag].concat());
        refused(&said, flag[0], "cannot be used with");
    }
    refused(&record(&["-i", "lo", "--source-kind", "pcap"]), "'pcap'", "auto, af-xdp, tpacket");
    refused(&run(&["run", "-i", "lo", "--source-kind", "pcap"]), "'pcap'", "auto, af-xdp, tpacket");
    refused(&run(&["gen", "-i", "no-such-port"]), "no-such-port", "see ip link");
    refused(&run(&["gen", "-w", "x"]), "a file needs a limit", "add --packets or --duration");
    refused(&run(&["gen", "-i", "lo", "--packets", "many"]), "\"many\"", "write 100k");
    refused(&run(&["listen", "-i", "no-such-port"]), "/run/netgrain/no-such-port.", "is `netgrain record` running");
    refused(&run(&["listen", "--socket", "x", "--filter", "port http and"]), "filter", "");
    refused(&run(&["check", arg(dir.path())]), arg(dir.path()), "name the folder of a store");
    // The trouble came before anything was recorded.
    assert!(common::walk(dir.path()).is_empty());
}

#[test]
fn a_store_that_cannot_be_written_is_named_before_anything_is_captured() {
    let dir = TempDir::new("blocked");
    let blocked = dir.join("file");
    std::fs::write(&blocked, "x").expect("a file");
    let said = run(&["record", "--sim", "60,packets=10", "--ring", "8MiB", "--store", arg(&blocked)]);
    refused(&said, arg(&blocked), "--store");
}

#[test]
fn a_source_that_does_not_suit_the_port_is_refused_with_one_that_does() {
    let test = "a_source_that_does_not_suit_the_port_is_refused_with_one_that_does";
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
        refused(
            &on("vb", &["--source-kind", "af-xdp"]),
            "192.0.2.9",
            "--source-kind tpacket to share the interface, or --dedicated",
        );
        for flags in [&["--source-kind", "af-xdp"][..], &["--source-kind", "af-xdp", "--dedicated"]] {
            refused(&on("lo", flags), "lo: AF_XDP", "use --source-kind tpacket");
        }
    }
    let shared =
        ["record", "-i", "vb", "--store", arg(dir.path()), "--ring", "8MiB", "--socket", "none", "--duration", "200ms"];
    let said = run(&[&shared[..], &["--source-kind", "tpacket", "--dedicated", "--busy-poll"]].concat());
    for remark in ["the host continues to receive", "TPACKET runs without it"] {
        assert!(said.status == Some(0) && said.err.contains(remark), "{said:?}");
    }
    // A port of packets without an Ethernet header.
    if !ip.args(["tuntap", "add", "tn", "mode", "tun"]).status().expect("it runs").success() {
        return testkit::skip(test, "no tun devices");
    }
    for kind in ["auto", "af-xdp", "tpacket"] {
        let said = run(&[
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
        refused(&said, "tn: its frames", "not Ethernet; capture the interface below it");
    }
}

#[test]
fn a_missing_privilege_is_named() {
    let test = "a_missing_privilege_is_named";
    const NOBODY: u32 = 65_534;
    let Some(sandbox) = Sandbox::new(test) else { return };
    let _ports = sandbox.veth("va", "vb");
    // Where everybody may go, unlike the folder of the build.
    let dir = std::env::temp_dir().join(format!("netgrain-nobody-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("store")).expect("a folder");
    for path in [&dir, &dir.join("store")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("open to all");
    }
    let program = dir.join("netgrain");
    common::copy_program(&program);
    let as_nobody = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        say(command.args(args).uid(NOBODY).gid(NOBODY).current_dir(&dir))
    };
    let record = ["record", "--store", "store", "--ring", "8MiB", "--socket", "none"];
    let tpacket = as_nobody(&[&record[..], &["-i", "vb", "--source-kind", "tpacket"]].concat());
    let afxdp = as_nobody(&[&record[..], &["-i", "vb", "--source-kind", "af-xdp", "--dedicated"]].concat());
    let generate = as_nobody(&["gen", "-i", "va", "--packets", "1"]);
    // What needs no privilege works without.
    let simulated = as_nobody(&[&record[..], &["--sim", "60,packets=10"]].concat());
    std::fs::remove_dir_all(&dir).expect("clean up");
    refused(&tpacket, "vb", "CAP_NET_RAW");
    refused(&afxdp, "vb", "CAP_");
    refused(&generate, "va", "CAP_");
    assert_eq!(simulated.status, Some(0), "{simulated:?}");
}

#[test]
fn a_socket_of_another_engine_is_not_taken_over() {
    let dir = TempDir::new("twice");
    let (socket, store) = (dir.join("s"), dir.join("store"));
    let args = ["record", "--sim", "60,rate=1kpps", "--ring", "8MiB", "--store", arg(&store), "--socket", arg(&socket)];
    let (first, err) = common::Running::start(&mut netgrain(&args));
    common::until("its socket", || socket.exists());
    let second = run(&[&args[..], &["-q"]].concat());
    assert_eq!(second.status, Some(2), "{second:?}");
    assert!(second.err.contains(&first.0.id().to_string()) && second.err.contains("--store"), "{}", second.err);
    let elsewhere = dir.join("elsewhere");
    let args: Vec<&str> = args.iter().map(|a| if *a == arg(&store) { arg(&elsewhere) } else { a }).collect();
    let third = run(&[&args[..], &["-q"]].concat());
    assert_eq!(third.status, Some(2), "{third:?}");
    assert!(third.err.contains(arg(&socket)) && third.err.contains("--socket"), "{}", third.err);
    common::signal(&first.0, "TERM");
    assert_eq!(first.end(err).status, Some(0));
    assert!(!socket.exists(), "the socket is left behind");
}

#[test]
fn simulations_and_files_are_stored_under_the_name_that_they_were_given() {
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
        let said = run(&[&[verb], &source[..], &["--name", name, "--store", arg(&store), "-q"]].concat());
        assert_eq!(said.status, Some(0), "{said:?}");
        assert!(store.join(name).is_dir(), "{verb} {source:?}: {:?}", common::walk(&store));
    }
    let names: Vec<_> = std::fs::read_dir(&store).expect("a store").flatten().map(|e| e.file_name()).collect();
    assert!(!names.iter().any(|name| name == "sim" || name == "frames.pcap"), "{names:?}");
}

#[test]
fn a_store_without_flow_records_is_told_with_a_way_to_have_them() {
    let dir = TempDir::new("recorded-only");
    let store = dir.join("store");
    assert_eq!(run(&["record", "--sim", "60,packets=10", "--store", arg(&store), "-q"]).status, Some(0));
    for (verb, what) in [("flows", "has no flow records"), ("series", "has no rows of the series")] {
        let said = run(&[verb, "--store", arg(&store)]);
        assert_eq!(said.status, Some(1), "{said:?}");
        assert!(said.err.contains(what) && said.err.contains("`netgrain run -r FILE --store DIR`"), "{said:?}");
    }
    let said = run(&["packets", "--store", arg(&store), "--flow", "1"]);
    assert!(said.err.contains("has no flow records"), "{said:?}");
    // A store that has some, and none of what is asked.
    assert_eq!(run(&["run", "--sim", "60,packets=10", "--store", arg(&store), "-q"]).status, Some(0));
    let said = run(&["flows", "--store", arg(&store), "port 1"]);
    assert!(said.status == Some(1) && said.err.contains("when its flow ends"), "{said:?}");
}

#[test]
fn an_address_of_metrics_is_refused_with_its_right_form_before_anything_is_recorded() {
    let dir = TempDir::new("metrics-form");
    let store = dir.join("store");
    for verb in ["run", "record"] {
        let said = run(&[verb, "--sim", "60,packets=10", "--store", arg(&store), "-q", "--metrics", ":80"]);
        refused(&said, "metrics", "write 127.0.0.1:80");
    }
    assert!(common::walk(dir.path()).is_empty());
}

#[test]
fn a_query_outside_of_the_time_of_the_store_says_what_the_store_holds() {
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
        let said = run(&[verb, "--store", arg(&store), "--from", "2001-01-01", "--to", "2001-01-02"]);
        assert_eq!(said.status, Some(1), "{said:?}");
        assert!(said.err.contains(&format!("(packets from {first} to {last})")), "{}", said.err);
    }
}

#[test]
fn a_file_without_its_option_is_answered_with_the_option() {
    let dir = TempDir::new("file-as-filter");
    let (store, capture) = (dir.join("store"), dir.join("x.pcap"));
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    assert_eq!(run(&["run", "-r", arg(&capture), "--store", arg(&store), "-q"]).status, Some(0));
    let (is_file, advice) = (format!("{} is a file", arg(&capture)), format!("use -r {}", arg(&capture)));
    for verb in ["packets", "flows", "series"] {
        refused(&run(&[verb, arg(&capture)]), &is_file, &advice);
        refused(&run(&[verb, "--store", arg(&store), arg(&capture)]), &is_file, &advice);
        refused(&run(&[verb, arg(&store)]), "is a folder", &format!("use --store {}", arg(&store)));
        refused(&run(&[verb, "no-such.pcap"]), "there is no file no-such.pcap", "use -r no-such.pcap");
    }
    refused(&run(&["record", "-r", arg(&capture)]), "--store <DIR>", "the folder for the packet files");
    refused(&run(&["verify", "-r", arg(&capture)]), "netgrain verify has no option '-r'", "netgrain verify FILE");
}

#[test]
fn a_ranking_of_flows_says_how_to_sum_by_other_fields() {
    let dir = TempDir::new("top-flows");
    let capture = dir.join("x.pcap");
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    let top = run(&["flows", "-r", arg(&capture), "--top", "3"]);
    assert!(
        top.err.contains(" flows; of all: ") && top.err.contains("add --group, as in --group src,dport"),
        "{top:?}"
    );
    assert!(top.err.contains("fields: src, dst, host"), "{top:?}");
    let grouped = run(&["flows", "-r", arg(&capture), "--top", "3", "--group", "src"]);
    assert!(grouped.err.contains(" groups; of all: ") && !grouped.err.contains("add --group"), "{grouped:?}");
}

#[test]
fn a_run_without_a_source_names_every_source_with_an_example() {
    let dir = TempDir::new("no-source");
    let store = dir.join("store");
    for args in [&["run"][..], &["run", "--store", arg(&store)]] {
        let said = run(args);
        refused(&said, "no source of packets", "(-i eth1)");
        refused(&said, "(-r monday.pcap)", "(--sim 60,packets=1000)");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_cause_in_words() {
    const NOBODY: u32 = 65_534;
    // Unlike the folder of the build, every user may enter this folder.
    let dir = std::env::temp_dir().join(format!("netgrain-unreadable-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("folder")).expect("a folder");
    let (program, capture) = (dir.join("netgrain"), dir.join("secret.pcap"));
    common::copy_program(&program);
    assert_eq!(run(&["gen", "-w", arg(&capture), "60", "--packets", "10"]).status, Some(0));
    let mode = |path: &Path, bits| std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("set");
    mode(&dir, 0o755);
    mode(&capture, 0o600);
    mode(&dir.join("folder"), 0o700);
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let said = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        say(command.args(args).current_dir(&dir))
    };
    let mut answers = Vec::new();
    for verb in [&["packets", "-r"][..], &["flows", "-r"], &["series", "-r"], &["check"], &["lang", "check"]] {
        answers.push((said(&[verb, &["nosuch"]].concat()), "nosuch", "there is no such file or folder"));
        if is_root {
            answers.push((said(&[verb, &["secret.pcap"]].concat()), "secret.pcap", "no permission"));
        }
    }
    for verb in [&["packets", "-r"][..], &["flows", "-r"], &["series", "-r"], &["lang", "check"]] {
        answers.push((run(&[verb, &[arg(&dir)]].concat()), arg(&dir), "a folder"));
    }
    if is_root {
        for verb in ["packets", "flows", "series"] {
            answers.push((said(&[verb, "--store", "folder"]), "folder", "run as the owner of the store"));
        }
        answers.push((said(&["packets", "-r", "/dev/null", "-w", "out.pcap"]), "out.pcap", "no permission to write"));
    }
    std::fs::remove_dir_all(&dir).expect("clean up");
    for (said, path, cause) in answers {
        refused(&said, path, cause);
        assert!(!said.err.contains("os error"), "{said:?}");
    }
}
