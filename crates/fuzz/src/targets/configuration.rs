//! The target reads configuration files. If a file has no errors, its configuration is printed; when the printed text
//! is read, the configuration must be the same.

use crate::Target;
use crate::targets::bytes::text_of;
use config::Config;
use std::path::Path;

pub const TARGET: Target = Target { name: "configuration", run, seeds, rounds: 1500, memory: 32 << 20 };

/// A directory that does not exist, so that the configuration cannot include a program from a file of this host.
const DIRECTORY: &str = "/proc/0/none";

fn run(bytes: &[u8]) {
    let text = text_of(bytes);
    let mut config = Config::default();
    if let Err(errors) = config::read(text, Path::new(DIRECTORY), &mut config) {
        assert!(!errors.is_empty());
        let lines = 1 + text.bytes().filter(|b| *b == b'\n').count();
        assert!(errors.iter().all(|e| e.line <= lines && !e.to_string().contains('\n')), "{errors:?}");
        return;
    }
    drop(config::contradictions(&config));
    let printed = config::dump(&config);
    let mut again = Config::default();
    if let Err(errors) = config::read(&printed, Path::new(DIRECTORY), &mut again) {
        panic!("{errors:?} in {printed}");
    }
    assert_eq!(again, config);
}

fn seeds() -> Vec<Vec<u8>> {
    let dump = config::dump(&Config::default());
    let mut seeds: Vec<Vec<u8>> = vec![
        b"[capture]\ninterfaces = [\"eth0\", \"eth1\"]\nsnaplen = 128\n\n[flow]\nidle_timeout = \"15s\"\n".to_vec(),
        b"[[group]]\nname = \"web\"\nprogram = \"main = tcp >-> steer_flow\"\npolicy = \"shared\"\nfold = true\n\
          interfaces = [\"eth0\"]\nmembers = [\"interface:eth1,weight=2\", \
           \"file:/tmp/a.pcap,max_size=1GiB,class=x\"]\n"
            .to_vec(),
    ];
    // One seed for each section, with all keys and without the comments, because short seeds mutate better.
    let lines: Vec<&str> = dump.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    seeds.extend(sections(&lines));
    seeds
}

fn sections(lines: &[&str]) -> Vec<Vec<u8>> {
    let mut sections: Vec<Vec<u8>> = Vec::new();
    for line in lines {
        if line.starts_with('[') {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.extend(line.as_bytes());
            section.push(b'\n');
        }
    }
    sections
}
