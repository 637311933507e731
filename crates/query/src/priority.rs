//! Queries run below the recorder's CPU and I/O priority.

use store::{Claim, catalogue};
use sys::priority;

pub use sys::priority::Background;

use crate::QuerySource;

/// Lowers the I/O and CPU priority of the calling thread, and moves the thread off the CPUs that the recorders of this
/// store reserved, if other CPUs remain. There is no way back: call the function on a thread that only runs queries.
///
/// Returns a warning about anything that failed; the result of a query does not depend on it.
pub fn lower_priority(place: &QuerySource, behind: Background) -> Option<String> {
    if let QuerySource::Store(store) = place {
        let interfaces = catalogue::interfaces(store).unwrap_or_default();
        let taken: Vec<usize> =
            interfaces.iter().filter_map(|name| Claim::holder(&store.join(name))).flat_map(|c| c.cpus).collect();
        if !taken.is_empty() {
            // Without other CPUs, only the lower priority protects the recorder.
            priority::keep_off_cpus(&taken);
        }
    }
    priority::lower_priority(behind).err().map(|e| format!("reading competes with recording as an equal: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
    use store::Claimant;

    #[test]
    fn who_asks_leaves_the_recorder_its_processors_where_there_are_others() {
        let allowed = sys::cpu::allowed();
        let Some((last, others)) = allowed.split_last().filter(|(_, others)| !others.is_empty()) else {
            return testkit::skip("who_asks_leaves_the_recorder_its_processors", "one processor only");
        };
        let store = testkit::TempDir::new("query-behind");
        let folder = store.path().join("eth1");
        std::fs::create_dir_all(folder.join("2026")).expect("a folder");
        let claimant = Claimant::this(Timestamp::ZERO, None, vec![*last]);
        let _claim = Claim::take(&folder, &claimant).expect("a free folder");
        let place = QuerySource::Store(store.path().to_owned());
        let asker = std::thread::spawn(move || (lower_priority(&place, Background::Batch), sys::cpu::allowed()));
        assert_eq!(asker.join().expect("a thread"), (None, others.to_vec()));
    }
}
