//! The most that flow records of an interface may be late, kept beside them: `--follow` must look back so far into the
//! store, and only the meter's timeouts determine it.

use crate::outcome::Failure;
use columns::FLOW_LATE;
use config::Config;
use engine::Plan;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use store::names::{FLOW_LATENESS, interface_folder};
use sys::nofollow::{self, OpenOptions};

/// Added to the longest timeout: records are made, journaled and read a few seconds later, and clocks differ.
const MARGIN: Duration = Duration::from_secs(60);

/// An upper limit longer than any practical timeout, and short enough that sums do not overflow.
const MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Writes the value for each interface that records flows into the store.
///
/// # Errors
/// The file cannot be written.
pub fn keep(config: &Config, plans: &[Plan]) -> Result<(), Failure> {
    let Some(store) = config.store.dir.as_ref().filter(|_| config.flow.record) else { return Ok(()) };
    let late = of_config(config);
    for plan in plans {
        let folder = interface_folder(store, &plan.source.label());
        let (path, whole) =
            (folder.join(FLOW_LATENESS), folder.join(format!("{FLOW_LATENESS}.{}", std::process::id())));
        // Written under a temporary name first, so that no reader sees half a number.
        let how = OpenOptions { write: true, create: Some(0o640), ..OpenOptions::default() };
        let write = |mut file: File| file.set_len(0).and_then(|()| writeln!(file, "{}", late.as_secs()));
        nofollow::create_folders(&folder)
            .and_then(|()| nofollow::open_as(&whole, how))
            .and_then(write)
            .and_then(|()| nofollow::rename(&whole, &path))
            .map_err(|e| Failure::Said(format!("{}: {e}; how late flow records come is kept there", path.display())))?;
    }
    Ok(())
}

/// The default lateness for records of these interfaces.
pub fn of_interfaces(store: &Path, interfaces: &[String]) -> Duration {
    let read = |name: &String| {
        let text = nofollow::read_to_string(&interface_folder(store, name).join(FLOW_LATENESS)).ok()?;
        Some(Duration::from_secs(text.trim().parse().ok()?).min(MAX))
    };
    interfaces.iter().filter_map(read).fold(FLOW_LATE, Duration::max)
}

fn of_config(config: &Config) -> Duration {
    let flow = &config.flow;
    let longest = flow
        .protocol_idle_timeouts
        .iter()
        .map(|of| of.idle)
        .fold(flow.idle_timeout.max(flow.close_timeout), Duration::max);
    longest.saturating_add(MARGIN).clamp(FLOW_LATE, MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::with;
    use testkit::TempDir;

    #[test]
    fn records_are_as_late_as_the_longest_timeout_and_a_minute() {
        for (pairs, seconds) in [
            (&[][..], 90),
            (&[("flow.idle_timeout", "100s")], 160),
            (&[("flow.protocol_idle_timeouts", "udp=1h,icmp=2s")], 3660),
            (&[("flow.close_timeout", "10min")], 660),
            (&[("flow.active_timeout", "1d")], 90),
            (&[("flow.idle_timeout", "5s")], 90),
        ] {
            assert_eq!(of_config(&with(pairs)).as_secs(), seconds, "{pairs:?}");
        }
    }

    #[test]
    fn what_a_run_wrote_down_is_what_a_follower_finds() {
        let dir = TempDir::new("lateness");
        let mut config = with(&[("flow.idle_timeout", "200s")]);
        config.store.dir = Some(dir.path().into());
        let source = engine::SourcePlan::Sim { spec: "60".parse().expect("a spec"), start: None, name: None };
        let plan = Plan::new(source);
        let names = [plan.source.label(), "other".into()];
        assert_eq!(of_interfaces(dir.path(), &names), FLOW_LATE, "nothing is known yet");
        keep(&config, &[plan]).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(of_interfaces(dir.path(), &names).as_secs(), 260);
        assert_eq!(of_interfaces(dir.path(), &names[1..]), FLOW_LATE);
    }
}
