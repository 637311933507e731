//! Readings of a NIC's clock together with the system clock (`include/uapi/linux/ptp_clock.h`).
//!
//! ```text
//! time        seconds (8, signed) · nanoseconds (4) · reserved (4)
//! EXTENDED    number of readings (4) · clock (4) · reserved (8) · 25 × (system time, NIC time, system time)
//! PRECISE     NIC time · system time · monotonic time · reserved (16)
//! ```
//! `PTP_SYS_OFFSET_PRECISE` reads both clocks at the same instant, and few NICs support it. `PTP_SYS_OFFSET_EXTENDED`
//! reads the system clock immediately before and after the NIC's clock.

use base::Timestamp;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::io;
use std::os::fd::OwnedFd;

/// A reading of the NIC's clock between two readings of the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtpReading {
    /// The system clock before the reading.
    pub before: Timestamp,
    /// The NIC's clock in nanoseconds.
    pub nic_nanos: u64,
    /// The system clock after the reading.
    pub after: Timestamp,
}

/// Number of readings of one call.
const READINGS: usize = 5;
/// `PTP_MAX_SAMPLES`.
const READINGS_MAX: usize = 25;
/// `PTP_SYS_OFFSET_PRECISE`.
const PRECISE: Opcode = 0xc040_3d08;
/// `PTP_SYS_OFFSET_EXTENDED`.
const EXTENDED: Opcode = 0xc4c0_3d09;

/// `struct ptp_clock_time`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Time {
    seconds: i64,
    nanos: u32,
    reserved: u32,
}

/// `struct ptp_sys_offset_precise`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Precise {
    nic: Time,
    system: Time,
    monotonic: Time,
    reserved: [u32; 4],
}

/// `struct ptp_sys_offset_extended`. The clock 0 is `CLOCK_REALTIME`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extended {
    count: u32,
    clock: i32,
    reserved: [u32; 2],
    readings: [[Time; 3]; READINGS_MAX],
}

impl Time {
    /// Nanoseconds since the start of the clock; 0 for a time before it.
    fn total_nanos(self) -> u64 {
        u64::try_from(self.seconds).map_or(0, |s| s.saturating_mul(1_000_000_000).saturating_add(self.nanos.into()))
    }

    fn timestamp(self) -> Timestamp {
        Timestamp::from_nanos(self.total_nanos())
    }
}

/// The clock of a NIC, `/dev/ptpN`.
#[derive(Debug)]
pub struct PtpClock(OwnedFd);

impl PtpClock {
    /// Opens the clock with this number, which [`crate::ethtool::stamping`] reports for an interface.
    ///
    /// # Errors
    /// `ENOENT` if there is no such clock, `EACCES` without the permission to read the device.
    pub fn open(number: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(open(format!("/dev/ptp{number}"), flags, Mode::empty())?))
    }

    /// Reads the clock and the system clock several times, within some microseconds to 100 µs.
    ///
    /// # Errors
    /// `EOPNOTSUPP` or `ENOTTY` if the driver has none of the two ways of reading.
    pub fn read(&self) -> io::Result<Vec<PtpReading>> {
        let mut precise = Precise::default();
        // SAFETY: `PTP_SYS_OFFSET_PRECISE` writes a `struct ptp_sys_offset_precise`.
        match unsafe { ioctl(&self.0, Updater::<PRECISE, _>::new(&mut precise)) } {
            Ok(()) => return Ok(vec![precise.reading()]),
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => (),
            Err(e) => return Err(e.into()),
        }
        let mut extended = Extended {
            count: READINGS as u32,
            clock: 0,
            reserved: [0; 2],
            readings: [[Time::default(); 3]; READINGS_MAX],
        };
        // SAFETY: `PTP_SYS_OFFSET_EXTENDED` reads and writes a `struct ptp_sys_offset_extended`.
        unsafe { ioctl(&self.0, Updater::<EXTENDED, _>::new(&mut extended)) }?;
        Ok(extended.decode())
    }
}

impl Precise {
    fn reading(self) -> PtpReading {
        let system = self.system.timestamp();
        PtpReading { before: system, nic_nanos: self.nic.total_nanos(), after: system }
    }
}

impl Extended {
    fn decode(&self) -> Vec<PtpReading> {
        let reading = |[before, nic, after]: [Time; 3]| PtpReading {
            before: before.timestamp(),
            nic_nanos: nic.total_nanos(),
            after: after.timestamp(),
        };
        self.readings.iter().take(self.count as usize).copied().map(reading).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the structure is part of the number of a request.
    const fn size_in(code: Opcode) -> usize {
        (code >> 16 & 0x3fff) as usize
    }

    #[test]
    fn the_structures_have_the_sizes_that_the_requests_declare() {
        assert_eq!((size_of::<Precise>(), size_of::<Extended>()), (size_in(PRECISE), size_in(EXTENDED)));
        assert_eq!((size_of::<Precise>(), size_of::<Extended>()), (64, 1216));
    }

    #[test]
    fn readings_are_decoded_in_the_order_system_nic_system() {
        let time = |seconds, nanos| Time { seconds, nanos, reserved: 0 };
        let mut extended =
            Extended { count: 2, clock: 0, reserved: [0; 2], readings: [[Time::default(); 3]; READINGS_MAX] };
        extended.readings[1] = [time(100, 1), time(7, 2), time(100, 3)];
        let reading = PtpReading {
            before: Timestamp::from_nanos(100_000_000_001),
            nic_nanos: 7_000_000_002,
            after: Timestamp::from_nanos(100_000_000_003),
        };
        assert_eq!(extended.decode()[1..], [reading]);
        let precise = Precise { nic: time(5, 6), system: time(8, 9), ..Precise::default() };
        let at = Timestamp::from_nanos(8_000_000_009);
        assert_eq!(precise.reading(), PtpReading { before: at, nic_nanos: 5_000_000_006, after: at });
        assert_eq!(time(-1, 5).total_nanos(), 0);
    }

    #[test]
    fn a_clock_that_does_not_exist_is_not_found() {
        assert_eq!(PtpClock::open(9999).expect_err("no such clock").kind(), io::ErrorKind::NotFound);
    }
}
