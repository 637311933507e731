//! The C functions of packet queries. The C program has an opaque pointer to the query.

use crate::abi::{Cost, Error, Origin, Packet, Query, Tally};
use crate::guard::{Failure, c_text, call, text, texts};
use crate::handle::{Handle, close, stop, within};
use crate::query::{PacketQuery, parse, read};
use query::{Background, QuerySource, Results};
use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// `netgrain`: the opaque structure of the C API.
pub type Netgrain = Handle<Inner>;

/// The state of a packet query.
pub struct Inner {
    results: Results,
    /// The texts of origins. Pointers to them are valid until the query is closed: if the list grows, the text of a
    /// `CString` does not move.
    origins: Vec<Texts>,
    warnings: Vec<CString>,
    /// The reason why the priority of the calling thread could not be lowered, if the query requested a low priority.
    priority_error: Option<String>,
}

struct Texts {
    interface: CString,
    filter: CString,
    timestamp_source: CString,
}

fn open(place: &QuerySource, packet_query: PacketQuery) -> Result<*mut Netgrain, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    // If the priority cannot be lowered, the query may slow down the recorder, but its results are complete; so this is
    // only a warning.
    let priority_error = if packet_query.low_priority { query::lower_priority(place, Background::Batch) } else { None };
    let query =
        query::Query { stop: Some(Arc::clone(&stop)), filter: parse(&packet_query.filter_text)?, ..packet_query.query };
    let results = query::run(place, query)?;
    let inner = Inner { results, origins: Vec::new(), warnings: Vec::new(), priority_error };
    Ok(Handle::into_raw(stop, inner))
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_open_store(
    store: *const c_char,
    query: *const Query,
    err: *mut Error,
) -> *mut Netgrain {
    let body = || {
        // SAFETY: the caller's contract.
        let (store, packet_query) = unsafe { (text(store, "the store")?, read(query)?) };
        open(&QuerySource::Store(PathBuf::from(store)), packet_query)
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, std::ptr::null_mut(), body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_open_files(
    files: *const *const c_char,
    count: usize,
    query: *const Query,
    err: *mut Error,
) -> *mut Netgrain {
    let body = || {
        // SAFETY: the caller's contract.
        let (files, packet_query) = unsafe { (texts(files, count, "a file")?, read(query)?) };
        if files.is_empty() {
            return Err(Failure::argument("the list of files is empty"));
        }
        open(&QuerySource::Files(files.into_iter().map(PathBuf::from).collect()), packet_query)
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, std::ptr::null_mut(), body) }
}

impl Inner {
    fn next(&mut self) -> Result<Option<Packet>, Failure> {
        let Some(found) = self.results.next()? else { return Ok(None) };
        Ok(Some(Packet {
            ts: found.ts.nanos(),
            data: found.data.as_ptr(),
            caplen: found.data.len() as u32,
            wire_len: found.wire_len,
            link_type: u32::from(found.link_type),
            origin: found.origin as u32,
            lost: found.lost,
        }))
    }

    /// The origin with this index.
    fn origin_at(&self, number: usize) -> Result<&query::Origin, Failure> {
        let origins = self.results.origins();
        origins.get(number).ok_or_else(|| {
            Failure::argument(format!(
                "origin {number} is not known: {} origins are known, counted from 0",
                origins.len()
            ))
        })
    }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_next(handle: *mut Netgrain, packet: *mut Packet, err: *mut Error) -> i32 {
    let body = |inner: &mut Inner| {
        if packet.is_null() {
            return Err(Failure::argument("the pointer for the packet is NULL"));
        }
        let Some(found) = inner.next()? else { return Ok(0) };
        // SAFETY: `packet` is not null, so by the caller's contract it points to memory for a packet.
        unsafe { packet.write(found) };
        Ok(1)
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, err, -1, body) }
}

/// `netgrain_callback`.
pub type Callback = unsafe extern "C" fn(*mut c_void, *const Packet) -> i32;

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_loop(
    handle: *mut Netgrain,
    limit: u64,
    callback: Option<Callback>,
    user: *mut c_void,
    err: *mut Error,
) -> i64 {
    let body = |inner: &mut Inner| {
        let callback = callback.ok_or_else(|| Failure::argument("the callback is NULL"))?;
        let mut count = 0u64;
        while limit == 0 || count < limit {
            let Some(packet) = inner.next()? else { break };
            count += 1;
            // SAFETY: `callback` is a function of the caller, and `user` is its argument. The packet is valid until the
            // function returns.
            if unsafe { callback(user, &raw const packet) } != 0 {
                break;
            }
        }
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, err, -1, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_stop(handle: *mut Netgrain) {
    // SAFETY: the caller's contract.
    unsafe { stop(handle) };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_origins(handle: *mut Netgrain) -> usize {
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), 0, |inner| Ok(inner.results.origins().len())) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_get_origin(
    handle: *mut Netgrain,
    number: usize,
    origin: *mut Origin,
    err: *mut Error,
) -> i32 {
    let body = |inner: &mut Inner| {
        if origin.is_null() {
            return Err(Failure::argument("the pointer for the origin is NULL"));
        }
        let (queue, link_type, snaplen) = {
            let known = inner.origin_at(number)?;
            (u32::from(known.queue), u32::from(known.link_type), known.snaplen)
        };
        for known in &inner.results.origins()[inner.origins.len()..] {
            inner.origins.push(Texts {
                interface: c_text(&known.interface),
                filter: c_text(&known.filter),
                timestamp_source: c_text(&known.timestamp_source),
            });
        }
        let Texts { interface, filter, timestamp_source } = &inner.origins[number];
        let (interface_name, filter, timestamp_source) =
            (interface.as_ptr(), filter.as_ptr(), timestamp_source.as_ptr());
        // SAFETY: the pointer is not null, so by the caller's contract it points to memory for an origin.
        unsafe { origin.write(Origin { interface_name, filter, timestamp_source, queue, link_type, snaplen }) };
        Ok(0)
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, err, -1, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_get_tally(
    handle: *mut Netgrain,
    number: usize,
    tally: *mut Tally,
    err: *mut Error,
) -> i32 {
    let body = |inner: &mut Inner| {
        if tally.is_null() {
            return Err(Failure::argument("the pointer for the tally is NULL"));
        }
        inner.origin_at(number)?;
        // SAFETY: the pointer is not null, so by the caller's contract it points to memory for a tally.
        unsafe { tally.write(inner.results.tally(number).into()) };
        Ok(0)
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, err, -1, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_get_cost(handle: *mut Netgrain, cost: *mut Cost) {
    if cost.is_null() {
        return;
    }
    // SAFETY: `cost` is not null, so by the caller's contract it points to memory for the structure; `handle` meets the
    // requirements of `within`.
    unsafe {
        cost.write(within(handle, std::ptr::null_mut(), Cost::default(), |inner| Ok(inner.results.cost().into())))
    };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_is_complete(handle: *mut Netgrain) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), 0, |inner| Ok(i32::from(inner.results.is_complete()))) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_warnings(handle: *mut Netgrain) -> usize {
    let body = |inner: &mut Inner| {
        inner.warnings =
            inner.priority_error.iter().chain(&inner.results.warnings()).map(|text| c_text(text)).collect();
        Ok(inner.warnings.len())
    };
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), 0, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_warning(handle: *mut Netgrain, number: usize) -> *const c_char {
    let body = |inner: &mut Inner| Ok(inner.warnings.get(number).map_or(std::ptr::null(), |text| text.as_ptr()));
    // SAFETY: the caller's contract.
    unsafe { within(handle, std::ptr::null_mut(), std::ptr::null(), body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed, and the caller no longer uses pointers from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_close(handle: *mut Netgrain) {
    // SAFETY: the caller's contract.
    unsafe { close(handle) };
}
