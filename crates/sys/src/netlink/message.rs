//! Netlink messages as bytes (`include/uapi/linux/netlink.h`): a header of 16 bytes, a fixed part that depends on the
//! kind, then attributes, each aligned to four bytes. Building never fails; reading never panics on a short buffer.
//!
//! ```text
//!  0      4      6       8      12     16
//! +------+------+-------+------+------+-------------+--------------------------+
//! | len  | kind | flags | seq  | port | fixed part  | len kind payload pad ... |
//! +------+------+-------+------+------+-------------+--------------------------+
//! ```

/// Bytes of the header of every message.
pub const HEADER: usize = 16;
/// Bytes of the header of every attribute.
const ATTRIBUTE: usize = 4;
/// The bits of an attribute's kind that are not flags (`NLA_TYPE_MASK`).
const KIND_MASK: u16 = 0x3fff;

/// A request under construction.
pub struct Message(Vec<u8>);

impl Message {
    /// Creates a message of `kind` whose fixed part is `fixed` (a multiple of four bytes).
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self(bytes)
    }

    /// Appends an attribute.
    #[must_use]
    pub fn attribute(mut self, kind: u16, payload: &[u8]) -> Self {
        let len = (ATTRIBUTE + payload.len()) as u16;
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(payload);
        self.pad();
        self
    }

    /// Appends an attribute whose payload is a number of four bytes.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Appends an attribute with a text and the terminating zero that the kernel expects.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Appends an attribute whose payload `inner` appends.
    #[must_use]
    pub fn nested(mut self, kind: u16, inner: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        let mut message = inner(self);
        let len = (message.0.len() - start) as u16;
        message.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        message
    }

    /// Appends bytes without an attribute header: the fixed part of a nested message.
    #[must_use]
    pub fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.pad();
        self
    }

    /// The complete message with the sequence number `sequence`.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// One message of a response.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The kind of the message: `RTM_NEWLINK` or another kind of rtnetlink, or one of the four kinds of control
    /// messages.
    pub kind: u16,
    /// `NLM_F_MULTI` and the like.
    pub flags: u16,
    /// The sequence number of the request.
    pub sequence: u32,
    /// Fixed part and attributes.
    pub body: &'a [u8],
}

/// The messages in the bytes of one `recv`.
pub fn responses(mut bytes: &[u8]) -> impl Iterator<Item = Response<'_>> {
    std::iter::from_fn(move || {
        let len = number(bytes, 0)? as usize;
        let message = bytes.get(..len).filter(|m| m.len() >= HEADER)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Response {
            kind: half(message, 4)?,
            flags: half(message, 6)?,
            sequence: number(message, 8)?,
            body: &message[HEADER..],
        })
    })
}

/// The attributes in `bytes`, as kind and payload; ends at the first invalid attribute.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(bytes, 0)?);
        let kind = half(bytes, 2)? & KIND_MASK;
        let payload = bytes.get(ATTRIBUTE..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

/// Returns the two bytes at the offset `at` as a number.
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the four bytes at the offset `at` as a number.
pub fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the eight bytes at the offset `at` as a number.
pub fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns the bytes before the first zero byte as text.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn a_built_message_is_parsed_again() {
        let bytes = Message::new(16, 5, &[1; 8])
            .number(1, 7)
            .nested(2, |m| m.text(3, "veth").nested(4, |m| m.fixed(&[9; 6]).text(5, "x")))
            .text(6, "end")
            .finish(42);
        let all: Vec<_> = responses(&bytes).collect();
        assert_eq!((all.len(), all[0].kind, all[0].flags, all[0].sequence), (1, 16, 5, 42));
        let top: Vec<_> = attributes(&all[0].body[8..]).collect();
        assert_eq!(top.iter().map(|a| a.0).collect::<Vec<_>>(), [1, 2, 6]);
        assert_eq!(number(top[0].1, 0), Some(7));
        assert_eq!(text(top[2].1), "end");
        let inner: Vec<_> = attributes(top[1].1).collect();
        assert_eq!(text(inner[0].1), "veth");
        assert_eq!(text(attributes(&inner[1].1[8..]).next().expect("attribute 5").1), "x");
    }

    #[test]
    fn invalid_responses_end_the_parsing_without_a_panic() {
        let mut prng = Prng::new(11);
        for _ in 0..20_000 {
            let mut bytes = vec![0; prng.below(96) as usize];
            prng.fill(&mut bytes);
            if bytes.len() >= 4 && prng.below(2) == 0 {
                // With a plausible length the parser gets further than with random bytes.
                bytes[0..4].copy_from_slice(&(prng.below(100) as u32).to_ne_bytes());
            }
            for response in responses(&bytes) {
                for (_, payload) in attributes(response.body) {
                    let _ = (text(payload), attributes(payload).count());
                }
            }
        }
    }
}
