//! Timestamps that the XDP program writes before a frame: those of the NIC, or those of the kernel's clock.
//!
//! ```text
//! timestamp in nanoseconds (8) · 4e 47 74 73 (4) · frame
//! ```
//! The program reads the NIC's timestamp of a frame by the kernel function `bpf_xdp_metadata_rx_timestamp`
//! (Documentation/networking/xdp-rx-metadata.rst). Only a program that was loaded for the interface may call the
//! function, and such a program makes no tail call, so it cannot run a program of the packet language. A driver can have
//! the function and nevertheless have no timestamp of a frame, for example because the NIC is not set to timestamp all
//! frames, or as veth, whose frames were not received by a NIC. The program then writes nothing before the frame.
//!
//! The kernel's clock is `CLOCK_TAI`, because programs cannot read UTC; the reader subtracts the difference.

use super::dispatcher::context;
use bpf::{Alu, Asm, Condition, Helper, Reg, Size, kernel_function};
use sys::netlink::netdev::xdp_features;

/// The timestamps that an XDP program writes before each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpTimestamps {
    /// None: the engine thread timestamps the frames.
    #[default]
    None,
    /// The kernel's clock, read when the driver passes the frame to the program.
    Kernel,
    /// The NIC's clock, read by the NIC when the frame arrives.
    Hardware,
}

/// The number of bytes before a frame that contain its timestamp.
pub(super) const STAMP_BYTES: usize = 12;
/// The number of bytes at the end of these that are zeroed before the buffer is used again.
pub(super) const STAMP_MARK_BYTES: usize = 4;

/// Marks a timestamp.
const MAGIC: u32 = u32::from_ne_bytes(*b"NGts");
/// Offset of the mark.
const MARK: usize = 8;

/// The instructions that make a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampCode {
    /// `bpf_ktime_get_tai_ns`.
    KernelClock,
    /// The kernel function with this BTF id, which reads the NIC's timestamp.
    NicMetadata(u32),
}

impl StampCode {
    /// The code for the timestamps of the NIC of an interface.
    ///
    /// # Errors
    /// The reason why the interface has none.
    pub(super) fn of_nic(ifindex: u32) -> Result<Self, String> {
        match xdp_features(ifindex) {
            Ok(features) if features.has_receive_timestamp => (),
            Ok(_) => return Err("the driver offers no timestamps of the NIC to XDP programs".to_owned()),
            Err(e) => return Err(format!("the kernel does not report whether the driver offers timestamps ({e})")),
        }
        let id = kernel_function("bpf_xdp_metadata_rx_timestamp").map_err(|e| e.to_string())?;
        Ok(Self::NicMetadata(id))
    }

    /// Appends the code that writes the timestamp before the frame. The context is in r6, and remains there; the code
    /// changes r0 to r5 and r7.
    pub(super) fn emit(self, asm: &mut Asm) {
        const STAMP_ON_STACK: i16 = -16;
        let deliver = asm.label();
        match self {
            Self::KernelClock => {
                asm.call(Helper::KtimeGetTaiNs);
                asm.mov_reg(Reg::R7, Reg::R0);
            }
            Self::NicMetadata(id) => {
                asm.store_imm(Size::Dw, Reg::R10, STAMP_ON_STACK, 0);
                asm.mov_reg(Reg::R1, Reg::R6);
                asm.mov_reg(Reg::R2, Reg::R10);
                asm.alu(Alu::Add, Reg::R2, STAMP_ON_STACK.into());
                asm.call_kernel_function(id);
                asm.jump_if(Condition::Ne, Reg::R0, 0, deliver);
                asm.load(Size::Dw, Reg::R7, Reg::R10, STAMP_ON_STACK);
                // The driver veth returns success and the time 0 for a frame that no NIC has timestamped.
                asm.jump_if(Condition::Eq, Reg::R7, 0, deliver);
            }
        }
        asm.mov_reg(Reg::R1, Reg::R6);
        asm.mov(Reg::R2, -(STAMP_BYTES as i32));
        asm.call(Helper::XdpAdjustMeta);
        asm.jump_if(Condition::Ne, Reg::R0, 0, deliver);
        asm.load(Size::W, Reg::R1, Reg::R6, context::DATA_META);
        asm.load(Size::W, Reg::R2, Reg::R6, context::DATA);
        asm.mov_reg(Reg::R3, Reg::R1);
        asm.alu(Alu::Add, Reg::R3, STAMP_BYTES as i32);
        asm.jump_if_reg(Condition::Gt, Reg::R3, Reg::R2, deliver);
        asm.store(Size::Dw, Reg::R1, 0, Reg::R7);
        asm.store_imm(Size::W, Reg::R1, MARK as i16, MAGIC as i32);
        asm.place(deliver);
    }
}

/// The timestamp in nanoseconds that the program wrote before a frame; `None` if the program wrote none.
#[inline]
pub(super) fn read(before: &[u8]) -> Option<u64> {
    let bytes: &[u8; STAMP_BYTES] = before.last_chunk()?;
    let mark = bytes.last_chunk().map(|mark| u32::from_ne_bytes(*mark));
    if mark != Some(MAGIC) {
        return None;
    }
    bytes.first_chunk().map(|stamp| u64::from_ne_bytes(*stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_bytes_are_a_timestamp() {
        let mut before = [0xff; STAMP_BYTES];
        assert_eq!(read(&before), None);
        before[..8].copy_from_slice(&5u64.to_ne_bytes());
        before[MARK..].copy_from_slice(&MAGIC.to_ne_bytes());
        assert_eq!(read(&before), Some(5));
        assert_eq!(read(&before[1..]), None, "the driver left too few bytes before the frame");
        assert_eq!(read(&[]), None);
    }
}
