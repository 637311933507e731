//! Reads the query parameters that the C program passes. The module also contains the C functions that need no query.

use crate::abi::{API_VERSION, Error, Query, code, flag};
use crate::guard::{Failure, call, text, texts};
use base::{TimeSpec, Timestamp};
use filter::Filter;
use std::ffi::c_char;

/// A query from C, checked.
pub struct PacketQuery {
    /// The query without the filter.
    pub query: query::Query,
    /// The text of the filter; its syntax depends on the data type.
    pub filter_text: String,
    pub low_priority: bool,
}

/// Reads the caller's query.
///
/// # Safety
/// `query` is null or points to a query whose texts and list meet the requirements of [`text`] and [`texts`].
pub unsafe fn read(query: *const Query) -> Result<PacketQuery, Failure> {
    // SAFETY: by the caller's contract, `query` is null or points to a query. The version is read first, because the
    // other fields may differ in another API version.
    let version = unsafe { query.as_ref() }.map(|q| q.version).ok_or_else(|| Failure::argument("the query is NULL"))?;
    if version != API_VERSION {
        return Err(Failure::argument(format!(
            "the program uses version {version} of the API, this library has {API_VERSION}: compile the program with \
             the netgrain.h of this library"
        )));
    }
    // SAFETY: by the caller's contract, `query` is valid; the version was checked, so the structure has the layout of
    // this library.
    let q = unsafe { &*query };
    if q.flags & !flag::ALL != 0 {
        return Err(Failure::argument(format!("the flags {:#x} do not exist", q.flags & !flag::ALL)));
    }
    let filter_text = if q.filter.is_null() {
        String::new()
    } else {
        // SAFETY: the caller's contract.
        unsafe { text(q.filter, "the filter") }?.to_owned()
    };
    // SAFETY: the caller's contract.
    let interfaces = unsafe { texts(q.interfaces, q.interface_count, "an interface") }?;
    let query = query::Query {
        from: Timestamp::from_nanos(q.from),
        to: Timestamp::from_nanos(q.to),
        interfaces,
        follow: q.flags & flag::FOLLOW != 0,
        live: q.flags & flag::NO_RING == 0,
        ..query::Query::default()
    };
    Ok(PacketQuery { query, filter_text, low_priority: q.flags & flag::LOW_PRIORITY != 0 })
}

/// Parses a packet filter.
pub fn parse(filter: &str) -> Result<Filter, Failure> {
    Filter::parse(filter).map_err(|e| Failure { code: code::FILTER, text: format!("filter: {e}") })
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_time(time: *const c_char, nanos: *mut u64, err: *mut Error) -> i32 {
    let body = || {
        // SAFETY: the caller's contract.
        let time = unsafe { text(time, "the time") }?;
        // SAFETY: the caller's contract.
        let nanos = unsafe { nanos.as_mut() }.ok_or_else(|| Failure::argument("the pointer for the time is NULL"))?;
        let moment = TimeSpec::parse(time).map_err(|e| Failure { code: code::TIME, text: e.to_string() })?;
        *nanos = moment.at(sys::clock::realtime(), None).nanos();
        Ok(0)
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, -1, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_check_filter(filter: *const c_char, err: *mut Error) -> i32 {
    // SAFETY: the caller's contract.
    let body = || parse(unsafe { text(filter, "the filter") }?).map(|_| 0);
    // SAFETY: the caller's contract.
    unsafe { call(err, -1, body) }
}

/// See `netgrain.h`.
#[unsafe(no_mangle)]
pub extern "C" fn netgrain_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// See `netgrain.h`.
#[unsafe(no_mangle)]
pub extern "C" fn netgrain_api_version() -> u32 {
    API_VERSION
}
