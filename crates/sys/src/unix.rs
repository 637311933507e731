//! Unix sockets that hand over file descriptors and tell who the peer is.
