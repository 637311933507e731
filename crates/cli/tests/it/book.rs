//! Runs the shell blocks of the README and of the pages in `docs/start` and `docs/how-to` as they are printed there.
//!
//! Each page is one script. Its blocks run in order in one `bash -eu -o pipefail`, in a temporary directory. The script
//! has its own network namespace with the veth pairs `feed`–`eth1` and `eth2`–`sink`. `/data/` is replaced by a
//! directory of the test. The word after `sh` in the fence of a block determines whether and where the block runs:
//!
//! | fence | the block |
//! |---|---|
//! | `sh` | runs |
//! | `sh,until-stopped` | is one command, which runs in the background until a later block ends it with `kill %1` |
//! | `sh,with-PROGRAM` | runs if PROGRAM is installed, and is skipped by name otherwise |
//! | `sh,with-python-PACKAGE` | runs if a Python with PACKAGE is installed |
//! | `sh,hardware` | needs a NIC, a collector or a service manager: it is listed in [`LISTED`] |
//! | `sh,build` | needs cargo or network access: it is listed in [`LISTED`] |
//! | a comment that begins with the line `<!-- sh` | runs too, but is not rendered: traffic for the block after it |
//!
//! A block with the fence `text` is a sample of the output. The words of each of its lines must be those of a line that
//! the page's script printed; numbers, times and sizes may differ. Lines with `…` are not compared, and neither are
//! samples after a block `sh,with-PROGRAM`, because the output of the program depends on its version.

use crate::workspace::Testbed;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time after which a page has failed. The pages need less than half a minute each on idle processors.
const PAGE_MAX: Duration = Duration::from_secs(240);

/// The pages with shell blocks that no test runs, each with the number of these blocks.
const LISTED: [(&str, usize); 8] = [
    ("README.md", 3),
    ("docs/how-to/read-the-store-from-duckdb-polars-wireshark.md", 1),
    ("docs/how-to/send-flows-to-a-collector.md", 2),
    ("docs/how-to/size-a-machine.md", 1),
    ("docs/how-to/split-a-port-over-workers.md", 2),
    ("docs/how-to/start-at-boot-without-root.md", 5),
    ("docs/how-to/troubleshoot-loss.md", 2),
    ("docs/start/install.md", 1),
];

/// Texts in sample lines that depend on the host or on the moment at which a process is killed. In the namespace of the
/// test, interfaces have no address, so the tour captures by AF_XDP in place of TPACKET_V3.
const OF_THE_HOST: [(&str, &str); 11] = [
    ("docs/how-to/measure-one-way-delay.md", "clock of the sender"),
    ("docs/how-to/measure-one-way-delay.md", "achieved minus requested"),
    ("docs/how-to/measure-one-way-delay.md", "delay      min"),
    ("docs/how-to/measure-one-way-delay.md", "dispersion (median)"),
    ("docs/how-to/recover-after-a-crash.md", "without a one-second row"),
    ("docs/how-to/size-a-machine.md", "fio is not installed"),
    ("docs/how-to/size-a-machine.md", "this volume sustains"),
    ("docs/start/tour.md", "TPACKET_V3"),
    ("docs/start/tour.md", "timestamps: kernel"),
    ("docs/start/tour.md", "frames that reached the packet socket"),
    ("docs/start/tour.md", "(outgoing)"),
];

/// A shell block of a page.
struct Block {
    /// The line number of the opening code fence in the page, counted from 1.
    line: usize,
    /// The text after `sh,` in the opening code fence.
    tag: String,
    text: String,
}

impl Block {
    /// True if no test can run the block.
    fn is_listed(&self) -> bool {
        self.tag == "hardware" || self.tag == "build"
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// The README and the pages of `docs/start` and `docs/how-to`.
fn pages() -> Vec<String> {
    let mut all = vec!["README.md".to_owned()];
    for directory in ["docs/start", "docs/how-to"] {
        for entry in fs::read_dir(repository().join(directory)).expect("the directory of the pages") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name in UTF-8");
            all.push(format!("{directory}/{name}"));
        }
    }
    all.sort();
    all
}

/// Returns the shell blocks of a page in their order in the page.
fn blocks(page: &str) -> Vec<Block> {
    let text = read(page);
    let (mut found, mut open): (Vec<Block>, Option<(&str, Block)>) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        match &mut open {
            Some((end, block)) if line.trim() == *end => {
                block.text.push('\n');
                found.extend(open.take().map(|(_, block)| block));
            }
            Some((_, block)) => block.text += &format!("{line}\n"),
            None => {
                let fence = |begin, end| Some((end, line.trim().strip_prefix(begin)?));
                let fence = fence("```sh", "```").or_else(|| fence("<!-- sh", "-->"));
                let fence = fence.filter(|(_, tag)| tag.is_empty() || tag.starts_with(','));
                open = fence.map(|(end, tag)| {
                    (end, Block { line: number + 1, tag: tag.trim_start_matches(',').to_owned(), text: String::new() })
                });
            }
        }
    }
    assert!(open.is_none(), "{page}: the last block has no end");
    found
}

