//! The C functions for the flow records of an interval that match a filter. On request, the loop continues after the
//! interval with each new record that the meter writes into its journal.

use crate::abi::{COMMUNITY_ID, Error, Query};
use crate::data_loop::{self, Common, DataLoop, begin};
use crate::guard::{Failure, c_text, call};
use crate::handle::{Handle, close, stop};
use crate::shapes::{Flow, InitialPacket};
use columns::{FLOW_LATE, FlowLoop};
use filter::FlowFilter;
use flow::Record;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

/// `netgrain_flows`: the opaque structure of the C API.
pub type NetgrainFlows = Handle<Flows>;

/// The state of a flow query.
pub struct Flows {
    records: FlowLoop,
    filter: FlowFilter,
    common: Common,
    /// The current item, valid until the next call: the record, its initial packets, and the C structure of the record.
    current: Option<(Record, Vec<InitialPacket>, Box<Flow>)>,
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_open(
    store: *const c_char,
    query: *const Query,
    late: u64,
    err: *mut Error,
) -> *mut NetgrainFlows {
    let body = || {
        // SAFETY: the caller's contract.
        let parsed = unsafe { begin(store, query) }?;
        let filter = parsed.filter;
        let mut records = FlowLoop::new(parsed.query);
        if parsed.live {
            records = records.live(if late == 0 { FLOW_LATE } else { Duration::from_nanos(late) });
        }
        // Polls once, so that errors of the store are reported when the query opens, and not at the first record.
        records.poll(sys::clock::realtime())?;
        let stop = Arc::clone(&parsed.common.stop);
        Ok(Handle::into_raw(stop, Flows { records, filter, common: parsed.common, current: None }))
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, std::ptr::null_mut(), body) }
}

impl DataLoop for Flows {
    type Item = Flow;

    fn next(&mut self) -> Result<*const Flow, Failure> {
        let (records, filter) = (&mut self.records, &self.filter);
        let found = loop {
            let step = || Ok((records.next(sys::clock::realtime())?, records.pause()));
            match self.common.wait(step)? {
                Some(record) if !filter.matches(&aggregate::terms(&record)) => {}
                other => break other,
            }
        };
        self.current = found.map(|record| {
            let name = self.common.name(record.interface, self.records.interfaces());
            let initial_packets: Vec<InitialPacket> = record.initial_packets.iter().map(InitialPacket::from).collect();
            let flow = Box::new(Flow::of(&record, &initial_packets, name));
            (record, initial_packets, flow)
        });
        Ok(self.current.as_ref().map_or(std::ptr::null(), |(.., flow)| &raw const **flow))
    }

    fn reported(&self) -> Vec<String> {
        self.records.warnings()
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_next(
    handle: *mut NetgrainFlows,
    flow: *mut *const Flow,
    err: *mut Error,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { data_loop::next(handle, flow, "flow", err) }
}

/// `netgrain_flow_callback`.
pub type FlowCallback = data_loop::Callback<Flow>;

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_loop(
    handle: *mut NetgrainFlows,
    limit: u64,
    callback: Option<FlowCallback>,
    user: *mut c_void,
    err: *mut Error,
) -> i64 {
    // SAFETY: the caller's contract.
    unsafe { data_loop::each(handle, limit, callback, user, err) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_community_id(flow: *const Flow, text: *mut c_char, err: *mut Error) -> i32 {
    let body = || {
        // SAFETY: the caller's contract.
        let flow = unsafe { flow.as_ref() }.ok_or_else(|| Failure::argument("the flow is NULL"))?;
        if text.is_null() {
            return Err(Failure::argument("the pointer for the Community ID is NULL"));
        }
        let key = flow.key().ok_or_else(|| {
            Failure::argument(format!(
                "the flow has IP version {}: pass a flow that netgrain returned",
                flow.ip_version
            ))
        })?;
        let id = c_text(&wire::community_id(&key.of_packet()));
        let bytes = id.as_bytes_with_nul();
        assert!(bytes.len() <= COMMUNITY_ID, "{id:?} is longer than the buffer");
        // SAFETY: `text` is not null, so by the caller's contract it points to memory for COMMUNITY_ID bytes, and
        // `bytes` is not longer.
        unsafe { text.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        Ok(0)
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, -1, body) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_stop(handle: *mut NetgrainFlows) {
    // SAFETY: the caller's contract.
    unsafe { stop(handle) };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_is_complete(handle: *mut NetgrainFlows) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { data_loop::is_complete(handle) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_warnings(handle: *mut NetgrainFlows) -> usize {
    // SAFETY: the caller's contract.
    unsafe { data_loop::warnings(handle) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_warning(handle: *mut NetgrainFlows, number: usize) -> *const c_char {
    // SAFETY: the caller's contract.
    unsafe { data_loop::warning(handle, number) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed, and the caller no longer uses pointers from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_flows_close(handle: *mut NetgrainFlows) {
    // SAFETY: the caller's contract.
    unsafe { close(handle) };
}
