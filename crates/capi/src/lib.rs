//! The C API for offline reading: a loop over the packets of an interval and a filter. `include/netgrain.h` is its header.
