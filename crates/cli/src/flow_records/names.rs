//! Names of interfaces by their numbers in flow records.

use aggregate::Value;

/// The known names of interfaces. An interface without a known name is shown by its number.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(u16, String)>);

impl Names {
    /// Sets or replaces the name of the interface with this number.
    pub fn set(&mut self, number: u16, name: &str) {
        match self.0.iter_mut().find(|(n, _)| *n == number) {
            Some((_, known)) if known == name => {}
            Some((_, known)) => name.clone_into(known),
            None => self.0.push((number, name.to_owned())),
        }
    }

    /// The number of an interface name; if the name has no number yet, it gets the next free number.
    pub fn number(&mut self, name: &str) -> u16 {
        if let Some((number, _)) = self.0.iter().find(|(_, known)| known == name) {
            return *number;
        }
        let number = self.0.len() as u16;
        self.0.push((number, name.to_owned()));
        number
    }

    /// Adds the new interface names of a list that only grows. The position of a name in the list is its number.
    pub fn extend(&mut self, all: &[String]) {
        for (number, name) in all.iter().enumerate().skip(self.0.len()) {
            self.set(number as u16, name);
        }
    }

    /// Removes all names.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All interface names in the order in which they were added.
    pub fn all(&self) -> &[(u16, String)] {
        &self.0
    }

    /// The name of an interface.
    pub fn interface(&self, number: u16) -> String {
        let known = self.0.iter().find(|(n, _)| *n == number);
        known.map_or_else(|| number.to_string(), |(_, name)| name.clone())
    }

    /// The value of a field by which flow records are grouped, as text.
    pub fn value(&self, value: &Value) -> String {
        match value {
            Value::Interface(number) => self.interface(*number),
            other => other.to_string(),
        }
    }
}
