//! The C API: loops over the packets, flow records and series rows of an interval, after `getPackets`, `getFlows` and
//! `getMRTG` of M3OMon and `pcap_loop` of libpcap. `include/netgrain.h` is the header and documents each function.
//!
//! Invariants at the boundary:
//! * No panic crosses the boundary: [`guard::call`] turns a panic into `NETGRAIN_BUG`, and the query in which the panic
//!   occurred then rejects every call except close.
//! * A query belongs to one thread. Other threads access only its stop flag, which is not part of the state that the
//!   owning thread borrows.
//! * The query owns all memory that C receives: packets, records and rows until the next call, texts until the query is
//!   closed.

mod abi;
mod data_loop;
mod flow_loop;
mod guard;
mod handle;
mod query;
mod results;
mod series_loop;
mod shapes;

pub use abi::{Cost, Error, Origin, Packet, Query, Tally};
pub use flow_loop::{
    FlowCallback, NetgrainFlows, netgrain_community_id, netgrain_flows_close, netgrain_flows_is_complete,
    netgrain_flows_loop, netgrain_flows_next, netgrain_flows_open, netgrain_flows_stop, netgrain_flows_warning,
    netgrain_flows_warnings,
};
pub use query::{netgrain_api_version, netgrain_check_filter, netgrain_time, netgrain_version};
pub use results::{
    Netgrain, netgrain_close, netgrain_get_cost, netgrain_get_origin, netgrain_get_tally, netgrain_is_complete,
    netgrain_loop, netgrain_next, netgrain_open_files, netgrain_open_store, netgrain_origins, netgrain_stop,
    netgrain_warning, netgrain_warnings,
};
pub use series_loop::{
    NetgrainSeries, SecondCallback, netgrain_loss_name, netgrain_note_name, netgrain_series_close,
    netgrain_series_is_complete, netgrain_series_loop, netgrain_series_next, netgrain_series_open,
    netgrain_series_stop, netgrain_series_warning, netgrain_series_warnings,
};
pub use shapes::{Direction, Flow, InitialPacket, Second, Stats, Volume};
