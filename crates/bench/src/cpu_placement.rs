//! Who runs where: the engine on the last processor that this process may use, everyone else on the others.

/// Processors, dealt once.
#[derive(Clone, Debug)]
pub struct CpuPlacement {
    engine: usize,
    others: Vec<usize>,
}

impl CpuPlacement {
    /// From what this thread is allowed.
    pub fn find() -> Self {
        Self::deal(sys::cpu::allowed())
    }

    fn deal(mut allowed: Vec<usize>) -> Self {
        let engine = allowed.pop().unwrap_or(0);
        // With a single processor all share it.
        let others = if allowed.is_empty() { vec![engine] } else { allowed };
        Self { engine, others }
    }

    /// The processor of the thread under test.
    pub fn engine(&self) -> usize {
        self.engine
    }

    /// The processor of the `i`th neighbour.
    pub fn other(&self, i: usize) -> usize {
        self.others[i % self.others.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_alone_unless_there_is_only_one_processor() {
        let p = CpuPlacement::deal(vec![0, 2, 3]);
        assert_eq!((p.engine(), p.other(0), p.other(1), p.other(2)), (3, 0, 2, 0));
        let p = CpuPlacement::deal(vec![5]);
        assert_eq!((p.engine(), p.other(0), p.other(7)), (5, 5, 5));
    }
}
