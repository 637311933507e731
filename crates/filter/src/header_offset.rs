//! Offsets of headers, from the start of the frame or from a header of a tunnel.

/// An offset from the start of the frame, or from a header of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeaderOffset {
    /// The tunnel header from which the offset counts; `None` for the start of the frame.
    pub from: Option<TunnelRef>,
    /// The offset in bytes.
    pub at: u32,
}

/// A header of a tunnel. The number identifies the tunnel primitive in the filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunnelRef {
    /// The field that contains the ethertype of the tunnel's payload.
    Kind(u16),
    /// The start of the tunnel's payload, where its link header begins.
    Link(u16),
    /// The start of the network header inside the tunnel.
    Payload(u16),
}

impl HeaderOffset {
    /// An offset from the start of the frame.
    pub const fn frame(at: u32) -> Self {
        Self { from: None, at }
    }

    /// Returns the offset increased by `bytes`.
    pub const fn plus(self, bytes: u32) -> Self {
        Self { at: self.at.wrapping_add(bytes), ..self }
    }
}

impl TunnelRef {
    /// The number of the tunnel.
    pub const fn tunnel(self) -> u16 {
        match self {
            Self::Kind(n) | Self::Link(n) | Self::Payload(n) => n,
        }
    }
}
