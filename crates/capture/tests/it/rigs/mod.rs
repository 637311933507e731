//! One rig per source: it opens the source, makes frames arrive, and returns the frames to expect.

pub mod afxdp;
pub mod file;
pub mod sim;
pub mod tpacket;
