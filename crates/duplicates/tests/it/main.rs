//! All integration tests of this crate. They form one program, so that the linker runs once; each module has one
//! subject.

mod devices;
mod editcap;
mod labelled;
mod limits;
mod oracle;
mod planted;
mod senders;
mod shards;
mod traffic;
mod traps;

#[global_allocator]
static COUNTING: testkit::Counting = testkit::Counting::new();
