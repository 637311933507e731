//! Finding packets again: the ring, the open file and sealed files of a store as one, or foreign captures with an index
//! beside them; in time order, with memory that does not grow with the answer, and with its cost told.
//!
//! [`ask`] a [`Question`] of a [`Place`]; the [`Answer`] lends one packet after the other. This is also the Rust API for
//! reading packets by interval and filter, as `getPackets` of M3OMon and the loop of libpcap are.
#![forbid(unsafe_code)]

mod answer;
mod behind;
mod block;
mod book;
mod cost;
mod cursor;
mod disk;
mod error;
mod foreign;
mod live;
mod merge;
mod ordered;
mod question;
mod sealed;

use book::Book;

pub use answer::{Answer, Batch, Found, Origin, ask};
pub use behind::{Behind, step_behind};
pub use cost::Cost;
pub use error::QueryError;
pub use foreign::indexes;
pub use question::{Place, Question, Seek};
