//! The boundary between Rust and C: failures become codes and texts, panics are caught, and the caller's pointers are
//! read.

use crate::abi::{Error, TEXT, code};
use columns::ColumnsError;
use query::QueryError;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error code and the error text of a failed call.
#[derive(Debug)]
pub struct Failure {
    pub code: i32,
    pub text: String,
}

impl Failure {
    pub fn argument(text: impl Into<String>) -> Self {
        Self { code: code::ARGUMENT, text: text.into() }
    }

    /// Fills the caller's error structure, if not null.
    ///
    /// # Safety
    /// `err` is null or points to an error that no other thread accesses.
    pub unsafe fn fill(&self, err: *mut Error) {
        // SAFETY: the caller's contract.
        let Some(err) = (unsafe { err.as_mut() }) else { return };
        let mut len = self.text.len().min(TEXT - 1);
        while !self.text.is_char_boundary(len) {
            len -= 1;
        }
        err.code = self.code;
        err.text = [0; TEXT];
        // Line breaks are replaced, because quoted parts of files and arguments may contain them, and the text must be
        // one line.
        let line = self.text.as_bytes()[..len].iter().map(|b| if matches!(b, 0 | b'\n' | b'\r') { b' ' } else { *b });
        for (to, from) in err.text.iter_mut().zip(line) {
            *to = from as c_char;
        }
    }
}

impl From<QueryError> for Failure {
    fn from(e: QueryError) -> Self {
        let code = match e {
            QueryError::NoInterface { .. } => code::INTERFACE,
            QueryError::Backwards { .. } => code::TIME,
            _ => code::READ,
        };
        Self { code, text: e.to_string() }
    }
}

impl From<ColumnsError> for Failure {
    fn from(e: ColumnsError) -> Self {
        let code = match e {
            ColumnsError::NoInterface { .. } => code::INTERFACE,
            _ => code::READ,
        };
        Self { code, text: e.to_string() }
    }
}

/// Runs `body` and returns its result. If `body` fails or panics, fills the caller's error structure and returns
/// `otherwise`.
///
/// # Safety
/// `err` is null or points to an error that no other thread accesses.
pub unsafe fn call<T>(err: *mut Error, otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    // A panic may leave a query inconsistent; the query then rejects further calls, because its flag `busy` stays set.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure { code: code::BUG, text: format!("this is a bug in netgrain, please report it: {message}") }
        }
    };
    // SAFETY: the caller's contract.
    unsafe { failure.fill(err) };
    otherwise
}

/// Reads a text that the caller passes.
///
/// # Safety
/// `text` is null or points to a NUL-terminated text that is valid for `'a`.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: `text` is not null, so by the caller's contract it points to a NUL-terminated text.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Reads a list of texts that the caller passes.
///
/// # Safety
/// `list` points to `count` pointers to texts (see [`text`]), or is null.
pub unsafe fn texts(list: *const *const c_char, count: usize, what: &str) -> Result<Vec<String>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if list.is_null() {
        return Err(Failure::argument(format!("the list is NULL although its count is {count}: {what} is missing")));
    }
    // SAFETY: `list` is not null, so by the caller's contract it points to `count` pointers to texts.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    // SAFETY: each pointer is null or points to a text, by the caller's contract.
    list.iter().map(|one| unsafe { text(*one, what) }.map(str::to_owned)).collect()
}

/// Converts a text to a C string, without its NUL bytes.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> Error {
        Error { code: 0, text: [0; TEXT] }
    }

    fn message(err: &Error) -> String {
        let bytes: Vec<u8> = err.text.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
        String::from_utf8(bytes).expect("whole characters")
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_line() {
        let mut err = error();
        // SAFETY: `err` is a local variable.
        let got = unsafe { call(&raw mut err, -1, || panic!("two {}", "words")) };
        assert_eq!((got, err.code), (-1, code::BUG));
        assert!(message(&err).contains("please report it: two words"), "{}", message(&err));
        // SAFETY: no error to fill.
        assert_eq!(unsafe { call(std::ptr::null_mut(), 7, || panic!("again")) }, 7);
    }

    #[test]
    fn a_text_is_one_line_of_whole_characters_that_ends() {
        for (text, expected) in
            [("two\nlines\0here".to_owned(), "two lines here".to_owned()), ("é".repeat(400), "é".repeat(255))]
        {
            let mut err = error();
            // SAFETY: `err` is a local variable.
            unsafe { Failure { code: code::READ, text }.fill(&raw mut err) };
            assert_eq!((message(&err), err.text[TEXT - 1]), (expected, 0));
        }
    }
}
