//! Reads texts and numbers from the bytes of inputs, and repairs checksums in them.

/// The longest prefix of the bytes that is valid UTF-8.
pub fn text_of(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default(),
    }
}

/// Texts as seeds.
pub fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// The little-endian number in the four bytes at `at`; `None` if they are not all inside of `bytes`.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?) as usize)
}

/// The little-endian number in the eight bytes at `at`; `None` if they are not all inside of `bytes`.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    usize::try_from(u64::from_le_bytes(field.try_into().ok()?)).ok()
}

/// Writes the CRC32C of a part of `bytes` into the last four bytes of the part, which the CRC32C does not cover;
/// returns
/// `None` if the part is not inside of `bytes`.
pub fn repair(bytes: &mut [u8], part: std::ops::Range<usize>) -> Option<()> {
    let (content, crc) = bytes.get_mut(part)?.split_last_chunk_mut::<4>()?;
    *crc = crc32c::crc32c(content).to_le_bytes();
    Some(())
}
