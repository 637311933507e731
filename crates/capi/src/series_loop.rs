//! The C functions for the series rows of an interval. On request, the loop continues after the interval with each new
//! row that the meter writes.

use crate::abi::{Error, Query};
use crate::data_loop::{self, Common, DataLoop, begin, filter_error};
use crate::guard::{Failure, c_text, call};
use crate::handle::{Handle, close, stop};
use crate::shapes::Second;
use base::{Cause, Note};
use columns::SeriesLoop;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, LazyLock};

/// `netgrain_series`: the opaque structure of the C API.
pub type NetgrainSeries = Handle<Series>;

/// The state of a series query.
pub struct Series {
    rows: SeriesLoop,
    common: Common,
    /// The current item, valid until the next call: losses by cause, notes, and the C structure of the series row.
    current: Option<(Vec<u64>, Vec<u64>, Box<Second>)>,
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_open(
    store: *const c_char,
    query: *const Query,
    err: *mut Error,
) -> *mut NetgrainSeries {
    let body = || {
        // SAFETY: the caller's contract.
        let parsed = unsafe { begin(store, query) }?;
        if !parsed.filter.is_empty() {
            return Err(filter_error(
                "a time series counts all packets of an interface; omit the filter, or query flow records",
            ));
        }
        let mut rows = SeriesLoop::new(parsed.query);
        if parsed.live {
            rows = rows.live();
        }
        // Polls once, so that errors of the store are reported when the query opens, and not at the first series row.
        rows.poll(sys::clock::realtime())?;
        let stop = Arc::clone(&parsed.common.stop);
        Ok(Handle::into_raw(stop, Series { rows, common: parsed.common, current: None }))
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, std::ptr::null_mut(), body) }
}

impl DataLoop for Series {
    type Item = Second;

    fn next(&mut self) -> Result<*const Second, Failure> {
        let rows = &mut self.rows;
        let found = self.common.wait(|| Ok((rows.next(sys::clock::realtime())?, rows.pause())))?;
        self.current = found.map(|row| {
            let name = self.common.name(row.interface, self.rows.interfaces());
            let (losses, notes) = (row.ledger.lost.to_vec(), row.ledger.notes.to_vec());
            let second = Box::new(Second::of(&row, &losses, &notes, name));
            (losses, notes, second)
        });
        Ok(self.current.as_ref().map_or(std::ptr::null(), |(.., second)| &raw const **second))
    }

    fn reported(&self) -> Vec<String> {
        self.rows.warnings()
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
pub unsafe extern "C" fn netgrain_series_next(
    handle: *mut NetgrainSeries,
    second: *mut *const Second,
    err: *mut Error,
) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { data_loop::next(handle, second, "second", err) }
}

/// Returns the name with this number in the list `of` as a C string; null if the list has fewer names. The list is made
/// at its first use.
fn name(of: &'static LazyLock<Vec<CString>>, number: u32) -> *const c_char {
    of.get(number as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// See `netgrain.h`.
#[unsafe(no_mangle)]
pub extern "C" fn netgrain_loss_name(number: u32) -> *const c_char {
    static ALL: LazyLock<Vec<CString>> =
        LazyLock::new(|| Cause::ALL.iter().map(|cause| c_text(cause.name())).collect());
    name(&ALL, number)
}

/// See `netgrain.h`.
#[unsafe(no_mangle)]
pub extern "C" fn netgrain_note_name(number: u32) -> *const c_char {
    static ALL: LazyLock<Vec<CString>> = LazyLock::new(|| Note::ALL.iter().map(|note| c_text(note.name())).collect());
    name(&ALL, number)
}

/// `netgrain_second_callback`.
pub type SecondCallback = data_loop::Callback<Second>;

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_loop(
    handle: *mut NetgrainSeries,
    limit: u64,
    callback: Option<SecondCallback>,
    user: *mut c_void,
    err: *mut Error,
) -> i64 {
    // SAFETY: the caller's contract.
    unsafe { data_loop::each(handle, limit, callback, user, err) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_stop(handle: *mut NetgrainSeries) {
    // SAFETY: the caller's contract.
    unsafe { stop(handle) };
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_is_complete(handle: *mut NetgrainSeries) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { data_loop::is_complete(handle) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_warnings(handle: *mut NetgrainSeries) -> usize {
    // SAFETY: the caller's contract.
    unsafe { data_loop::warnings(handle) }
}

/// See `netgrain.h`.
///
/// # Safety
/// The pointers meet the requirements in `netgrain.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_warning(handle: *mut NetgrainSeries, number: usize) -> *const c_char {
    // SAFETY: the caller's contract.
    unsafe { data_loop::warning(handle, number) }
}

/// See `netgrain.h`.
///
/// # Safety
/// `handle` is null or not closed, and the caller no longer uses pointers from it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn netgrain_series_close(handle: *mut NetgrainSeries) {
    // SAFETY: the caller's contract.
    unsafe { close(handle) };
}
