//! One rig for each kind of source: what makes frames arrive, and what says which have arrived.

pub mod afxdp;
pub mod file;
pub mod sim;
pub mod tpacket;
