//! An interface on which the engine captures packets.

/// An interface on which the engine captures packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressInterface {
    /// The interface name.
    pub name: String,
    /// The number of the interface in flow records and series rows.
    pub number: u16,
}
