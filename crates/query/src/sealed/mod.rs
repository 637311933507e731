//! The sealed files of a store.

use crate::merge::Merge;
use crate::{Book, QueryError, live};
use std::path::Path;
use store::catalogue;

/// Puts everything that a store has into the merge.
///
/// # Errors
/// When the store cannot be listed.
pub fn begin(store: &Path, merge: &mut Merge, book: &mut Book) -> Result<(), QueryError> {
    let io = |error| QueryError::Io { path: store.to_owned(), error };
    for (rank, name) in (0..).zip(catalogue::interfaces(store).map_err(io)?) {
        for (rank, cursor) in live::cursors(&store.join(name), rank, Vec::new(), book)? {
            merge.add(rank, cursor);
        }
    }
    Ok(())
}
