//! What a caller holds a pointer to: something of ours, a flag that ends it, and a guard against use after a panic or from
//! its own callback.

use crate::abi::{Error, code};
use crate::guard::{Failure, call};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flags are apart from what the owning thread borrows, so that another thread may set the first meanwhile.
pub struct Handle<I> {
    stop: Arc<AtomicBool>,
    /// Set while a call works in the cell; still set at the next call if that one panicked.
    busy: AtomicBool,
    inner: UnsafeCell<I>,
}

impl<I> Handle<I> {
    /// Gives it to the caller, until [`close`].
    pub fn lend(stop: Arc<AtomicBool>, inner: I) -> *mut Self {
        Box::into_raw(Box::new(Self { stop, busy: AtomicBool::new(false), inner: UnsafeCell::new(inner) }))
    }
}

/// Runs `body` with what `handle` points to.
///
/// # Safety
/// `handle` is null or came from [`Handle::lend`] and is not closed; no other call works in it but for callbacks of the same
/// thread, which are refused. `err` is null or points to an error that nobody else uses.
pub unsafe fn within<I, T>(
    handle: *mut Handle<I>,
    err: *mut Error,
    otherwise: T,
    body: impl FnOnce(&mut I) -> Result<T, Failure>,
) -> T {
    let body = || {
        if handle.is_null() {
            return Err(Failure::argument("the answer is NULL"));
        }
        // SAFETY: not null, so by the caller's promise a handle; the flag is only ever borrowed like this.
        let busy: &AtomicBool = unsafe { &(*handle).busy };
        if busy.swap(true, Ordering::Relaxed) {
            let text = "this answer met a bug before, or its callback uses it: it can only be closed";
            return Err(Failure { code: code::BUG, text: text.to_owned() });
        }
        // SAFETY: as above. Only the owning thread comes here, and by the flag one call at a time.
        let done = body(unsafe { &mut *(*handle).inner.get() });
        busy.store(false, Ordering::Relaxed);
        done
    };
    // SAFETY: the caller's promise.
    unsafe { call(err, otherwise, body) }
}

/// Sets the flag that ends it.
///
/// # Safety
/// `handle` is null or came from [`Handle::lend`] and is not closed.
pub unsafe fn stop<I>(handle: *mut Handle<I>) {
    if handle.is_null() {
        return;
    }
    // SAFETY: a handle, by the caller's promise. Only the flag is borrowed, which nobody borrows exclusively.
    let stop: &AtomicBool = unsafe { &(*handle).stop };
    stop.store(true, Ordering::Relaxed);
}

/// Takes it back.
///
/// # Safety
/// `handle` is null or came from [`Handle::lend`] and is not closed, and nothing that was lent of it is used any more.
pub unsafe fn close<I>(handle: *mut Handle<I>) {
    if handle.is_null() {
        return;
    }
    let body = || {
        // SAFETY: from `lend`, by the caller's promise, and never again.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    };
    // SAFETY: no error to fill.
    unsafe { call(std::ptr::null_mut(), (), body) }
}
