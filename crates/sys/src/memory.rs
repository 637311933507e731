//! Memory: memfd, mirrored mappings, huge pages, seals, locking.
