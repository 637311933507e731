//! The value of a field, and its formatting.

use base::Timestamp;
use flow::InitialPacket;
use std::io::Write;
use std::net::IpAddr;
use wire::{FlowKey, IpProtocol, MacAddr, community_id};

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Unknown or nonexistent.
    Absent,
    /// An integer.
    Number(u64),
    /// A floating-point number.
    Real(f64),
    /// A member of an enumeration.
    Word(&'static str),
    /// A 64-bit identifier, as a decimal number; a string in JSON, because readers that only support floating point
    /// would round it.
    Id(u64),
    /// A timestamp.
    Time(Timestamp),
    /// An address.
    Address(IpAddr),
    /// A MAC address.
    Mac(MacAddr),
    /// A protocol, printed as its name in filters or as its number.
    Protocol(IpProtocol),
    /// The Community ID of a flow; for ICMP, the ports of the key are type and code.
    Community(FlowKey),
    /// An interface, printed as the name that the writer knows for it, or as its number.
    Interface(u16),
    /// Bytes, as hexadecimal digits.
    Bytes(&'a [u8]),
    /// A list with one number per initial packet, computed from the packet and its predecessor; the predecessor of the
    /// first packet is an empty packet.
    InitialPackets(&'a [InitialPacket], fn(&InitialPacket, &InitialPacket) -> i64),
}

impl Value<'_> {
    /// True if the record or row has no value for the field.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Real(real) => !real.is_finite(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::InitialPackets(packets, _) => packets.is_empty(),
            _ => false,
        }
    }

    /// The value as JSON; an absent value is `null`.
    pub fn json(&self, interface: Option<&str>, out: &mut Vec<u8>) {
        if self.is_absent() {
            return out.extend_from_slice(b"null");
        }
        match self {
            Self::Number(_) | Self::Real(_) => self.plain(interface, out),
            Self::InitialPackets(packets, of) => {
                out.push(b'[');
                list(packets, *of, b',', out);
                out.push(b']');
            }
            Self::Interface(_) => match interface {
                Some(name) => json_text(name, out),
                None => self.quoted(out),
            },
            // The values of the other kinds contain no character that needs an escape.
            _ => self.quoted(out),
        }
    }

    /// As a field of CSV.
    pub fn csv(&self, interface: Option<&str>, out: &mut Vec<u8>) {
        match (self, interface) {
            (Self::Interface(_), Some(name)) if name.contains([',', '"', '\r', '\n']) => {
                out.push(b'"');
                out.extend_from_slice(name.replace('"', "\"\"").as_bytes());
                out.push(b'"');
            }
            _ => self.plain(interface, out),
        }
    }

    /// As text for people.
    pub fn plain(&self, interface: Option<&str>, out: &mut Vec<u8>) {
        if self.is_absent() {
            return;
        }
        match *self {
            Self::Absent => {}
            Self::Number(number) => decimal(number, out),
            // Printed with a point or an exponent, so that readers that guess types recognise a floating-point number.
            Self::Real(real) => display(format_args!("{real:?}"), out),
            Self::Word(word) => out.extend_from_slice(word.as_bytes()),
            Self::Id(id) => decimal(id, out),
            Self::Time(time) => display(time, out),
            Self::Address(address) => display(address, out),
            Self::Mac(mac) => display(mac, out),
            Self::Protocol(protocol) => display(protocol, out),
            Self::Community(ref key) => out.extend_from_slice(community_id(key).as_bytes()),
            Self::Interface(number) => match interface {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => decimal(number.into(), out),
            },
            Self::Bytes(bytes) => hexadecimal(bytes, out),
            Self::InitialPackets(packets, of) => list(packets, of, b' ', out),
        }
    }

    fn quoted(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        self.plain(None, out);
        out.push(b'"');
    }
}

/// A JSON string (RFC 8259, section 7).
pub(super) fn json_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend([b'\\', c as u8]),
            '\0'..' ' => display(format_args!("\\u{:04x}", c as u32), out),
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// PERF: most values are integers, and this function takes a third of the time of `fmt`.
fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

fn hexadecimal(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

fn list(packets: &[InitialPacket], of: fn(&InitialPacket, &InitialPacket) -> i64, between: u8, out: &mut Vec<u8>) {
    let mut before = &InitialPacket::default();
    for (n, packet) in packets.iter().enumerate() {
        if n > 0 {
            out.push(between);
        }
        let number = of(packet, before);
        if number < 0 {
            out.push(b'-');
        }
        decimal(number.unsigned_abs(), out);
        before = packet;
    }
}

fn display(what: impl std::fmt::Display, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: Value<'_>, interface: Option<&str>) -> String {
        let mut out = Vec::new();
        value.json(interface, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn values_that_are_not_finite_or_empty_are_absent() {
        for value in [Value::Absent, Value::Real(f64::NAN), Value::Real(f64::INFINITY), Value::Bytes(&[])] {
            assert!(value.is_absent());
            assert_eq!(json(value, None), "null");
        }
    }

    #[test]
    fn numbers_have_all_their_digits() {
        for number in [0, 9, 10, 1234567890, u64::MAX] {
            assert_eq!(json(Value::Number(number), None), number.to_string());
        }
        assert_eq!([0.1, 9.0, 1e300].map(|real| json(Value::Real(real), None)), ["0.1", "9.0", "1e300"]);
        assert_eq!(json(Value::Id(0xbeef), None), "\"48879\"");
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(json(Value::Interface(3), None), "\"3\"");
        assert_eq!(json(Value::Interface(3), Some("a\"\\\n\u{e9}")), "\"a\\\"\\\\\\u000a\u{e9}\"");
        let mut out = Vec::new();
        Value::Interface(3).csv(Some("a,\"b\""), &mut out);
        assert_eq!(out, b"\"a,\"\"b\"\"\"");
    }
}
