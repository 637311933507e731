//! Placement of threads: the engine runs on the last processor that this process may use, all other threads on the
//! other processors.

/// The processors assigned to the threads of a measurement.
#[derive(Clone, Debug)]
pub struct CpuPlacement {
    engine: usize,
    others: Vec<usize>,
}

impl CpuPlacement {
    /// Assigns the threads of the measurement to the processors in this thread's affinity mask.
    pub fn find() -> Self {
        Self::assign(sys::cpu::allowed())
    }

    fn assign(mut allowed: Vec<usize>) -> Self {
        let engine = allowed.pop().unwrap_or(0);
        // With a single processor all threads share it.
        let others = if allowed.is_empty() { vec![engine] } else { allowed };
        Self { engine, others }
    }

    /// The processor of the measured thread.
    pub fn engine(&self) -> usize {
        self.engine
    }

    /// Returns the processor for the thread with the number `i`, counted without the measured thread.
    pub fn other(&self, i: usize) -> usize {
        self.others[i % self.others.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_has_its_own_processor_if_there_are_several() {
        let p = CpuPlacement::assign(vec![0, 2, 3]);
        assert_eq!((p.engine(), p.other(0), p.other(1), p.other(2)), (3, 0, 2, 0));
        let p = CpuPlacement::assign(vec![5]);
        assert_eq!((p.engine(), p.other(0), p.other(7)), (5, 5, 5));
    }
}
