//! The secret key of CryptoPAn: 32 bytes. The first 16 bytes are the cipher key; the padding is derived from the other
//! 16.

use std::fmt;

/// Length of a key in bytes.
pub const LEN: usize = 32;

/// A key. Its `Debug` output does not contain the bytes, so that they do not end up in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; LEN]);

impl Key {
    /// A key from its bytes.
    pub const fn new(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// The key in the content of a key file: 64 hexadecimal digits, or the 32 bytes of the key (as in other tools).
    ///
    /// # Errors
    /// [`KeyError`] describes the invalid content.
    ///
    /// ```
    /// use netgrain_convert::anonymise::Key;
    /// assert!(Key::from_file(&[7; 32]).is_ok());
    /// assert_eq!(Key::from_file(&b"07".repeat(32)), Key::from_file(&[7; 32]));
    /// assert!(Key::from_file(b"secret").unwrap_err().to_string().starts_with("6 bytes"));
    /// ```
    pub fn from_file(content: &[u8]) -> Result<Self, KeyError> {
        if let Ok(bytes) = content.try_into() {
            return Self::not_zero(bytes);
        }
        let digits = content.trim_ascii();
        if digits.len() != 2 * LEN || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(KeyError::Length(content.len()));
        }
        let mut bytes = [0; LEN];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Self::not_zero(bytes)
    }

    /// The content of a key file, as hexadecimal digits.
    pub fn to_file(&self) -> String {
        let digits: String = self.0.iter().map(|b| format!("{b:02x}")).collect();
        digits + "\n"
    }

    /// Rejects a key that contains only zeros: such a key file was created but never filled with random bytes.
    fn not_zero(bytes: [u8; LEN]) -> Result<Self, KeyError> {
        if bytes == [0; LEN] { Err(KeyError::Zero) } else { Ok(Self(bytes)) }
    }

    pub(super) fn halves(&self) -> ([u8; LEN / 2], [u8; LEN / 2]) {
        let (mut key, mut pad) = ([0; LEN / 2], [0; LEN / 2]);
        key.copy_from_slice(&self.0[..LEN / 2]);
        pad.copy_from_slice(&self.0[LEN / 2..]);
        (key, pad)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// The reason why a key file is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key file has this number of bytes, which is not a valid length of a key.
    Length(usize),
    /// The key contains only zeros.
    Zero,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => {
                write!(f, "{len} bytes are no key: a key is {LEN} bytes, or {} hexadecimal digits", 2 * LEN)
            }
            Self::Zero => write!(
                f,
                "the key contains only zeros and is no secret: create a key with `netgrain convert --new-key`"
            ),
        }
    }
}

impl std::error::Error for KeyError {}
