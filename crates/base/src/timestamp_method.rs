//! The method that made the timestamp of a packet.

/// The method that made the timestamp of a packet. The number of a method is in the annotations of ring descriptors
/// and in files, so it never changes; numbers have four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TimestampMethod {
    /// The method is not known.
    #[default]
    Unknown = 0,
    /// The engine thread read its clock when it took the packet (kernel-level polling timestamps, KPT; thesis of HPCAP,
    /// section 4.2).
    Poll = 1,
    /// The engine thread read its clock once for the batch of the packet.
    Batch = 2,
    /// Uniform distribution of timestamps (thesis of HPCAP, section 4.2, equation 4.3): the time between two batches is
    /// divided equally between the packets of the batch.
    Udts = 3,
    /// Weighted distribution of timestamps (thesis of HPCAP, section 4.2, equation 4.4): the time between two batches
    /// is divided between the packets of the batch in proportion to their length on the wire.
    Wdts = 4,
    /// The kernel, in software.
    Kernel = 5,
    /// The NIC.
    Hardware = 6,
    /// The capture file.
    File = 7,
    /// The trailer that an aggregation switch added to the frame.
    Trailer = 8,
    /// The schedule of the simulator.
    Schedule = 9,
}

impl TimestampMethod {
    /// The number of methods.
    pub const COUNT: usize = 10;

    /// All methods, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unknown,
        Self::Poll,
        Self::Batch,
        Self::Udts,
        Self::Wdts,
        Self::Kernel,
        Self::Hardware,
        Self::File,
        Self::Trailer,
        Self::Schedule,
    ];

    /// The method with this number; `None` for a number that this version does not define.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(Self::ALL[number as usize]) } else { None }
    }

    /// The name in JSON, tables, metrics and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Poll => "poll",
            Self::Batch => "batch",
            Self::Udts => "udts",
            Self::Wdts => "wdts",
            Self::Kernel => "kernel",
            Self::Hardware => "hardware",
            Self::File => "file",
            Self::Trailer => "trailer",
            Self::Schedule => "schedule",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TimestampMethod;

    #[test]
    fn numbers_are_positions_in_the_list_and_fit_in_four_bits() {
        for (number, method) in TimestampMethod::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, number);
            assert_eq!(TimestampMethod::from_number(number as u8), Some(method));
        }
        assert_eq!(TimestampMethod::from_number(TimestampMethod::COUNT as u8), None);
        const { assert!(TimestampMethod::COUNT <= 16) };
    }
}
