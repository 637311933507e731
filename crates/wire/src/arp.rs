//! A view of ARP messages for IPv4 over Ethernet (RFC 826). Other address types are not supported.

use crate::bytes::{be16, copy};
use crate::error::take;
use crate::{Layer, MacAddr, ParseError};
use std::net::Ipv4Addr;

pub(crate) mod at {
    pub const OPERATION: usize = 6;
    pub const SENDER_MAC: usize = 8;
    pub const SENDER_IP: usize = 14;
    pub const TARGET_MAC: usize = 18;
    pub const TARGET_IP: usize = 24;
    pub const END: usize = 28;
}

/// An ARP request or reply.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a> {
    head: &'a [u8; at::END],
}

impl<'a> Arp<'a> {
    /// Length of the message in bytes.
    pub const LEN: usize = at::END;

    /// Parses the message at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 28 bytes.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        take(frame, offset, Layer::Arp).map(|(head, _)| Self { head })
    }

    /// The operation: 1 for a request, 2 for a reply.
    pub fn operation(&self) -> u16 {
        be16(self.head, at::OPERATION)
    }

    /// Sender hardware address.
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(copy(self.head, at::SENDER_MAC))
    }

    /// Sender protocol address.
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4, _>(self.head, at::SENDER_IP))
    }

    /// Target hardware address; zero in a request.
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(copy(self.head, at::TARGET_MAC))
    }

    /// Target protocol address.
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4, _>(self.head, at::TARGET_IP))
    }
}
