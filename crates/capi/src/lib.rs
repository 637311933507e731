//! The C API: loops over the packets, the flow records and the seconds of an interval, as `getPackets`, `getFlows` and
//! `getMRTG` of M3OMon and `pcap_loop` of libpcap are. `include/netgrain.h` is its header and says what each function
//! promises.
//!
//! Invariants at the border:
//! * No panic crosses it: [`guard::call`] turns one into `NETGRAIN_BUG`, and the answer in which it happened refuses
//!   everything but being closed.
//! * An answer belongs to one thread. Only its stop flag is touched from others, and it lies outside of what that thread
//!   borrows.
//! * What is lent lives in the answer: packets, records and seconds until the next call, texts until the answer is closed.

mod abi;
mod answer;
mod flow_loop;
mod grain;
mod guard;
mod handle;
mod question;
mod series_loop;
mod shapes;

pub use abi::{Cost, Error, Origin, Packet, Question, Tally};
pub use answer::{
    Netgrain, netgrain_close, netgrain_get_cost, netgrain_get_origin, netgrain_get_tally, netgrain_is_whole,
    netgrain_loop, netgrain_next, netgrain_open_files, netgrain_open_store, netgrain_origins, netgrain_remark,
    netgrain_remarks, netgrain_stop,
};
pub use flow_loop::{
    FlowCallback, NetgrainFlows, netgrain_community_id, netgrain_flows_close, netgrain_flows_is_whole,
    netgrain_flows_loop, netgrain_flows_next, netgrain_flows_open, netgrain_flows_remark, netgrain_flows_remarks,
    netgrain_flows_stop,
};
pub use question::{netgrain_api_version, netgrain_check_filter, netgrain_time, netgrain_version};
pub use series_loop::{
    NetgrainSeries, SecondCallback, netgrain_loss_name, netgrain_note_name, netgrain_series_close,
    netgrain_series_is_whole, netgrain_series_loop, netgrain_series_next, netgrain_series_open, netgrain_series_remark,
    netgrain_series_remarks, netgrain_series_stop,
};
pub use shapes::{Early, Flow, Moments, Second, Side, Volume};
