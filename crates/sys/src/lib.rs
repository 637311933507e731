//! Layer 2: system calls. Only this crate calls the kernel, through `rustix` where it has the call. Each function
//! prepares the arguments, makes one system call and decodes the result, without policy.

pub mod advice;
pub mod bpf;
pub mod clock;
pub mod code_pages;
pub mod cpu;
pub mod disk;
pub mod ethtool;
pub mod landlock;
pub mod limits;
pub mod locks;
pub mod memory;
pub mod memory_limit;
pub mod multicast;
pub mod netlink;
pub mod netns;
pub mod nofollow;
pub mod notify;
pub mod packet;
pub mod priority;
pub mod privilege;
pub mod process;
pub mod ptp;
pub mod seccomp;
pub mod signals;
pub mod simd;
pub mod stderr;
pub mod sysfs;
pub mod timex;
pub mod udp;
pub mod unix;
pub mod uring;
pub mod xsk;
pub mod zeroed_pages;
