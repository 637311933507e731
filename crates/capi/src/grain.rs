//! What the loops over flows and over series have in common: how they begin, wait, name interfaces, and tell remarks.

use crate::abi::{Question, code};
use crate::guard::{Failure, c_text, text};
use crate::question::read;
use columns::{ColumnsError, Query, Step};
use query::{Behind, Place, QueryError};
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Filter;

/// How long `netgrain_flows_stop` may take to be seen.
const NAP: Duration = Duration::from_millis(50);

/// A question about grains above packets, understood.
pub struct Begun {
    pub query: Query,
    pub filter: Filter,
    pub live: bool,
    pub common: Common,
}

/// See the module.
pub struct Common {
    pub stop: Arc<AtomicBool>,
    /// Lent until the end: their bytes stay where they are when the list grows.
    names: Vec<CString>,
    remarks: Vec<CString>,
    /// Why the calling thread is not behind recorders, if it was to be.
    behind: Option<String>,
}

/// Reads what the caller asks.
///
/// # Safety
/// `store` and `question` are as [`text`] and [`read`] want them.
pub unsafe fn begin(store: *const c_char, question: *const Question) -> Result<Begun, Failure> {
    // SAFETY: the caller's promise.
    let (store, asked) = unsafe { (PathBuf::from(text(store, "the store")?), read(question)?) };
    let query::Question { from, to, filter, interfaces, follow, live, .. } = asked.question;
    if from > to {
        return Err(QueryError::Backwards { from, to }.into());
    }
    if follow && !live {
        let text = "NETGRAIN_FOLLOW needs what is being written, which NETGRAIN_NO_RING leaves out: pass one of them";
        return Err(Failure::argument(text));
    }
    let place = Place::Store(store.clone());
    let behind = if asked.step_behind { query::step_behind(&place, Behind::Batch) } else { None };
    let query = Query { interfaces, from, to, need: filter.need(), live, ..Query::new(store) };
    let stop = Arc::new(AtomicBool::new(false));
    let common = Common { stop, names: Vec::new(), remarks: Vec::new(), behind };
    Ok(Begun { query, filter, live: follow, common })
}

impl Common {
    /// Steps until there is one, the end, or somebody wants no more.
    pub fn wait<T>(
        &self,
        mut step: impl FnMut() -> Result<(Step<T>, Duration), ColumnsError>,
    ) -> Result<Option<T>, Failure> {
        while !self.is_stopped() {
            match step()? {
                (Step::One(thing), _) => return Ok(Some(thing)),
                (Step::End, _) => return Ok(None),
                (Step::Idle, mut pause) => {
                    while !pause.is_zero() && !self.is_stopped() {
                        let nap = pause.min(NAP);
                        std::thread::sleep(nap);
                        pause -= nap;
                    }
                }
            }
        }
        Ok(None)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The name of an interface, lent until the end.
    pub fn name(&mut self, number: u16, all: &[String]) -> *const c_char {
        let new = all.iter().skip(self.names.len()).map(|name| c_text(name));
        self.names.extend(new);
        self.names[usize::from(number)].as_ptr()
    }

    /// Takes remarks over, and tells how many there are.
    pub fn take_remarks(&mut self, told: &[String]) -> usize {
        self.remarks = self.behind.iter().chain(told).map(|text| c_text(text)).collect();
        self.remarks.len()
    }

    /// One of those taken over.
    pub fn remark(&self, number: usize) -> *const c_char {
        self.remarks.get(number).map_or(std::ptr::null(), |text| text.as_ptr())
    }
}

/// The filter for what is no packet was not understood.
pub fn refused(what: impl std::fmt::Display) -> Failure {
    Failure { code: code::FILTER, text: format!("filter: {what}") }
}
