//! Clocks: the time stamp counter fitted to the system clock.
