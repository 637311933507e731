//! Room bpf.
