//! The field tables of exported types, and the selection of fields by name.

use super::Value;
use std::borrow::Cow;
use std::fmt;

/// A field of a `T`.
pub struct Field<T> {
    /// The name of the field: lower-case letters, digits and `_`.
    pub name: Cow<'static, str>,
    /// The unit of the values; empty if they have no unit.
    pub unit: &'static str,
    /// Its description, as a phrase.
    pub meaning: Cow<'static, str>,
    read: Box<Read<T>>,
}

type Read<T> = dyn for<'a> Fn(&'a T) -> Value<'a> + Send + Sync;

impl<T> Field<T> {
    /// Creates a field of a table.
    pub(super) fn new(
        name: impl Into<Cow<'static, str>>,
        unit: &'static str,
        meaning: impl Into<Cow<'static, str>>,
        read: impl for<'a> Fn(&'a T) -> Value<'a> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), unit, meaning: meaning.into(), read: Box::new(read) }
    }

    /// The value of the field.
    pub fn of<'a>(&self, item: &'a T) -> Value<'a> {
        (self.read)(item)
    }
}

/// A type with a table of fields: [`flow::Record`], [`series::Row`], [`series::Rollup`].
pub trait FieldTable: Sized + 'static {
    /// What error messages call a value of this type, such as "a flow record".
    const ITEM_NAME: &'static str;

    /// All fields, in output order.
    fn fields() -> &'static [Field<Self>];
}

/// The field with this name.
///
/// # Errors
/// If no field has this name. The error names the field with the most similar name, or all fields.
pub fn field<T: FieldTable>(name: &str) -> Result<&'static Field<T>, UnknownField> {
    T::fields().iter().find(|field| field.name == name).ok_or_else(|| {
        let known = T::fields().iter().map(|field| &*field.name).collect();
        UnknownField { name: name.to_owned(), what: T::ITEM_NAME, known }
    })
}

/// The fields of a list like `src,dst,bytes`, in the order of the list.
///
/// # Errors
/// For the first unknown name.
pub fn choose<T: FieldTable>(list: &str) -> Result<Vec<&'static Field<T>>, UnknownField> {
    list.split(',').map(|name| field(name.trim())).collect()
}

/// The error for an unknown field name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The name.
    pub name: String,
    /// What error messages call a value of the type that lacks the field, such as "a flow record".
    pub what: &'static str,
    /// The existing names.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no field {:?}; ", self.what, self.name)?;
        match base::nearest(&self.name, self.known.iter().copied()) {
            Some(near) => write!(f, "did you mean {near}?"),
            None => write!(f, "its fields are {}", self.known.join(", ")),
        }
    }
}

impl std::error::Error for UnknownField {}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Record;
    use series::{Rollup, Row};
    use std::collections::BTreeSet;

    #[test]
    fn an_unknown_field_is_reported_with_the_nearest_name() {
        let error = choose::<Record>("src,dts_port").err().expect("unknown");
        assert_eq!(error.to_string(), "a flow record has no field \"dts_port\"; did you mean dst_port?");
        let error = choose::<Record>("foo").err().expect("unknown").to_string();
        assert!(error.contains("; its fields are ") && error.contains(" src, "), "{error}");
        assert!(choose::<Row>("").is_err() && choose::<Rollup>("packets").is_err());
    }

    #[test]
    fn fields_are_returned_in_the_order_of_the_list() {
        let names: Vec<&str> =
            choose::<Row>("bytes, packets").expect("known").iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["bytes", "packets"]);
    }

    fn check_table<T: FieldTable>() {
        let names: BTreeSet<&str> = T::fields().iter().map(|field| &*field.name).collect();
        assert_eq!(names.len(), T::fields().len(), "two fields of {} have the same name", T::ITEM_NAME);
        for field in T::fields() {
            let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(!field.name.is_empty() && field.name.bytes().all(word), "{}", field.name);
            assert!(!field.meaning.is_empty() && !field.meaning.contains(['|', '\n']), "{}", field.name);
        }
    }

    #[test]
    fn every_table_has_unique_valid_names_and_descriptions() {
        check_table::<Record>();
        check_table::<Row>();
        check_table::<Rollup>();
    }
}
