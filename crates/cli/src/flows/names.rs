//! Interfaces are numbers in records; people and other programs want their names.

use aggregate::Value;

/// The names there are; where one is missing, the number must do.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(u16, String)>);

impl Names {
    /// Gives a number its name, or another one.
    pub fn set(&mut self, number: u16, name: &str) {
        match self.0.iter_mut().find(|(n, _)| *n == number) {
            Some((_, known)) if known == name => {}
            Some((_, known)) => name.clone_into(known),
            None => self.0.push((number, name.to_owned())),
        }
    }

    /// The number that stands for a name here, which is a new one if nobody has it.
    pub fn number(&mut self, name: &str) -> u16 {
        if let Some((number, _)) = self.0.iter().find(|(_, known)| known == name) {
            return *number;
        }
        let number = self.0.len() as u16;
        self.0.push((number, name.to_owned()));
        number
    }

    /// Names by number, as a store's loop has them: what is new of a list that only grows.
    pub fn learn(&mut self, all: &[String]) {
        for (number, name) in all.iter().enumerate().skip(self.0.len()) {
            self.set(number as u16, name);
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All there are, in the order in which they came to be known.
    pub fn all(&self) -> &[(u16, String)] {
        &self.0
    }

    /// The name of an interface.
    pub fn interface(&self, number: u16) -> String {
        let known = self.0.iter().find(|(n, _)| *n == number);
        known.map_or_else(|| number.to_string(), |(_, name)| name.clone())
    }

    /// A value of a group, as people read it.
    pub fn value(&self, value: &Value) -> String {
        match value {
            Value::Interface(number) => self.interface(*number),
            other => other.to_string(),
        }
    }
}
