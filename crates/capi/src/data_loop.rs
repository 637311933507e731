//! What the loops over flows and over series have in common: how they begin, wait, lend, call back, name interfaces, and tell
//! remarks. A [`DataLoop`] says what is its own.

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

/// How long `netgrain_flows_stop` may take to be seen.
const IDLE_SLEEP: Duration = Duration::from_millis(50);

/// A loop over one grain.
pub trait DataLoop {
    /// What C is lent of one thing.
    type Item;

    /// The next thing, lent until the next call; null at the end.
    fn next(&mut self) -> Result<*const Self::Item, Failure>;

    /// What people should know, so far.
    fn reported(&self) -> Vec<String>;

    /// What it has in common with the others.
    fn common(&mut self) -> &mut Common;
}

/// A caller's function for each thing.
pub type Callback<T> = unsafe extern "C" fn(*mut c_void, *const T) -> i32;

/// Lends the next thing: 1, or 0 at the end.
///
/// # Safety
/// The pointers are as the header says.
pub unsafe fn next<G: DataLoop>(
    handle: *mut Handle<G>,
    place: *mut *const G::Item,
    what: &str,
    err: *mut Error,
) -> i32 {
    let body = |inner: &mut G| {
        if place.is_null() {
            return Err(Failure::argument(format!("the place for the {what} is NULL")));
        }
        let found = inner.next()?;
        // SAFETY: not null, so by the caller's promise a place for a pointer.
        unsafe { place.write(found) };
        Ok(i32::from(!found.is_null()))
    };
    // SAFETY: the caller's promise.
    unsafe { within(handle, err, -1, body) }
}

/// Calls back with one thing after the other, as far as `limit` and the callback want; how many there were.
///
/// # Safety
/// The pointers are as the header says.
pub unsafe fn each<G: DataLoop>(
    handle: *mut Handle<G>,
    limit: u64,
    callback: Option<Callback<G::Item>>,
    user: *mut c_void,
    err: *mut Error,
) -> i64 {
    let body = |inner: &mut G| {
        let callback = callback.ok_or_else(|| Failure::argument("the callback is NULL"))?;
        let mut given = 0u64;
        while limit == 0 || given < limit {
            let found = inner.next()?;
            if found.is_null() {
                break;
            }
            given += 1;
            // SAFETY: a function of the caller, for which `user` is meant. What is lent stays until it returns.
            if unsafe { callback(user, found) } != 0 {
                break;
            }
        }
        Ok(i64::try_from(given).unwrap_or(i64::MAX))
    };
    // SAFETY: the caller's promise.
    unsafe { within(handle, err, -1, body) }
}

/// Whether everything could be read so far.
///
/// # Safety
/// The pointers are as the header says.
pub unsafe fn is_complete<G: DataLoop>(handle: *mut Handle<G>) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, |inner: &mut G| Ok(i32::from(inner.reported().is_empty()))) }
}

/// Takes over what people should know; how many remarks there are.
///
/// # Safety
/// The pointers are as the header says.
pub unsafe fn warnings<G: DataLoop>(handle: *mut Handle<G>) -> usize {
    let body = |inner: &mut G| {
        let result = inner.reported();
        Ok(inner.common().take_warnings(&result))
    };
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, body) }
}

/// One remark of those taken over.
///
/// # Safety
/// The pointers are as the header says.
pub unsafe fn warning<G: DataLoop>(handle: *mut Handle<G>, number: usize) -> *const c_char {
    let body = |inner: &mut G| Ok(inner.common().warning(number));
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), std::ptr::null(), body) }
}

/// A question about grains above packets, understood.
pub struct ParsedQuery {
    pub query: columns::Query,
    pub filter: FlowFilter,
    pub live: bool,
    pub common: Common,
}

/// See the module.
pub struct Common {
    pub stop: Arc<AtomicBool>,
    /// Lent until the end: their bytes stay where they are when the list grows.
    names: Vec<CString>,
    remarks: Vec<CString>,
    /// Why the calling thread is not behind recorders, if it was to be.
    behind: Option<String>,
}

/// Reads what the caller asks.
///
/// # Safety
/// `store` and `question` are as [`text`] and [`read`] want them.
pub unsafe fn begin(store: *const c_char, question: *const Query) -> Result<ParsedQuery, Failure> {
    // SAFETY: the caller's promise.
    let (store, asked) = unsafe { (PathBuf::from(text(store, "the store")?), read(question)?) };
    let query::Query { from, to, interfaces, follow, live, .. } = asked.question;
    if from > to {
        return Err(QueryError::Backwards { from, to }.into());
    }
    if follow && !live {
        let text = "NETGRAIN_FOLLOW needs what is being written, which NETGRAIN_NO_RING leaves out: pass one of them";
        return Err(Failure::argument(text));
    }
    let place = QuerySource::Store(store.clone());
    let behind = if asked.low_priority { query::lower_priority(&place, Background::Batch) } else { None };
    let filter =
        FlowFilter::parse(&asked.words).map_err(|e| Failure { code: code::FILTER, text: format!("filter: {e}") })?;
    let query = columns::Query { interfaces, from, to, need: filter.need(), live, ..columns::Query::new(store) };
    let stop = Arc::new(AtomicBool::new(false));
    let common = Common { stop, names: Vec::new(), remarks: Vec::new(), behind };
    Ok(ParsedQuery { query, filter, live: follow, common })
}

impl Common {
    /// Steps until there is one, the end, or somebody wants no more.
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
                        let nap = pause.min(IDLE_SLEEP);
                        std::thread::sleep(nap);
                        pause -= nap;
                    }
                }
            }
        }
        Ok(None)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The name of an interface, lent until the end.
    pub fn name(&mut self, number: u16, all: &[String]) -> *const c_char {
        let new = all.iter().skip(self.names.len()).map(|name| c_text(name));
        self.names.extend(new);
        self.names[usize::from(number)].as_ptr()
    }

    fn take_warnings(&mut self, result: &[String]) -> usize {
        self.remarks = self.behind.iter().chain(result).map(|text| c_text(text)).collect();
        self.remarks.len()
    }

    fn warning(&self, number: usize) -> *const c_char {
        self.remarks.get(number).map_or(std::ptr::null(), |text| text.as_ptr())
    }
}

/// The filter for what is no packet was not understood.
pub fn refused(what: impl std::fmt::Display) -> Failure {
    Failure { code: code::FILTER, text: format!("filter: {what}") }
}
