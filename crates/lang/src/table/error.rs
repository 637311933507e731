//! The reasons why a function cannot be evaluated for its arguments.

use filter::FilterError;
use ir::MAX_CAPACITY;
use std::fmt;
use std::net::IpAddr;

/// The reason why a function cannot be evaluated for its arguments. In a message, the text of this error comes after
/// the name of the function.
#[derive(Clone, Debug, PartialEq)]
pub enum EvaluationError {
    /// An argument is of another type; the field describes the required arguments, such as "a number here".
    Type(&'static str),
    /// A number is outside the range 0 to `maximum`.
    OutOfRange {
        /// The number.
        number: i64,
        /// The largest possible number.
        maximum: u64,
    },
    /// A number of bytes is 0, or greater than the number in this variant.
    Bytes(u64),
    /// A number is no probability between 0 and 1, both excluded.
    Probability(f64),
    /// A prefix is longer than its address.
    PrefixLength {
        /// The address.
        address: IpAddr,
        /// The length of the prefix in bits.
        bits: u64,
    },
    /// A text is not the name of an interface.
    InterfaceName(String),
    /// A text is not a link address.
    LinkAddress(String),
    /// A text is not a tcpdump filter for frames of this link type.
    Filter(FilterError),
    /// A filter requires a loop.
    FilterLoops(crate::packet_filter::FilterLoops),
    /// `case_of` has no arm.
    NoArm,
    /// The given class is class 63 (`management`), which is reserved.
    ManagementClass,
    /// A program tests for a flow with port 0, which no flow has.
    FlowPort,
    /// The key has no field.
    EmptyKey,
    /// The capacity of a flow map is 0 or too large.
    Capacity,
    /// The lifetime of flows in a map is 0.
    Lifetime,
    /// A text is not a class of duplicates.
    DuplicateClass(String),
    /// A size or probability of a Bloom filter is infinite or too large for the given arguments.
    BloomSize,
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(required) => write!(f, "takes {required}"),
            Self::OutOfRange { number, maximum } => {
                write!(f, "{number} is out of range; the range is 0 to {maximum}")
            }
            Self::Bytes(maximum) => write!(f, "the number of bytes must be from 1 to {maximum}"),
            Self::Probability(p) => {
                write!(f, "{p} is not a probability between 0 and 1; write one such as 0.001")
            }
            Self::PrefixLength { address, bits } => write!(f, "{bits} is not a valid prefix length for {address}"),
            Self::InterfaceName(name) => {
                write!(f, "{name:?} is not an interface name: 1 to 15 characters without spaces and `/`")
            }
            Self::LinkAddress(text) => write!(f, "{text:?} is not a link address; write \"00:1b:21:0a:0b:0c\""),
            Self::Filter(e) => e.fmt(f),
            Self::FilterLoops(e) => e.fmt(f),
            Self::NoArm => f.write_str("has no arm: write `[0 ~> drop]`, with one arm for each value"),
            Self::ManagementClass => {
                f.write_str("class 63 is reserved for management and never has members; write 0 to 62")
            }
            Self::FlowPort => f.write_str("no flow has port 0; write 1 to 65535"),
            Self::EmptyKey => f.write_str("the key is empty"),
            Self::Capacity => write!(f, "a map holds 1 to {MAX_CAPACITY} flows"),
            Self::Lifetime => f.write_str("a lifetime of 0 milliseconds would remove each flow at once"),
            Self::DuplicateClass(text) => {
                let names = base::DuplicateClass::ALL.map(base::DuplicateClass::name).join(", ");
                write!(f, "{text:?} is not a class of duplicates; write any, {names}")
            }
            Self::BloomSize => f.write_str("the result for these arguments is infinite or too large"),
        }
    }
}

impl std::error::Error for EvaluationError {}
