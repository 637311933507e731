//! Flow records behind a pointer: by interval and filter, and on request as they are journaled.

use crate::abi::{Error, Question};
use crate::grain::{Common, begin, refused};
use crate::guard::{Failure, call};
use crate::handle::{Handle, close, stop, within};
use crate::shapes::{Early, Flow};
use columns::{FLOW_LATE, FlowLoop};
use flow::Record;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;
use wire::filter::FlowFilter;

/// `netgrain_flows`: what the caller holds a pointer to.
pub type NetgrainFlows = Handle<Flows>;

/// What is behind it.
pub struct Flows {
    records: FlowLoop,
    filter: FlowFilter,
    common: Common,
    /// What is lent until the next call: the record, its early packets, and how C sees it.
    lent: Option<(Record, Vec<Early>, Box<Flow>)>,
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_open(
    store: *const c_char,
    question: *const Question,
    late: u64,
    err: *mut Error,
) -> *mut NetgrainFlows {
    let body = || {
        // SAFETY: the caller's promise.
        let begun = unsafe { begin(store, question) }?;
        let filter = begun.filter.of_flows().map_err(refused)?;
        let mut records = FlowLoop::new(begun.query);
        if begun.live {
            records = records.live(if late == 0 { FLOW_LATE } else { Duration::from_nanos(late) });
        }
        // What is wrong with the store is said now, not at the first record.
        records.look(sys::clock::realtime())?;
        let stop = Arc::clone(&begun.common.stop);
        Ok(Handle::lend(stop, Flows { records, filter, common: begun.common, lent: None }))
    };
    // SAFETY: the caller's promise.
    unsafe { call(err, std::ptr::null_mut(), body) }
}

impl Flows {
    fn next(&mut self) -> Result<*const Flow, Failure> {
        let (records, filter) = (&mut self.records, &self.filter);
        let found = loop {
            let step = || Ok((records.next(sys::clock::realtime())?, records.pause()));
            match self.common.wait(step)? {
                Some(record) if !filter.matches(&report::terms(&record)) => {}
                other => break other,
            }
        };
        self.lent = found.map(|record| {
            let name = self.common.name(record.interface, self.records.interfaces());
            let early: Vec<Early> = record.early.iter().map(Early::from).collect();
            let flow = Box::new(Flow::of(&record, &early, name));
            (record, early, flow)
        });
        Ok(self.lent.as_ref().map_or(std::ptr::null(), |(.., flow)| &raw const **flow))
    }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_next(
    handle: *mut NetgrainFlows,
    flow: *mut *const Flow,
    err: *mut Error,
) -> i32 {
    let body = |inner: &mut Flows| {
        if flow.is_null() {
            return Err(Failure::argument("the place for the flow is NULL"));
        }
        let found = inner.next()?;
        // SAFETY: not null, so by the caller's promise a place for a pointer.
        unsafe { flow.write(found) };
        Ok(i32::from(!found.is_null()))
    };
    // SAFETY: the caller's promise.
    unsafe { within(handle, err, -1, body) }
}

/// `netgrain_flow_callback`.
pub type FlowCallback = unsafe extern "C" fn(*mut c_void, *const Flow) -> i32;

/// See `netgrain.h`.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_loop(
    handle: *mut NetgrainFlows,
    limit: u64,
    callback: Option<FlowCallback>,
    user: *mut c_void,
    err: *mut Error,
) -> i64 {
    let body = |inner: &mut Flows| {
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

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_stop(handle: *mut NetgrainFlows) {
    // SAFETY: the caller's promise.
    unsafe { stop(handle) };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_is_whole(handle: *mut NetgrainFlows) -> i32 {
    let body = |inner: &mut Flows| Ok(i32::from(inner.records.remarks().is_empty()));
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_remarks(handle: *mut NetgrainFlows) -> usize {
    let body = |inner: &mut Flows| Ok(inner.common.take_remarks(&inner.records.remarks()));
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), 0, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_remark(handle: *mut NetgrainFlows, number: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { within(handle, std::ptr::null_mut(), std::ptr::null(), |inner| Ok(inner.common.remark(number))) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed, and nothing that was lent is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_close(handle: *mut NetgrainFlows) {
    // SAFETY: the caller's promise.
    unsafe { close(handle) };
}
