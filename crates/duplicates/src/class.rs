//! Sets of classes of duplicates.
//!
//! The classes are those of Ucar, Morató, Magaña and Izal, "Duplicate detection methodology for IP network traffic
//! analysis" (2013, arXiv 1311.4168).

use crate::Class;
use std::fmt;
use std::str::FromStr;

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(u8);

impl Classes {
    /// No class.
    pub const NONE: Self = Self(0);
    /// All classes.
    pub const ALL: Self = Self((1 << Class::COUNT) - 1);
    /// Switching and routing, in which ports and addresses are the same in both copies.
    pub const USUAL: Self = Self::NONE.with(Class::Switching).with(Class::Routing);

    /// The set with this class added.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class.index())
    }

    /// True if the set contains the class.
    #[inline]
    pub const fn contains(self, class: Class) -> bool {
        self.0 & 1 << class.index() != 0
    }

    /// True if the set has no class.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The classes of the set, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

impl Default for Classes {
    fn default() -> Self {
        Self::USUAL
    }
}

impl FromIterator<Class> for Classes {
    fn from_iter<T: IntoIterator<Item = Class>>(classes: T) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// The classes separated by commas; `none` for the empty set.
impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, class) in self.iter().enumerate() {
            write!(f, "{}{class}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A word that is not the name of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseClassError(String);

impl fmt::Display for ParseClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a class of duplicates: write {} or all", self.0, Classes::ALL)
    }
}

impl std::error::Error for ParseClassError {}

impl FromStr for Classes {
    type Err = ParseClassError;

    /// Reads names separated by commas, or `all`.
    fn from_str(text: &str) -> Result<Self, ParseClassError> {
        let class = |word: &str| Class::ALL.into_iter().find(|class| class.name() == word);
        let mut set = Self::NONE;
        for word in text.split(',').map(str::trim) {
            set = match (word, class(word)) {
                ("all", _) => Self::ALL,
                (_, Some(class)) => set.with(class),
                (_, None) => return Err(ParseClassError(word.to_owned())),
            };
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_back() {
        for class in Class::ALL {
            assert_eq!(Class::from_number(class as u8), Some(class));
            assert_eq!(class.name().parse(), Ok(Classes::NONE.with(class)));
        }
        assert_eq!((Class::from_number(0), Class::from_number(6)), (None, None));
        for set in (0..1 << Class::COUNT).map(Classes).filter(|set| !set.is_empty()) {
            assert_eq!(set.to_string().parse(), Ok(set));
        }
        assert_eq!("all".parse(), Ok(Classes::ALL));
    }

    #[test]
    fn a_word_that_is_no_class_is_named() {
        let error = "routing, natt".parse::<Classes>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"natt\" is not a class of duplicates: write switching,routing,nat,proxying,fragment or all"
        );
        assert!("".parse::<Classes>().is_err());
    }
}
