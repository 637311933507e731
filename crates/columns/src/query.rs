//! Defines a query of flow records and series rows: the store, the interfaces, the interval, and conditions that
//! exclude files and row groups.

use crate::error::ColumnsError;
use crate::file_layout::{self, DataFileKind};
use base::Timestamp;
use filter::KeyCondition;
use std::path::PathBuf;
use store::{catalogue, names};

/// Selects flow records or series rows.
#[derive(Clone, Debug)]
pub struct Query {
    /// The store.
    pub store: PathBuf,
    /// The interfaces; empty for all.
    pub interfaces: Vec<String>,
    /// The begin of the interval: records that ended before it are left out.
    pub from: Timestamp,
    /// The inclusive end of the interval: records that begin later are left out.
    pub to: Timestamp,
    /// A condition that excludes whole row groups. So records that do not meet the condition may be returned too.
    /// Queries of series rows ignore the condition.
    pub need: KeyCondition,
    /// Return only records with this flow id.
    pub id: Option<u64>,
    /// The requested fields of each record, by column name, if the caller reads no others; `None` for all. Damage in a
    /// column that none of them needs removes no record from the result. Other fields have unspecified values.
    pub fields: Option<Vec<String>>,
    /// True to include growing journals.
    pub live: bool,
}

impl Query {
    /// Selects everything in a store.
    pub fn new(store: impl Into<PathBuf>) -> Self {
        Self {
            store: sys::nofollow::resolve(&store.into()),
            interfaces: Vec::new(),
            from: Timestamp::ZERO,
            to: Timestamp::MAX,
            need: KeyCondition::Anything,
            id: None,
            fields: None,
            live: true,
        }
    }

    /// The directories of the selected interfaces.
    pub(crate) fn roots(&self) -> Result<Vec<PathBuf>, ColumnsError> {
        Ok(self.selected_interfaces()?.iter().map(|name| names::interface_directory(&self.store, name)).collect())
    }

    /// The selected interfaces.
    pub(crate) fn selected_interfaces(&self) -> Result<Vec<String>, ColumnsError> {
        let mut known = catalogue::interfaces(&self.store).map_err(ColumnsError::io(&self.store))?;
        // A new interface has journals but no sealed files and no packet files, so the catalogue does not list it.
        for (name, _) in sys::nofollow::list(&self.store).map_err(ColumnsError::io(&self.store))? {
            let directory = self.store.join(&name);
            let has = |kind| file_layout::journals(&directory, kind).is_ok_and(|found| !found.is_empty());
            if let Ok(name) = name.into_string()
                && !known.contains(&name)
                && (has(DataFileKind::Flows) || has(DataFileKind::Series))
            {
                known.push(name);
            }
        }
        let directory = |name: &String| names::interface_directory(&self.store, name);
        if let Some(name) = self.interfaces.iter().find(|name| !sys::nofollow::is_directory(&directory(name))) {
            return Err(ColumnsError::NoInterface { store: self.store.clone(), name: name.clone(), known });
        }
        Ok(if self.interfaces.is_empty() { known } else { self.interfaces.clone() })
    }

    /// True if the span from `first` to `last` overlaps the interval of the query.
    pub(crate) fn overlaps(&self, (first, last): (Timestamp, Timestamp)) -> bool {
        first <= self.to && last >= self.from
    }
}
