//! AF_PACKET sockets with TPACKET_V3 rings.
