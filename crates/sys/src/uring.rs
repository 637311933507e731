//! Asynchronous file writes through io_uring.
