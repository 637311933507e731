//! The common part of the loops over flow records and over series rows: opening, waiting, passing items to C,
//! callbacks, interface names, and warnings. The module of each data type implements [`DataLoop`].

use crate::abi::{Error, Query, code};
use crate::guard::{Failure, c_text, text};
use crate::handle::{Handle, within};
use crate::query::read;
use columns::{ColumnsError, Step};
use filter::FlowFilter;
use query::{Background, QueryError, QuerySource};
use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum delay until a waiting loop notices `netgrain_flows_stop`.
const IDLE_SLEEP: Duration = Duration::from_millis(50);

/// A loop over the items of one data type.
pub trait DataLoop {
    /// The C structure of an item: a flow record or a series row.
    type Item;

    /// The next item, which is valid until the next call; null at the end of the data.
    fn next(&mut self) -> Result<*const Self::Item, Failure>;

    /// The warnings so far.
    fn reported(&self) -> Vec<String>;

    /// The state that all loops share.
    fn common(&mut self) -> &mut Common;
}

/// The C function that the caller passes, called for each item.
pub type Callback<T> = unsafe extern "C" fn(*mut c_void, *const T) -> i32;

/// Stores the pointer to the next item of the loop in `*place`. Returns 1 for an item, 0 at the end of the data, and -1
/// after an error.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
pub unsafe fn next<G: DataLoop>(
    handle: *mut Handle<G>,
    place: *mut *const G::Item,
    what: &str,
    err: *mut Error,
) -> i32 {
    let body = |inner: &mut G| {
        if place.is_null() {
            return Err(Failure::argument(format!("the pointer for the {what} is NULL")));
        }
        let found = inner.next()?;
        // SAFETY: `place` is not null, so by the caller's contract it points to memory for a pointer.
        unsafe { place.write(found) };
        Ok(i32::from(!found.is_null()))
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, err, -1, body) }
}

/// Calls `callback` for each item until the end, until `limit` items, or until the callback returns nonzero; returns
/// the number of items.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
pub unsafe fn each<G: DataLoop>(
    handle: *mut Handle<G>,
    limit: u64,
    callback: Option<Callback<G::Item>>,
    user: *mut c_void,
    err: *mut Error,
) -> i64 {
    let body = |inner: &mut G| {
        let callback = callback.ok_or_else(|| Failure::argument("the callback is NULL"))?;
        let mut count = 0u64;
        while limit == 0 || count < limit {
            let found = inner.next()?;
            if found.is_null() {
                break;
            }
            count += 1;
            // SAFETY: `callback` is a function of the caller, and `user` is its argument. The item is valid until the
            // function returns.
            if unsafe { callback(user, found) } != 0 {
                break;
            }
        }
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, err, -1, body) }
}

/// Returns 1 if no warning has occurred so far, otherwise 0.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
pub unsafe fn is_complete<G: DataLoop>(handle: *mut Handle<G>) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), 0, |inner: &mut G| Ok(i32::from(inner.reported().is_empty()))) }
}

/// Copies the current warnings for [`warning`]; returns their number.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
pub unsafe fn warnings<G: DataLoop>(handle: *mut Handle<G>) -> usize {
    let body = |inner: &mut G| {
        let result = inner.reported();
        Ok(inner.common().take_warnings(&result))
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), 0, body) }
}

/// The text of a copied warning.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
pub unsafe fn warning<G: DataLoop>(handle: *mut Handle<G>, number: usize) -> *const c_char {
    let body = |inner: &mut G| Ok(inner.common().warning(number));
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), std::ptr::null(), body) }
}

/// A parsed query for flow records or series rows.
pub struct ParsedQuery {
    pub query: columns::Query,
    pub filter: FlowFilter,
    pub live: bool,
    pub common: Common,
}

/// The state that loops over flow records and over series rows share.
pub struct Common {
    pub stop: Arc<AtomicBool>,
    /// Interface names. Pointers to them are valid until the loop is closed: if the list grows, the text of a `CString`
    /// does not move.
    names: Vec<CString>,
    warnings: Vec<CString>,
    /// The reason why the priority of the calling thread could not be lowered, if the query requested a low priority.
    priority_error: Option<String>,
}

/// Reads the caller's query.
///
/// # Safety
/// `store` and `query` meet the requirements of [`text`] and [`read`].
pub unsafe fn begin(store: *const c_char, query: *const Query) -> Result<ParsedQuery, Failure> {
    // SAFETY: the caller's contract.
    let (store, packet_query) = unsafe { (PathBuf::from(text(store, "the store")?), read(query)?) };
    let query::Query { from, to, interfaces, follow, live, .. } = packet_query.query;
    if from > to {
        return Err(QueryError::Backwards { from, to }.into());
    }
    if follow && !live {
        let text = "NETGRAIN_FOLLOW needs growing data, which NETGRAIN_NO_RING excludes: pass one of them";
        return Err(Failure::argument(text));
    }
    let place = QuerySource::Store(store.clone());
    let priority_error =
        if packet_query.low_priority { query::lower_priority(&place, Background::Batch) } else { None };
    let filter = FlowFilter::parse(&packet_query.filter_text)
        .map_err(|e| Failure { code: code::FILTER, text: format!("filter: {e}") })?;
    let query = columns::Query { interfaces, from, to, need: filter.need(), live, ..columns::Query::new(store) };
    let stop = Arc::new(AtomicBool::new(false));
    let common = Common { stop, names: Vec::new(), warnings: Vec::new(), priority_error };
    Ok(ParsedQuery { query, filter, live: follow, common })
}

impl Common {
    /// Calls `step` until it returns an item, the data ends, or the stop flag is set.
    pub fn wait<T>(
        &self,
        mut step: impl FnMut() -> Result<(Step<T>, Duration), ColumnsError>,
    ) -> Result<Option<T>, Failure> {
        while !self.is_stopped() {
            match step()? {
                (Step::One(thing), _) => return Ok(Some(thing)),
                (Step::End, _) => return Ok(None),
                (Step::Idle, mut pause) => {
                    while !pause.is_zero() && !self.is_stopped() {
                        let sleep = pause.min(IDLE_SLEEP);
                        std::thread::sleep(sleep);
                        pause -= sleep;
                    }
                }
            }
        }
        Ok(None)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The name of an interface, valid until the loop is closed.
    pub fn name(&mut self, number: u16, all: &[String]) -> *const c_char {
        let new = all.iter().skip(self.names.len()).map(|name| c_text(name));
        self.names.extend(new);
        self.names[usize::from(number)].as_ptr()
    }

    fn take_warnings(&mut self, result: &[String]) -> usize {
        self.warnings = self.priority_error.iter().chain(result).map(|text| c_text(text)).collect();
        self.warnings.len()
    }

    fn warning(&self, number: usize) -> *const c_char {
        self.warnings.get(number).map_or(std::ptr::null(), |text| text.as_ptr())
    }
}

/// An error in the filter of a flow or series query.
pub fn filter_error(what: impl std::fmt::Display) -> Failure {
    Failure { code: code::FILTER, text: format!("filter: {what}") }
}
