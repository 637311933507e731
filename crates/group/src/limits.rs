//! Limits on the engine's resources that its clients may use.
//!
//! Each member takes locked memory and file descriptors of the engine, each flow map takes memory, and each egress
//! interface takes a thread. The recorder needs the same resources to publish its files, so the limits must hold also
//! for users that are permitted to use groups. Each unprivileged user has a limit. All unprivileged users together have
//! a limit that leaves resources to root and the engine's user. No request may use the last file descriptors.

use ring::DESC_BYTES;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// The maximum number of groups of an engine.
pub const GROUPS: usize = 64;

/// Default number of descriptors of a branch. They take 4 MiB and hold the packets of a tenth of a second at a million
/// packets per second.
pub(crate) const BRANCH_DESCS: u64 = 128 << 10;

/// File descriptors that a branch costs the engine: one each for the descriptor memory, the control page, the cursor
/// page, and the socket or file of a sink.
const FILES_OF_BRANCH: u64 = 4;

/// File descriptors reserved for the recorder, its indexes and the listeners' sockets.
const FILES_OF_OTHERS: u64 = 256;

/// The maximum number of branches of an engine, however high the limit of open files is.
const BRANCHES_MAX: u64 = 4096;

/// Time limit for a dispatcher to carry out a command. The dispatcher may have to wait until the producer of the ring
/// accepts its reader.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The limits of an engine; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of groups of one user. All unprivileged users together may have three quarters of [`GROUPS`].
    pub groups: usize,
    /// The maximum number of branches of one user. Each member, and each egress interface of a program, has one branch
    /// for each queue. All unprivileged users together may have three quarters of `all_branches`.
    pub branches: usize,
    /// The maximum number of bytes of the branches and flow maps of one user. All unprivileged users together may have
    /// twice as many.
    pub bytes: u64,
    /// The maximum number of branches of all users together.
    pub all_branches: usize,
    /// The maximum number of bytes of the flow maps of one program, for any user.
    pub program_bytes: u64,
    /// Interfaces through which programs of unprivileged users may send. Programs of root and of the engine's user may
    /// send through any interface.
    pub ports: Vec<String>,
    /// Time limit of a command. If it passes, the response to the client names the queue as unresponsive.
    pub timeout: Duration,
}

/// Resources that a user holds or requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceUse {
    pub groups: usize,
    pub branches: usize,
    pub bytes: u64,
}

/// The users for whom a limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// The user who requests more.
    User,
    /// All unprivileged users together.
    UnprivilegedUsers,
    /// All users, including root and the engine's own user.
    Engine,
}

/// A resource limit that a request would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The number of groups.
    Groups {
        /// The users for whom the limit holds.
        scope: LimitScope,
        /// The number of their groups.
        held: usize,
        /// The limit.
        limit: usize,
    },
    /// The number of branches.
    Branches {
        /// The users for whom the limit holds.
        scope: LimitScope,
        /// The number of their branches.
        held: usize,
        /// The limit.
        limit: usize,
    },
    /// The memory of the branches and flow maps of a user.
    Memory {
        /// The additional memory that the request needs, in MiB.
        requested_mib: u64,
        /// The limit, in MiB.
        limit_mib: u64,
    },
    /// The memory of the flow maps of one program.
    ProgramMemory {
        /// The memory that the program can need at most, in MiB.
        needed_mib: u64,
        /// The limit, in MiB.
        limit_mib: u64,
        /// How to change the program so that it needs less memory.
        advice: String,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |scope: &LimitScope| match scope {
            LimitScope::User => "this user has",
            LimitScope::UnprivilegedUsers => "all unprivileged users together have",
            LimitScope::Engine => "this engine has",
        };
        match self {
            Self::Groups { scope, held, limit } => {
                write!(f, "{} {held} groups, and the limit is {limit}; delete a group first", has(scope))
            }
            Self::Branches { scope, held, limit } => {
                write!(f, "{} {held} branches, and the limit is {limit}; remove members first", has(scope))?;
                match scope {
                    LimitScope::Engine => f.write_str(
                        ", or start the engine with a higher limit of open files (LimitNOFILE of a unit, ulimit -n)",
                    ),
                    LimitScope::User | LimitScope::UnprivilegedUsers => Ok(()),
                }
            }
            Self::Memory { requested_mib, limit_mib } => write!(
                f,
                "the request needs {requested_mib} MiB more for branches and flow maps, and the limit of a user is \
                 {limit_mib} MiB of this engine's memory; write `up_to N` at maps, request fewer descriptors, or \
                 release some memory first"
            ),
            Self::ProgramMemory { needed_mib, limit_mib, advice } => write!(
                f,
                "the flow maps of the program need up to {needed_mib} MiB, and the limit of a program is {limit_mib} \
                 MiB; {advice}"
            ),
        }
    }
}

impl std::error::Error for LimitError {}

