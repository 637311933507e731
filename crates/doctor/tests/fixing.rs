//! Changes and restores settings in a directory tree that imitates `/proc` and `/sys` of a machine.

use base::Prng;
use netgrain_doctor::{Change, Check, Finding, Journal, Setting, State, Subject, apply, steps, undo};
use std::path::Path;
use sys::sysfs::Tree;
use testkit::TempDir;

const BOOT: &str = "proc/sys/kernel/random/boot_id";

fn machine(dir: &TempDir, files: &[(&str, &str)]) -> Tree {
    let tree = Tree::at(dir.join("root"));
    for (path, text) in files.iter().chain(&[(BOOT, "first")]) {
        let path = tree.path(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    tree
}

fn file(path: &str, value: &str) -> Change {
    Change { setting: Setting::File { path: path.into() }, value: value.into() }
}

/// A finding that offers these changes.
fn finding_with(changes: Vec<Change>) -> Finding {
    let check = Check::named("governor").expect("a check");
    Finding { changes, ..Finding::new(check, &Subject::Machine, State::Warning, "slow") }
}

fn journal(path: &Path) -> Journal {
    Journal::open(path).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_file_that_is_not_a_journal_is_rejected_and_unchanged() {
    let dir = TempDir::new("foreign");
    let path = dir.join("state");
    for text in ["[]", "hello", "{\"netgrain_doctor_undo\":2,\"entries\":[]}"] {
        std::fs::write(&path, text).expect("a file");
        let refused = Journal::open(&path).expect_err("not a journal").to_string();
        assert!(refused.contains("--state") && refused.contains(path.to_str().expect("a path")), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
    }
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let dir = TempDir::new("no-journal");
    let tree = machine(&dir, &[("sys/a", "1")]);
    std::fs::write(dir.join("file"), "x").expect("a file");
    // `absent` becomes a file, so the directory of the journal cannot be created.
    let mut journal = journal(&dir.join("absent/state"));
    std::fs::write(dir.join("absent"), "x").expect("a file in the way");
    let plan = steps(&[finding_with(vec![file("sys/a", "2")])], &tree);
    assert!(apply(&plan, &mut journal, &tree, |_, _| panic!("no step is made")).is_err());
    assert_eq!(tree.text("sys/a").as_deref(), Some("1"));
    assert!(journal.entries().is_empty());
}

#[test]
fn good_findings_and_settings_that_are_already_right_make_no_steps() {
    let dir = TempDir::new("no-steps");
    let tree = machine(&dir, &[("sys/a", "1")]);
    let good = Finding { state: State::Good, ..finding_with(vec![file("sys/a", "2")]) };
    assert!(steps(&[good, finding_with(vec![file("sys/a", "1"), file("sys/none", "1")])], &tree).is_empty());
    let twice = steps(&[finding_with(vec![file("sys/a", "2")]), finding_with(vec![file("sys/a", "3")])], &tree);
    assert_eq!((twice.len(), twice[0].change.value.as_str()), (1, "2"), "a setting is changed once");
}

#[test]
fn a_refused_step_is_reported_and_the_others_are_made_and_undone() {
    let dir = TempDir::new("partial");
    let tree = machine(&dir, &[("sys/a", "1"), ("sys/b", "1"), ("sys/c", "1")]);
    let state = dir.join("var/undo.json");
    let plan = steps(&[finding_with(vec![file("sys/a", "2"), file("sys/b", "2"), file("sys/c", "2")])], &tree);
    // The file of the second setting is removed, so the second step fails.
    std::fs::remove_file(tree.path("sys/b")).expect("a file");
    let mut reported = Vec::new();
    let done =
        apply(&plan, &mut journal(&state), &tree, |s, r| reported.push((s.change.setting.to_string(), r.is_ok())));
    let done = done.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((done.made, done.refused), (2, 1));
    assert_eq!(reported, [("/sys/a".into(), true), ("/sys/b".into(), false), ("/sys/c".into(), true)]);

    std::fs::remove_file(tree.path("sys/a")).expect("a file");
    let mut undone = Vec::new();
    let mut again = journal(&state);
    let failed = undo(&mut again, &tree, |e, r| undone.push((e.setting.to_string(), r.is_ok())));
    assert_eq!(failed.unwrap_or_else(|e| panic!("{e}")), 2, "two settings no longer exist");
    assert_eq!(undone[0], ("/sys/c".into(), true), "the latest first");
    assert_eq!(tree.text("sys/c").as_deref(), Some("1"));
    // The entries whose undo failed stay in the journal. A second undo succeeds when the settings exist again.
    std::fs::write(tree.path("sys/a"), "2").expect("a file");
    std::fs::write(tree.path("sys/b"), "1").expect("a file");
    let mut last = journal(&state);
    assert_eq!(undo(&mut last, &tree, |_, _| ()).unwrap_or_else(|e| panic!("{e}")), 0);
    assert_eq!(tree.text("sys/a").as_deref(), Some("1"));
    assert!(!state.exists(), "nothing is left to undo");
}

#[test]
fn a_reboot_counts_as_an_undo() {
    let dir = TempDir::new("boot");
    let tree = machine(&dir, &[("sys/a", "1")]);
    let state = dir.join("undo.json");
    let plan = steps(&[finding_with(vec![file("sys/a", "2")])], &tree);
    apply(&plan, &mut journal(&state), &tree, |_, r| assert!(r.is_ok())).unwrap_or_else(|e| panic!("{e}"));
    tree.write(BOOT, "second").expect("a file");
    tree.write("sys/a", "5").expect("a file");
    let mut notes = Vec::new();
    undo(&mut journal(&state), &tree, |_, r| notes.extend(r.expect("no refusal"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(tree.text("sys/a").as_deref(), Some("5"), "the value set after the reboot stays");
    assert!(notes[0].contains("restart of the machine") && !state.exists(), "{notes:?}");
}

#[test]
fn undo_restores_every_value_after_any_sequence_of_changes() {
    let test = "undo_restores_every_value_after_any_sequence_of_changes";
    let mut prng = Prng::new(testkit::seed(test));
    for round in 0..20 {
        let dir = TempDir::new("walk");
        let names: Vec<String> = (0..5).map(|n| format!("sys/{n}")).collect();
        let before: Vec<String> = (0..5).map(|_| prng.below(4).to_string()).collect();
        let files: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(before.iter().map(String::as_str)).collect();
        let tree = machine(&dir, &files);
        let state = dir.join("undo.json");
        for _ in 0..prng.below(6) {
            let changes = (0..1 + prng.below(4)).map(|_| {
                let name = &names[prng.below(5) as usize];
                file(name, &prng.below(4).to_string())
            });
            let plan = steps(&[finding_with(changes.collect())], &tree);
            // A process that dies after it has written the entry and before it makes the change leaves an entry whose
            // change was not made.
            let dies_at = prng.below(8) as usize;
            let mut open = journal(&state);
            if let Some(step) = plan.get(dies_at) {
                apply(&plan[..dies_at], &mut open, &tree, |_, r| assert!(r.is_ok())).unwrap_or_else(|e| panic!("{e}"));
                let written = tree.text(match &step.change.setting {
                    Setting::File { path } => path,
                    other => panic!("{other}"),
                });
                apply(&plan[dies_at..=dies_at], &mut open, &tree, |_, _| ()).unwrap_or_else(|e| panic!("{e}"));
                if let (Setting::File { path }, Some(old)) = (&step.change.setting, written) {
                    tree.write(path, &old).expect("a file");
                }
            } else {
                apply(&plan, &mut open, &tree, |_, r| assert!(r.is_ok())).unwrap_or_else(|e| panic!("{e}"));
            }
        }
        assert_eq!(undo(&mut journal(&state), &tree, |_, _| ()).unwrap_or_else(|e| panic!("{e}")), 0);
        let after: Vec<String> = names.iter().map(|n| tree.text(n).expect("a file")).collect();
        assert_eq!(after, before, "round {round}");
        assert!(!state.exists());
    }
}

#[test]
fn network_settings_are_restored_only_in_their_own_namespace() {
    let dir = TempDir::new("namespaces");
    let tree = machine(
        &dir,
        &[
            ("proc/sys/net/core/a", "1"),
            ("sys/b", "1"),
            ("proc/thread-self/ns/net", ""),
            ("run/netns/blue", ""),
            ("elsewhere", ""),
        ],
    );
    let move_to = |name: &str| {
        std::fs::remove_file(tree.path("proc/thread-self/ns/net")).expect("the link of the current namespace");
        std::fs::hard_link(tree.path(name), tree.path("proc/thread-self/ns/net"))
            .expect("the link of the new namespace");
    };
    let state = dir.join("undo.json");
    move_to("run/netns/blue");
    let plan = steps(&[finding_with(vec![file("proc/sys/net/core/a", "2"), file("sys/b", "2")])], &tree);
    apply(&plan, &mut journal(&state), &tree, |_, r| assert!(r.is_ok())).unwrap_or_else(|e| panic!("{e}"));
    assert!(std::fs::read_to_string(&state).expect("the journal").contains("blue"));
    move_to("elsewhere");
    let mut reported = Vec::new();
    let failed = undo(&mut journal(&state), &tree, |e, r| {
        reported.push((e.setting.to_string(), r.err().map(|e| e.to_string()).unwrap_or_default()));
    });
    assert_eq!(failed.unwrap_or_else(|e| panic!("{e}")), 1);
    assert_eq!(reported[0], ("/sys/b".to_owned(), String::new()));
    assert!(
        reported[1].1.contains("namespace blue (net:[") && reported[1].1.contains("ip netns exec blue netgrain"),
        "{reported:?}"
    );
    assert_eq!(
        tree.text("proc/sys/net/core/a").as_deref(),
        Some("2"),
        "the setting of another namespace is not changed"
    );
    move_to("run/netns/blue");
    assert_eq!(undo(&mut journal(&state), &tree, |_, _| ()).unwrap_or_else(|e| panic!("{e}")), 0);
    assert_eq!(tree.text("proc/sys/net/core/a").as_deref(), Some("1"));
    assert!(!state.exists());
}
