//! Threads and processors: affinity, NUMA, priority.
