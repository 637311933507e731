//! The opaque structures of the C API: the state of a query, a stop flag, and a guard against calls after a panic or
//! from the query's own callback.

use crate::abi::{Error, code};
use crate::guard::{Failure, call};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The owning thread borrows `inner` exclusively. The flags are outside of `inner`, so that another thread may set
/// `stop` at any time.
pub struct Handle<I> {
    stop: Arc<AtomicBool>,
    /// True while a call uses `inner`. After a call that panicked the flag stays true, so that all later calls are
    /// rejected.
    busy: AtomicBool,
    inner: UnsafeCell<I>,
}

impl<I> Handle<I> {
    /// Allocates the structure; the caller owns it until [`close`].
    pub fn into_raw(stop: Arc<AtomicBool>, inner: I) -> *mut Self {
        Box::into_raw(Box::new(Self { stop, busy: AtomicBool::new(false), inner: UnsafeCell::new(inner) }))
    }
}

/// Runs `body` with the state of `handle`.
///
/// # Safety
/// `handle` is null or a result of [`Handle::into_raw`] that is not closed; no other thread uses the handle except for
/// [`stop`], and nested calls from callbacks of the same thread are rejected. `err` is null or points to an error that
/// no other thread accesses.
pub unsafe fn within<I, T>(
    handle: *mut Handle<I>,
    err: *mut Error,
    otherwise: T,
    body: impl FnOnce(&mut I) -> Result<T, Failure>,
) -> T {
    let body = || {
        if handle.is_null() {
            return Err(Failure::argument("the handle is NULL"));
        }
        // SAFETY: `handle` is not null, so by the caller's contract it is valid; the flag is only borrowed by shared
        // references.
        let busy: &AtomicBool = unsafe { &(*handle).busy };
        if busy.swap(true, Ordering::Relaxed) {
            let text = "the handle is in use by its callback, or an earlier call found a bug: it can only be closed";
            return Err(Failure { code: code::BUG, text: text.to_owned() });
        }
        // SAFETY: `handle` is valid, as above. Only the owning thread executes this line, and the flag `busy` permits
        // one call at a time.
        let done = body(unsafe { &mut *(*handle).inner.get() });
        busy.store(false, Ordering::Relaxed);
        done
    };
    // SAFETY: the caller's contract.
    unsafe { call(err, otherwise, body) }
}

/// Sets the stop flag, which ends the query.
///
/// # Safety
/// `handle` is null or a result of [`Handle::into_raw`] that is not closed.
pub unsafe fn stop<I>(handle: *mut Handle<I>) {
    if handle.is_null() {
        return;
    }
    // SAFETY: `handle` is valid, by the caller's contract. Only the flag is borrowed, and only by shared references.
    let stop: &AtomicBool = unsafe { &(*handle).stop };
    stop.store(true, Ordering::Relaxed);
}

/// Frees the structure.
///
/// # Safety
/// `handle` is null or a result of [`Handle::into_raw`] that is not closed, and the caller no longer uses pointers from
/// it.
pub unsafe fn close<I>(handle: *mut Handle<I>) {
    if handle.is_null() {
        return;
    }
    let body = || {
        // SAFETY: `handle` is a result of `into_raw`, by the caller's contract, and is freed only here.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    };
    // SAFETY: no error to fill.
    unsafe { call(std::ptr::null_mut(), (), body) }
}
