//! The purposes of compiled functions, and their common signature.

/// The purpose of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Task {
    /// Evaluates packets.
    Evaluate = 0,
    /// As `Evaluate`, but starts from the record in the verdict, because the first part of the program ran elsewhere.
    Resume,
    /// Announces the keys that the evaluation will look up in tables.
    Prefetch,
    /// Tests which frames match. It has no context, and of the record only the kind leaves the loop.
    Match,
}

impl Task {
    /// True if the function evaluates packets with effects.
    pub const fn is_evaluation(self) -> bool {
        matches!(self, Self::Evaluate | Self::Resume)
    }
}

/// The number of parameters of every function: context, packets, verdicts, number of packets, and index of the first
/// packet in the batch.
pub(crate) const PARAMETERS: usize = 5;
