//! Defines the purposes for which functions are compiled, and the signature that all these functions have.

/// The purpose of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Task {
    /// Evaluates packets.
    Evaluate = 0,
    /// Evaluates packets like `Evaluate`, but begins with the values in the packet's verdict, because the first stages
    /// of the program ran outside of the function, for example in the kernel.
    Resume,
    /// Announces the keys that the evaluation will look up in flow maps.
    Prefetch,
    /// Tests which frames match a filter. The function has no context. The result of the test is whether the verdict
    /// drops the frame; the other fields of the verdict are not used.
    Match,
}

impl Task {
    /// True if the function evaluates packets and carries out their effects, such as changes of flow maps.
    pub const fn is_evaluation(self) -> bool {
        matches!(self, Self::Evaluate | Self::Resume)
    }
}

/// The number of parameters of every function: context, packets, verdicts, number of packets, and index of the first
/// packet in the batch.
pub(crate) const PARAMETERS: usize = 5;
