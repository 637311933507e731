//! Names of the common link types (registry of draft-ietf-opsawg-pcaplinktype), for messages.

use std::fmt;

/// A link type, displayed as its number and, if it is a common type, its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// The name of the link type in the registry, without `LINKTYPE_`; `None` for uncommon link types.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "NULL, BSD loopback",
            1 => "ETHERNET",
            6 => "IEEE802_5, token ring",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP_HDLC",
            51 => "PPP_ETHER",
            100 => "ATM_RFC1483",
            101 => "RAW, IP",
            104 => "C_HDLC",
            105 => "IEEE802_11",
            107 => "FRELAY, frame relay",
            108 => "LOOP, OpenBSD loopback",
            113 => "LINUX_SLL",
            117 => "PFLOG",
            119 => "IEEE802_11_PRISM",
            127 => "IEEE802_11_RADIOTAP",
            147..=162 => "USER, private use",
            163 => "IEEE802_11_AVS",
            187 | 201 => "BLUETOOTH_HCI_H4",
            189 | 220 => "USB_LINUX",
            192 => "PPI",
            195 | 230 => "IEEE802_15_4",
            227 => "CAN_SOCKETCAN",
            228 => "IPV4",
            229 => "IPV6",
            239 => "NFLOG",
            249 => "USBPCAP",
            251 => "BLUETOOTH_LE_LL",
            252 => "WIRESHARK_UPPER_PDU",
            253 => "NETLINK",
            272 => "NORDIC_BLE",
            276 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_type_is_displayed_with_number_and_name() {
        assert_eq!(LinkType(105).to_string(), "105 (IEEE802_11)");
        assert_eq!(LinkType(150).to_string(), "150 (USER, private use)");
        assert_eq!(LinkType(4711).to_string(), "4711");
    }
}
