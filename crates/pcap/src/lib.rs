//! Room pcap.
