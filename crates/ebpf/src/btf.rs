//! Finds the id of a kernel function in BTF, the kernel's description of its types and functions
//! (Documentation/bpf/btf.rst). An eBPF program calls a kernel function by this id; ids differ between kernel builds.
//!
//! ```text
//! header   magic eb9f (2) · version (1) · flags (1) · header length (4)
//!          type offset (4) · type length (4) · string offset (4) · string length (4)
//! type     name: offset in the strings (4) · info: kind in bits 24 to 28, count in bits 0 to 15 (4) · size or type (4)
//!          then data whose length depends on kind and count
//! ```
//! Offsets are relative to the end of the header. Types are numbered from 1 in the order of their places. Numbers are in
//! the byte order of the machine.

use std::fmt;

/// Offsets of the fields of the header and of a type.
mod at {
    pub const MAGIC: usize = 0;
    pub const HEADER_LENGTH: usize = 4;
    pub const TYPE_OFFSET: usize = 8;
    pub const TYPE_LENGTH: usize = 12;
    pub const STRING_OFFSET: usize = 16;
    pub const STRING_LENGTH: usize = 20;
    pub const INFO: usize = 4;
    pub const TYPE_BYTES: usize = 12;
}

const MAGIC: u16 = 0xeb9f;
/// The kind of a function.
const FUNCTION: u32 = 12;

/// The bytes are not BTF, or BTF of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BtfError {
    /// The header is missing or has another magic number.
    NotBtf,
    /// A part that the header or a type announces lies outside of the bytes.
    Truncated {
        /// The offset in bytes.
        offset: usize,
    },
    /// A type has a kind that this version does not define, so the place of the next type is unknown.
    UnknownKind {
        /// The kind.
        kind: u32,
    },
}

/// The id of the kernel function `name`; `None` if the BTF has no such function.
///
/// # Errors
/// [`BtfError`] if the bytes before the function violate the format.
pub fn function_id(btf: &[u8], name: &str) -> Result<Option<u32>, BtfError> {
    if btf.get(at::MAGIC..at::MAGIC + 2) != Some(&MAGIC.to_ne_bytes()) {
        return Err(BtfError::NotBtf);
    }
    let header = word(btf, at::HEADER_LENGTH)? as usize;
    let part = |offset: usize, length: usize| {
        let from = header.saturating_add(word(btf, offset)? as usize);
        let to = from.saturating_add(word(btf, length)? as usize);
        btf.get(from..to).ok_or(BtfError::Truncated { offset: from })
    };
    let types = part(at::TYPE_OFFSET, at::TYPE_LENGTH)?;
    let strings = part(at::STRING_OFFSET, at::STRING_LENGTH)?;
    let is_name = |at: usize| {
        let rest = strings.get(at..).and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let (mut offset, mut id) = (0, 1);
    while offset < types.len() {
        let info = word(types, offset + at::INFO)?;
        let kind = info >> 24 & 0x1f;
        if kind == FUNCTION && is_name(word(types, offset)? as usize) {
            return Ok(Some(id));
        }
        let further = further_bytes(kind, (info & 0xffff) as usize).ok_or(BtfError::UnknownKind { kind })?;
        offset += at::TYPE_BYTES + further;
        id += 1;
    }
    Ok(None)
}

/// The number of bytes after the first twelve of a type with this kind and count.
const fn further_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointer, forward declaration, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union, data section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumeration, function prototype.
        6 | 13 => 8 * count,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map(|four| u32::from_ne_bytes(*four)).ok_or(BtfError::Truncated { offset: at })
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBtf => f.write_str("the bytes do not begin with the magic number of BTF"),
            Self::Truncated { offset } => write!(f, "BTF ends before the part at byte {offset}"),
            Self::UnknownKind { kind } => write!(f, "BTF contains a type of the unknown kind {kind}"),
        }
    }
}

impl std::error::Error for BtfError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with these types: name, kind, count.
    fn btf(types: &[(&str, u32, u32)]) -> Vec<u8> {
        let (mut body, mut strings) = (Vec::new(), vec![0]);
        for (name, kind, count) in types {
            body.extend((strings.len() as u32).to_ne_bytes());
            body.extend((kind << 24 | count).to_ne_bytes());
            body.extend([0; 4]);
            body.extend(vec![0xff; further_bytes(*kind, *count as usize).expect("a known kind")]);
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let mut out = MAGIC.to_ne_bytes().to_vec();
        out.extend([1, 0]);
        for word in [24, 0, body.len(), body.len(), strings.len()] {
            out.extend((word as u32).to_ne_bytes());
        }
        [out, body, strings].concat()
    }

    #[test]
    fn a_function_is_found_by_its_complete_name_behind_types_of_all_kinds() {
        let mut types: Vec<(&str, u32, u32)> = (1..=19).map(|kind| ("other", kind, 3)).collect();
        types.extend([("stamp", 4, 2), ("stamps", 12, 0), ("stamp", 12, 0)]);
        assert_eq!(function_id(&btf(&types), "stamp"), Ok(Some(22)), "a structure and a longer name are no match");
        assert_eq!(function_id(&btf(&types), "other"), Ok(Some(12)));
        assert_eq!(function_id(&btf(&types), "none"), Ok(None));
    }

    #[test]
    fn bytes_that_are_cut_off_or_changed_give_an_error_or_a_result_without_a_panic() {
        let whole = btf(&[("a", 1, 0), ("b", 4, 2), ("c", 12, 0)]);
        for length in 0..whole.len() {
            assert!(function_id(&whole[..length], "none").is_err(), "{length} bytes");
        }
        let mut state = 7u64;
        for _ in 0..20_000 {
            let mut changed = whole.clone();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % changed.len();
            changed[at] = (state >> 20) as u8;
            let _ = function_id(&changed, "c");
        }
        assert_eq!(function_id(&[0; 64], "c"), Err(BtfError::NotBtf));
    }
}
