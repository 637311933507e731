//! What makes capture fail, lose or lie on this machine, what it costs, and the command that mends it.
#![forbid(unsafe_code)]
