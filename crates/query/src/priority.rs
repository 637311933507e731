//! Sets the priority of queries: they run below the CPU and I/O priority of the recorder.

use store::{Claim, catalogue};
use sys::priority;

pub use sys::priority::Background;

use crate::QuerySource;

/// Lowers the I/O and CPU priority of the calling thread, and excludes it from the CPUs that the recorders of this
/// store reserved, if other CPUs remain. The change cannot be undone, so the function must be called on a thread that
/// only runs queries.
///
/// Returns a warning if the priority could not be lowered; the results of the query are the same.
pub fn lower_priority(source: &QuerySource, background: Background) -> Option<String> {
    if let QuerySource::Store(store) = source {
        let interfaces = catalogue::interfaces(store).unwrap_or_default();
        let taken: Vec<usize> =
            interfaces.iter().filter_map(|name| Claim::holder(&store.join(name))).flat_map(|c| c.cpus).collect();
        if !taken.is_empty() {
            // If the recorders reserve all CPUs, the affinity is not changed, and only the lower priority protects the
            // recorders.
            priority::keep_off_cpus(&taken);
        }
    }
    priority::lower_priority(background).err().map(|e| format!("this query has the same priority as recording: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
    use store::Claimant;

    #[test]
    fn a_query_leaves_reserved_processors_to_the_recorder() {
        let allowed = sys::cpu::allowed();
        let Some((last, others)) = allowed.split_last().filter(|(_, others)| !others.is_empty()) else {
            return testkit::skip("a_query_leaves_reserved_processors_to_the_recorder", "one processor only");
        };
        let store = testkit::TempDir::new("query-background");
        let directory = store.path().join("eth1");
        std::fs::create_dir_all(directory.join("2026")).expect("a directory");
        let claimant = Claimant::this(Timestamp::ZERO, None, vec![*last]);
        let _claim = Claim::take(&directory, &claimant).expect("a free interface");
        let source = QuerySource::Store(store.path().to_owned());
        let reader = std::thread::spawn(move || (lower_priority(&source, Background::Batch), sys::cpu::allowed()));
        assert_eq!(reader.join().expect("a thread"), (None, others.to_vec()));
    }
}
