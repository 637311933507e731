//! AF_XDP sockets: memory, rings, options.
