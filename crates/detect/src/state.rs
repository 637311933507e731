//! The stored form of a detector's state.
//!
//! ```text
//!  0      3         4      5          7                  7+len      11+len
//!  ┌──────┬─────────┬──────┬──────────┬──────────────────┬──────────┐
//!  │ NGD  │ version │ kind │ len      │ fields           │ CRC32C   │
//!  └──────┴─────────┴──────┴──────────┴──────────────────┴──────────┘
//! ```
//!
//! Numbers are little-endian. The checksum covers all bytes before it. A detector writes and reads its fields by the
//! same function ([`Field::visit`]), so that the two orders agree.

use std::fmt;
use std::ops::Range;

mod at {
    use super::Range;
    pub const MAGIC: Range<usize> = 0..3;
    pub const VERSION: usize = 3;
    pub const KIND: usize = 4;
    pub const LEN: Range<usize> = 5..7;
    pub const FIELDS: usize = 7;
}

/// The first bytes of a stored state.
const MAGIC: &[u8; 3] = b"NGD";

/// The version of the format. A state of another version is refused, and the detector begins with a warm-up.
pub const VERSION: u8 = 1;

/// Bytes of the checksum.
const CHECKSUM_LEN: usize = 4;

/// The kind of detector of a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`crate::Threshold`].
    Threshold = 1,
    /// [`crate::Adaptive`].
    Adaptive = 2,
    /// [`crate::SynFlood`].
    SynFlood = 3,
}

/// The reason why bytes are no state of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The bytes do not begin with the header of a state, or are too short.
    NoState,
    /// The state has another version.
    Version(u8),
    /// The state belongs to another kind of detector.
    Kind(u8),
    /// The checksum or the length does not match the bytes.
    Damaged,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoState => f.write_str("these bytes are no state of a detector; the detector has to learn anew")?,
            Self::Version(version) => write!(
                f,
                "the state of the detector has version {version}, and this program reads version {VERSION}; the \
                 detector has to learn anew"
            )?,
            Self::Kind(kind) => {
                write!(f, "the state belongs to another kind of detector ({kind}); the detector has to learn anew")?;
            }
            Self::Damaged => f.write_str("the state of the detector is damaged; the detector has to learn anew")?,
        }
        Ok(())
    }
}

impl std::error::Error for StateError {}

/// Writes or reads the numbers of a state.
pub trait Codec {
    /// Writes or reads bytes.
    fn bytes(&mut self, bytes: &mut [u8]);

    /// Writes or reads an integer of 8 bytes.
    fn u64(&mut self, value: &mut u64) {
        let mut bytes = value.to_le_bytes();
        self.bytes(&mut bytes);
        *value = u64::from_le_bytes(bytes);
    }

    /// Writes or reads an integer of 2 bytes.
    fn u16(&mut self, value: &mut u16) {
        let mut bytes = value.to_le_bytes();
        self.bytes(&mut bytes);
        *value = u16::from_le_bytes(bytes);
    }

    /// Writes or reads an integer of 4 bytes.
    fn u32(&mut self, value: &mut u32) {
        let mut bytes = value.to_le_bytes();
        self.bytes(&mut bytes);
        *value = u32::from_le_bytes(bytes);
    }

    /// Writes or reads a number of 8 bytes. All bits are kept.
    fn f64(&mut self, value: &mut f64) {
        let mut bits = value.to_bits();
        self.u64(&mut bits);
        *value = f64::from_bits(bits);
    }

    /// Writes or reads a number of 4 bytes. All bits are kept.
    fn f32(&mut self, value: &mut f32) {
        let mut bits = value.to_bits();
        self.u32(&mut bits);
        *value = f32::from_bits(bits);
    }

    /// Writes or reads a truth value.
    fn bool(&mut self, value: &mut bool) {
        let mut byte = [u8::from(*value)];
        self.bytes(&mut byte);
        *value = byte[0] != 0;
    }
}

/// A part of a state.
pub trait Field {
    /// Passes all numbers of the part to the codec, always in the same order.
    fn visit(&mut self, codec: &mut dyn Codec);
}

struct Writer(Vec<u8>);

impl Codec for Writer {
    fn bytes(&mut self, bytes: &mut [u8]) {
        self.0.extend_from_slice(bytes);
    }
}

struct Reader<'a> {
    left: &'a [u8],
    is_short: bool,
}

impl Codec for Reader<'_> {
    fn bytes(&mut self, bytes: &mut [u8]) {
        match self.left.split_at_checked(bytes.len()) {
            Some((now, left)) => {
                bytes.copy_from_slice(now);
                self.left = left;
            }
            None => self.is_short = true,
        }
    }
}

/// Writes an optional part: a truth value, and the part if it exists.
pub(crate) fn optional<T: Field + Default>(part: &mut Option<Box<T>>, codec: &mut dyn Codec) {
    let mut exists = part.is_some();
    codec.bool(&mut exists);
    if exists {
        part.get_or_insert_default().visit(codec);
    } else {
        *part = None;
    }
}

/// The bytes of a state. The fields of a copy are written, because [`Field::visit`] needs a mutable reference.
pub(crate) fn store<T: Field + Clone>(kind: Kind, state: &T) -> Vec<u8> {
    let mut writer = Writer(Vec::with_capacity(1024));
    writer.0.extend_from_slice(MAGIC);
    writer.0.extend_from_slice(&[VERSION, kind as u8, 0, 0]);
    state.clone().visit(&mut writer);
    let mut bytes = writer.0;
    let len = u16::try_from(bytes.len() - at::FIELDS).unwrap_or(u16::MAX);
    bytes[at::LEN].copy_from_slice(&len.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads a state into `state`.
///
/// # Errors
/// The bytes are no state of this kind and version, or are damaged; `state` is then unspecified.
pub(crate) fn restore<T: Field>(kind: Kind, bytes: &[u8], state: &mut T) -> Result<(), StateError> {
    if bytes.len() < at::FIELDS + CHECKSUM_LEN || bytes[at::MAGIC] != *MAGIC {
        return Err(StateError::NoState);
    }
    if bytes[at::VERSION] != VERSION {
        return Err(StateError::Version(bytes[at::VERSION]));
    }
    let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    let len = usize::from(u16::from_le_bytes([bytes[at::LEN.start], bytes[at::LEN.start + 1]]));
    if checksum != crc32c::crc32c(body).to_le_bytes() || body.len() != at::FIELDS + len {
        return Err(StateError::Damaged);
    }
    if bytes[at::KIND] != kind as u8 {
        return Err(StateError::Kind(bytes[at::KIND]));
    }
    let mut reader = Reader { left: &body[at::FIELDS..], is_short: false };
    state.visit(&mut reader);
    if reader.is_short || !reader.left.is_empty() { Err(StateError::Damaged) } else { Ok(()) }
}
