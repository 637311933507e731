//! Lowers the priority of the calling thread for the disk (ioprio_set(2)) and the CPU (sched(7)), or raises it
//! temporarily.
//!
//! A process that reads a store must not slow the recorder down. A thread can lower its priority without a privilege,
//! but needs a privilege to raise it again. So these settings are for threads that do nothing but read the store.

use crate::cpu;
use std::io;

/// How far the priority of a thread is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// The lowest I/O priority of the best-effort class, and a tenth of the normal CPU weight (SCHED_BATCH, nice 10).
    /// The thread always makes progress; in the idle class it would get no I/O while a recorder writes without pause.
    Batch,
    /// The thread uses disk and CPU only when no other thread uses them (SCHED_IDLE).
    Idle,
}

/// Constants of linux/ioprio.h, which libc does not define.
mod ioprio {
    pub const WHO_PROCESS: libc::c_int = 1;
    pub const CLASS_BEST_EFFORT: u32 = 2;
    pub const CLASS_IDLE: u32 = 3;
    pub const CLASS_SHIFT: u32 = 13;
    /// The lowest priority within an I/O class.
    pub const LOWEST: u32 = 7;
}

/// The nice value of [`Background::Batch`]: with it, a thread has a tenth of the weight of a normal thread, and a
/// hundredth of that of an engine thread. At nice 19, a query that shared its CPU with a busy loop took seven seconds.
const BATCH_NICE: i32 = 10;

impl Background {
    fn disk_priority(self) -> u32 {
        match self {
            Self::Batch => ioprio::CLASS_BEST_EFFORT << ioprio::CLASS_SHIFT | ioprio::LOWEST,
            Self::Idle => ioprio::CLASS_IDLE << ioprio::CLASS_SHIFT,
        }
    }
}

/// Lowers the priority of the calling thread.
///
/// # Errors
/// The first error; the remaining settings are still made.
pub fn lower_priority(degree: Background) -> io::Result<()> {
    let disk = disk(degree.disk_priority());
    let policy = match degree {
        Background::Batch => cpu::set_nice(BATCH_NICE).and(schedule(libc::SCHED_BATCH)),
        Background::Idle => schedule(libc::SCHED_IDLE),
    };
    disk.and(policy)
}

fn disk(priority: u32) -> io::Result<()> {
    // SAFETY: the call takes integers only; id 0 is the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_ioprio_set, ioprio::WHO_PROCESS, 0, priority) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn schedule(policy: libc::c_int) -> io::Result<()> {
    // SAFETY: sched_param is a plain structure of integers, so all zeros is a valid value. These policies permit no
    // other priority than 0.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `parameter` is initialised; id 0 is the calling thread.
    let rc = unsafe { libc::sched_setscheduler(0, policy, &parameter) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs the closure `urgent` at a priority above all normal threads (SCHED_FIFO, its lowest priority), so that they do
/// not interrupt it. The closure may take only microseconds. Afterwards the thread has its former policy. Without
/// CAP_SYS_NICE or a limit for real-time priorities (`RLIMIT_RTPRIO`), `urgent` runs with the present policy.
pub fn with_raised_priority<T>(urgent: impl FnOnce() -> T) -> T {
    struct Restore(libc::c_int, libc::sched_param);
    impl Drop for Restore {
        fn drop(&mut self) {
            // A thread that was permitted to raise its priority may restore it.
            // SAFETY: the parameter is what the kernel returned for this thread; id 0 is the calling thread.
            unsafe { libc::sched_setscheduler(0, self.0, &self.1) };
        }
    }
    // SAFETY: sched_param is a plain structure of integers, so all zeros is a valid value.
    let mut before: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: id 0 is the calling thread, and `before` is live for the call.
    let known = unsafe { libc::sched_getparam(0, &mut before) } == 0;
    // SAFETY: the call takes integers only.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let mut raised = before;
    raised.sched_priority = 1;
    let is_normal = known && policy >= 0 && before.sched_priority == 0;
    // SAFETY: `raised` is initialised; id 0 is the calling thread.
    let is_raised = is_normal && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raised) } == 0;
    let _restore = is_raised.then(|| Restore(policy, before));
    urgent()
}

/// Excludes these CPUs from the affinity of the calling thread, unless no CPU would remain. Returns true if the
/// affinity contains none of them afterwards.
pub fn keep_off_cpus(cpus: &[usize]) -> bool {
    let allowed = cpu::allowed();
    let others: Vec<usize> = allowed.iter().copied().filter(|c| !cpus.contains(c)).collect();
    !others.is_empty() && (others.len() == allowed.len() || cpu::pin_to(&others).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_new_thread(work: impl FnOnce() + Send + 'static) {
        std::thread::spawn(work).join().expect("a thread that ends");
    }

    #[test]
    fn a_background_thread_has_the_requested_policy_and_io_class() {
        for (degree, policy) in [(Background::Batch, libc::SCHED_BATCH), (Background::Idle, libc::SCHED_IDLE)] {
            in_new_thread(move || {
                lower_priority(degree).expect("no privilege is needed");
                // SAFETY: the call takes integers only; id 0 is the calling thread.
                assert_eq!(unsafe { libc::sched_getscheduler(0) }, policy);
                // SAFETY: as above.
                let class = unsafe { libc::syscall(libc::SYS_ioprio_get, ioprio::WHO_PROCESS, 0) };
                assert_eq!(class, i64::from(degree.disk_priority()));
            });
        }
    }

    /// The policy of the calling thread.
    fn policy() -> i32 {
        // SAFETY: the call takes integers only; id 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn raised_priority_ends_with_the_closure() {
        in_new_thread(|| {
            cpu::set_nice(3).expect("no privilege is needed");
            let nice = || rustix::process::getpriority_process(None).expect("a nice value");
            let during = with_raised_priority(policy);
            assert!(
                [libc::SCHED_FIFO, libc::SCHED_OTHER].contains(&during),
                "raised if the process has the privilege: {during}"
            );
            assert_eq!((policy(), nice()), (libc::SCHED_OTHER, 3));
            let caught = std::panic::catch_unwind(|| with_raised_priority(|| panic!("a panic of the closure")));
            assert!(caught.is_err());
            assert_eq!((policy(), nice()), (libc::SCHED_OTHER, 3), "after a panic too");
        });
    }

    #[test]
    fn a_thread_leaves_cpus_only_if_others_remain() {
        in_new_thread(|| {
            let all = cpu::allowed();
            assert!(!keep_off_cpus(&all));
            assert_eq!(cpu::allowed(), all);
            assert!(keep_off_cpus(&[]));
            if let [first, rest @ ..] = &all[..]
                && !rest.is_empty()
            {
                assert!(keep_off_cpus(&[*first]));
                assert_eq!(cpu::allowed(), rest);
            }
        });
    }
}
