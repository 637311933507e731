//! An interface that packets come from.

/// An interface that packets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressInterface {
    /// The interface name.
    pub name: String,
    /// The number of the interface in flow records and series rows.
    pub number: u16,
}
