//! The C functions of packet queries, on an opaque pointer to the results.

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
    answer: Results,
    /// The texts of origins, valid until the query is closed: the text of a `CString` does not move when the list
    /// grows.
    origins: Vec<Texts>,
    warnings: Vec<CString>,
    /// The reason why the calling thread could not lower its priority, if the query requested that.
    behind: Option<String>,
}

struct Texts {
    interface: CString,
    filter: CString,
    stamps: CString,
}

fn open(place: &QuerySource, asked: PacketQuery) -> Result<*mut Netgrain, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    // A failure to lower the priority affects the recorder's performance but not the results, hence a warning.
    let behind = if asked.low_priority { query::lower_priority(place, Background::Batch) } else { None };
    let question = query::Query { stop: Some(Arc::clone(&stop)), filter: parse(&asked.words)?, ..asked.question };
    let answer = query::run(place, question)?;
    let inner = Inner { answer, origins: Vec::new(), warnings: Vec::new(), behind };
    Ok(Handle::lend(stop, inner))
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_open_store(
    store: *const c_char,
    question: *const Query,
    err: *mut Error,
) -> *mut Netgrain {
    let body = || {
        // SAFETY: the caller's promise.
        let (store, asked) = unsafe { (text(store, "the store")?, read(question)?) };
        open(&QuerySource::Store(PathBuf::from(store)), asked)
    };
    // SAFETY: the caller's promise.
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
    question: *const Query,
    err: *mut Error,
) -> *mut Netgrain {
    let body = || {
        // SAFETY: the caller's promise.
        let (files, asked) = unsafe { (texts(files, count, "a file")?, read(question)?) };
        if files.is_empty() {
            return Err(Failure::argument("no files are named"));
        }
        open(&QuerySource::Files(files.into_iter().map(PathBuf::from).collect()), asked)
    };
    // SAFETY: the caller's promise.
    unsafe { call(err, std::ptr::null_mut(), body) }
}

impl Inner {
    fn next(&mut self) -> Result<Option<Packet>, Failure> {
        let Some(found) = self.answer.next()? else { return Ok(None) };
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
    fn known(&self, number: usize) -> Result<&query::Origin, Failure> {
        let known = self.answer.origins();
        known.get(number).ok_or_else(|| {
            Failure::argument(format!("there is no origin {number}: {} are known by now, from 0", known.len()))
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
            return Err(Failure::argument("the place for the packet is NULL"));
        }
        let Some(found) = inner.next()? else { return Ok(0) };
        // SAFETY: not null, so by the caller's promise a packet's place.
        unsafe { packet.write(found) };
        Ok(1)
    };
    // SAFETY: the caller's promise.
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
        let mut given = 0u64;
        while limit == 0 || given < limit {
            let Some(packet) = inner.next()? else { break };
            given += 1;
            // SAFETY: a function of the caller, for which `user` is meant. The packet is lent until it returns.
            if unsafe { callback(user, &raw const packet) } != 0 {
                break;
            }
        }
        Ok(i64::try_from(given).unwrap_or(i64::MAX))
    };
    // SAFETY: the caller's promise.
    unsafe { within(handle, err, -1, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_stop(handle: *mut Netgrain) {
    // SAFETY: the caller's promise.
    unsafe { stop(handle) };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_origins(handle: *mut Netgrain) -> usize {
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, |inner| Ok(inner.answer.origins().len())) }
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
            return Err(Failure::argument("the place for the origin is NULL"));
        }
        let (queue, link_type, snaplen) = {
            let known = inner.known(number)?;
            (u32::from(known.queue), u32::from(known.link_type), known.snaplen)
        };
        for known in &inner.answer.origins()[inner.origins.len()..] {
            inner.origins.push(Texts {
                interface: c_text(&known.interface),
                filter: c_text(&known.filter),
                stamps: c_text(&known.timestamp_source),
            });
        }
        let Texts { interface, filter, stamps } = &inner.origins[number];
        let (interface_name, filter, stamps) = (interface.as_ptr(), filter.as_ptr(), stamps.as_ptr());
        // SAFETY: not null, so by the caller's promise an origin's place.
        unsafe { origin.write(Origin { interface_name, filter, timestamp_source: stamps, queue, link_type, snaplen }) };
        Ok(0)
    };
    // SAFETY: the caller's promise.
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
            return Err(Failure::argument("the place for the tally is NULL"));
        }
        inner.known(number)?;
        // SAFETY: not null, so by the caller's promise a tally's place.
        unsafe { tally.write(inner.answer.tally(number).into()) };
        Ok(0)
    };
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise; not null.
    unsafe {
        cost.write(within(handle, std::ptr::null_mut(), Cost::default(), |inner| Ok(inner.answer.cost().into())))
    };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_is_complete(handle: *mut Netgrain) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, |inner| Ok(i32::from(inner.answer.is_complete()))) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_warnings(handle: *mut Netgrain) -> usize {
    let body = |inner: &mut Inner| {
        inner.warnings = inner.behind.iter().chain(&inner.answer.warnings()).map(|text| c_text(text)).collect();
        Ok(inner.warnings.len())
    };
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_warning(handle: *mut Netgrain, number: usize) -> *const c_char {
    let body = |inner: &mut Inner| Ok(inner.warnings.get(number).map_or(std::ptr::null(), |text| text.as_ptr()));
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), std::ptr::null(), body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed, and the caller no longer uses pointers from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_close(handle: *mut Netgrain) {
    // SAFETY: the caller's promise.
    unsafe { close(handle) };
}