/// The lines of the samples of a page that follow a block in `run`, each with its number in the page. `run` has the
/// line numbers of the blocks whose output is compared.
fn sample_lines(page: &str, run: &[usize]) -> Vec<(usize, String)> {
    let (text, mut found) = (read(page), Vec::new());
    let (mut fence, mut follows_run) = ("", false);
    for (number, line) in (1..).zip(text.lines()) {
        match (fence, line.strip_prefix("```")) {
            ("", Some(opened)) => {
                fence = if opened.is_empty() { "without a name" } else { opened };
                if fence.starts_with("sh") {
                    follows_run = run.contains(&number);
                }
            }
            (_, Some(_)) => fence = "",
            ("text", None) if follows_run && !line.contains('…') => found.push((number, line.to_owned())),
            _ => {}
        }
    }
    found
}

/// The words of a line, without units, and without the words that have a digit, such as times. The plural of a word
/// equals its singular, and only the last component of a path counts.
fn words(line: &str) -> Vec<&str> {
    const UNITS: [&str; 9] = ["KiB", "MiB", "GiB", "pps", "kpps", "Mpps", "ns", "µs", "ms"];
    let is_word = |word: &&str| word.len() > 1 && !word.chars().any(|c| c.is_ascii_digit()) && !UNITS.contains(word);
    let words = line.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let last = words.map(|word| word.rsplit('/').next().unwrap_or(word));
    last.filter(is_word).map(|word| word.trim_end_matches('s')).collect()
}

/// The sample lines of a page without a line of the same words in the output.
fn outdated_samples(page: &str, run: &[usize], output: &str) -> Vec<String> {
    let printed: HashSet<Vec<&str>> = output.lines().map(words).collect();
    let depends = |line: &str| OF_THE_HOST.iter().any(|(of, text)| *of == page && line.contains(text));
    let is_outdated =
        |(_, line): &(usize, String)| !words(line).is_empty() && !printed.contains(&words(line)) && !depends(line);
    let outdated = sample_lines(page, run).into_iter().filter(is_outdated);
    outdated.map(|(number, line)| format!("{page}:{number}: {line}")).collect()
}

/// Returns the directory of a Python interpreter for which the Python package `package` is installed. The script of the
/// page gets this directory in `$PATH`.
fn python_directory(test: &str, package: &str) -> Option<PathBuf> {
    let python = testkit::python_with(test, package)?.get_program().to_owned();
    Some(Path::new(&python).parent().unwrap_or(Path::new("")).to_owned())
}

/// Runs a page's blocks to the end; all of them must succeed.
fn run_page(test: &str, page: &str) {
    let blocks: Vec<Block> = blocks(page).into_iter().filter(|block| !block.is_listed()).collect();
    if testkit::tool(test, "ip").is_none() || testkit::tool(test, "bash").is_none() {
        return;
    }
    let Some(testbed) = Testbed::new(test) else { return };
    let (mut script, mut directories, mut run) = (String::new(), Vec::new(), Vec::new());
    for Block { line, tag, text } in &blocks {
        if let Some(package) = tag.strip_prefix("with-python-") {
            let Some(directory) = python_directory(&format!("{test}, line {line}"), package) else { continue };
            directories.extend(Some(directory).filter(|directory| directory.is_absolute()));
        } else if tag == "until-stopped" {
            let command = text.trim_end();
            assert!(!command.contains('\n') && !command.ends_with('&'), "{page}:{line}: the block is not one command");
            // The capture of the command must have begun when the next block sends traffic.
            script += &format!("echo '== {page}:{line}' >&2\n{command} &\nsleep 2\n");
            run.push(*line);
            continue;
        } else if let Some(program) = tag.strip_prefix("with-") {
            if testkit::tool(&format!("{test}, line {line}"), program).is_none() {
                continue;
            }
        } else {
            assert!(tag.is_empty(), "{page}:{line}: the fence `sh,{tag}` is unknown");
        }
        script += &format!("echo '== {page}:{line}' >&2\n{text}");
        run.extend(tag.is_empty().then_some(*line));
    }
    fs::create_dir(testbed.dir.join("data")).expect("a directory for stores");
    std::os::unix::fs::symlink(repository().join("dist"), testbed.dir.join("dist")).expect("a link");
    // The mount point is short because the path of a socket in a store has at most 107 bytes. The namespace of the test
    // has its own `/run`, so nothing is mounted on the host.
    let mount = "mkdir /run/data\nmount --bind data /run/data\n";
    let script = format!("{mount}{}", script.replace("/data/", "/run/data/"));
    fs::write(testbed.dir.join("page.sh"), script).expect("the script");
    let output = File::create(testbed.dir.join("output")).expect("a file for the output");
    let path: String = directories.iter().map(|directory| format!("{}:", directory.display())).collect();
    let line = format!("export PATH='{path}'\"$PATH:/usr/sbin:/sbin\" && exec bash -eu -o pipefail page.sh");
    let mut command = testbed.shell(&line);
    command.env("NO_COLOR", "1").stdout(output.try_clone().expect("a second handle")).stderr(output).process_group(0);
    let mut child = command.spawn().expect("a shell");
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child of this process") {
            Some(status) => break Some(status),
            None if begun.elapsed() > PAGE_MAX => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    // Ends the processes that the page started in the background and left running.
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).output();
    let _ = child.wait();
    let output = fs::read(testbed.dir.join("output")).expect("the output");
    let output = String::from_utf8_lossy(&output);
    let end: Vec<&str> = output.lines().rev().take(60).collect();
    let end: String = end.iter().rev().map(|line| format!("{line}\n")).collect();
    match status {
        Some(status) => assert!(status.success(), "{page}: {status}\n{end}"),
        None => panic!("{page}: not finished after {PAGE_MAX:?}\n{end}"),
    }
    let outdated = outdated_samples(page, &run, &output.replace("/run/data/", "/data/"));
    assert!(
        outdated.is_empty(),
        "no line of the output has the words of these samples:\n{}\n{output}",
        outdated.join("\n")
    );
}

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        /// The pages that a test of this module runs.
        const RUN: &[&str] = &[$($page),*];
        $(#[test]
        fn $test() {
            run_page(stringify!($test), $page);
        })*
    };
}