impl Limits {
    /// Returns the limits for a machine with `memory` bytes and a process that may open `files` files.
    pub fn of(memory: u64, files: u64) -> Self {
        let left = files.saturating_sub(FILES_OF_OTHERS + connections(files) as u64);
        Self {
            groups: 16,
            branches: 256,
            bytes: memory / 8,
            all_branches: (left / FILES_OF_BRANCH).min(BRANCHES_MAX) as usize,
            program_bytes: memory / 4,
            ports: Vec::new(),
            timeout: TIMEOUT,
        }
    }

    /// Returns the limits for this machine and process.
    pub fn here() -> Self {
        Self::of(sys::memory_limit::memory_limit().limit, sys::limits::open_files())
    }

    /// Checks whether the resources `more` may be added to the resources in use: to those of this user, of all
    /// unprivileged users, and of all users.
    pub(crate) fn admit(
        &self,
        is_unprivileged: bool,
        held: [ResourceUse; 3],
        more: ResourceUse,
    ) -> Result<(), LimitError> {
        let [mine, clients, all] = held;
        let groups = |scope, held: usize, limit: usize| {
            let fits = more.groups == 0 || held + more.groups <= limit;
            if fits { Ok(()) } else { Err(LimitError::Groups { scope, held, limit }) }
        };
        let branches = |scope, held: usize, limit: usize| {
            let fits = more.branches == 0 || held + more.branches <= limit;
            if fits { Ok(()) } else { Err(LimitError::Branches { scope, held, limit }) }
        };
        if is_unprivileged {
            groups(LimitScope::User, mine.groups, self.groups)?;
            groups(LimitScope::UnprivilegedUsers, clients.groups, GROUPS / 4 * 3)?;
            branches(LimitScope::User, mine.branches, self.branches)?;
            branches(LimitScope::UnprivilegedUsers, clients.branches, self.all_branches / 4 * 3)?;
            let [mine, both] = [mine.bytes, clients.bytes].map(|b| b.saturating_add(more.bytes));
            if more.bytes > 0 && (mine > self.bytes || both > self.bytes.saturating_mul(2)) {
                return Err(LimitError::Memory { requested_mib: mib(more.bytes), limit_mib: mib(self.bytes) });
            }
        }
        branches(LimitScope::Engine, all.branches, self.all_branches)
    }
}

/// Returns the maximum number of control socket connections of a process that may open `files` files.
pub(crate) fn connections(files: u64) -> usize {
    (files / 4).min(512) as usize
}

pub(crate) fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Returns the bytes of a branch with `descs` descriptors.
pub(crate) fn branch_bytes(descs: u64) -> u64 {
    descs.next_power_of_two() * DESC_BYTES as u64
}

impl AddAssign for ResourceUse {
    fn add_assign(&mut self, o: Self) {
        self.groups += o.groups;
        self.branches += o.branches;
        self.bytes = self.bytes.saturating_add(o.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(groups: usize, branches: usize, bytes: u64) -> ResourceUse {
        ResourceUse { groups, branches, bytes }
    }

    #[test]
    fn branches_and_connections_leave_file_descriptors_to_the_recorder() {
        for files in [64, 1024, 4096, 65_536, 1 << 30] {
            let limits = Limits::of(16 << 30, files);
            let used = limits.all_branches as u64 * FILES_OF_BRANCH + connections(files) as u64;
            assert!(used + FILES_OF_OTHERS <= files || limits.all_branches == 0, "{files}: {limits:?}");
        }
        assert_eq!(Limits::of(16 << 30, 1024).all_branches, 128);
        assert_eq!(Limits::of(16 << 30, 1 << 30).all_branches as u64, BRANCHES_MAX);
    }

    #[test]
    fn an_unprivileged_user_has_its_own_limit_and_that_of_all_such_users() {
        let limits = Limits { groups: 2, branches: 10, bytes: 1000, all_branches: 20, ..Limits::of(0, 0) };
        let (none, much) = (ResourceUse::default(), held(48, 15, 2000));
        let unprivileged = |mine, clients, more| limits.admit(true, [mine, clients, clients], more);
        assert_eq!(unprivileged(none, none, held(2, 10, 1000)), Ok(()));
        for more in [held(3, 0, 0), held(0, 11, 0), held(0, 0, 1001)] {
            assert!(unprivileged(none, none, more).is_err(), "{more:?}");
        }
        for more in [held(1, 0, 0), held(0, 1, 0), held(0, 0, 1)] {
            assert!(unprivileged(none, much, more).is_err(), "the other users have used all resources: {more:?}");
            assert_eq!(
                limits.admit(false, [none, much, much], more),
                Ok(()),
                "the engine's user may still use the resources that the limit reserves"
            );
        }
        assert_eq!(unprivileged(none, much, none), Ok(()), "an empty request is granted");
        let why =
            limits.admit(false, [none, none, held(0, 20, 0)], held(0, 1, 0)).expect_err("no descriptors").to_string();
        assert!(why.contains("has 20 branches, and the limit is 20") && why.contains("LimitNOFILE"), "{why}");
    }
}
