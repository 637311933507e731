//! The C API for offline reading: a loop over the packets of an interval and a filter, as `getPackets` of M3OMon and
//! `pcap_loop` of libpcap are. `include/netgrain.h` is its header and says what each function promises.
//!
//! Invariants at the border:
//! * No panic crosses it: [`guard::call`] turns one into `NETGRAIN_BUG`, and the answer in which it happened refuses
//!   everything but being closed.
//! * An answer belongs to one thread. Only its stop flag is touched from others, and it lies outside of what that thread
//!   borrows.
//! * What is lent lives in the answer: packets until the next call, texts until the answer is closed.

mod abi;
mod answer;
mod guard;
mod question;

pub use abi::{Cost, Error, Origin, Packet, Question, Tally};
pub use answer::{
    Netgrain, netgrain_close, netgrain_get_cost, netgrain_get_origin, netgrain_get_tally, netgrain_is_whole,
    netgrain_loop, netgrain_next, netgrain_open_files, netgrain_open_store, netgrain_origins, netgrain_remark,
    netgrain_remarks, netgrain_stop,
};
pub use question::{netgrain_api_version, netgrain_check_filter, netgrain_time, netgrain_version};