pages! {
    the_blocks_of_the_readme_run: "README.md",
    the_blocks_of_install_run: "docs/start/install.md",
    the_blocks_of_the_tour_run: "docs/start/tour.md",
    the_blocks_of_concepts_run: "docs/start/concepts.md",
    the_blocks_of_keep_30_days_of_packets_run: "docs/how-to/keep-30-days-of-packets.md",
    the_blocks_of_find_who_did_it_run: "docs/how-to/find-who-did-it.md",
    the_blocks_of_send_flows_to_a_collector_run: "docs/how-to/send-flows-to-a-collector.md",
    the_blocks_of_split_a_port_over_workers_run: "docs/how-to/split-a-port-over-workers.md",
    the_blocks_of_start_at_boot_without_root_run: "docs/how-to/start-at-boot-without-root.md",
    the_blocks_of_read_the_store_run: "docs/how-to/read-the-store-from-duckdb-polars-wireshark.md",
    the_blocks_of_size_a_machine_run: "docs/how-to/size-a-machine.md",
    the_blocks_of_measure_one_way_delay_run: "docs/how-to/measure-one-way-delay.md",
    the_blocks_of_move_from_other_tools_run: "docs/how-to/move-from-other-tools.md",
    the_blocks_of_recover_after_a_crash_run: "docs/how-to/recover-after-a-crash.md",
    the_blocks_of_remove_duplicates_run: "docs/how-to/remove-duplicates.md",
    the_blocks_of_replay_a_capture_run: "docs/how-to/replay-a-capture.md",
    the_blocks_of_troubleshoot_loss_run: "docs/how-to/troubleshoot-loss.md",
}

#[test]
fn every_page_is_run() {
    let mut run: Vec<String> = RUN.iter().map(|page| (*page).to_owned()).collect();
    run.sort();
    assert_eq!(run, pages(), "a page without a test, or a test without a page");
}

#[test]
fn the_readme_shows_commands_without_pauses_and_background_jobs() {
    // Hidden blocks begin with `<!-- sh`; they contain the commands that only the test needs.
    let hidden: Vec<usize> =
        read("README.md").lines().enumerate().filter(|(_, l)| l.starts_with("<!-- sh")).map(|(i, _)| i + 1).collect();
    for block in blocks("README.md").iter().filter(|block| !hidden.contains(&block.line)) {
        for line in block.text.lines() {
            assert!(!line.starts_with("sleep ") && !line.ends_with(" &"), "README.md:{}: {line}", block.line);
        }
    }
}

#[test]
fn blocks_that_do_not_run_are_listed() {
    let mut found = BTreeMap::new();
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| block.is_listed()) {
            eprintln!("{page}:{}: not run ({})", block.line, block.tag);
            *found.entry(page.clone()).or_insert(0) += 1;
        }
    }
    let listed = LISTED.iter().map(|(page, count)| ((*page).to_owned(), *count)).collect();
    assert_eq!(found, listed, "a block is run, or is listed in this test");
}

#[test]
fn every_link_of_a_page_leads_to_a_file() {
    for page in pages() {
        let directory = repository().join(&page).parent().expect("a directory").to_owned();
        for link in read(&page).split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !link.contains("://") {
                assert!(directory.join(path).exists(), "{page}: the link {link} leads to no file");
            }
        }
    }
}
