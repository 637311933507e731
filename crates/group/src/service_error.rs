//! Errors of the services that an engine provides to its groups.

use std::error::Error;
use std::fmt;

/// The error of a service of the engine ([`EngineServices`](crate::EngineServices)), such as a program that does not
/// compile. The text is from the service, and contains the
/// cause, the position in the source text, and a correction.
#[derive(Debug)]
pub struct ServiceError(Box<dyn Error + Send + Sync>);

impl ServiceError {
    /// Creates an error from another error or from a text.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

impl From<String> for ServiceError {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ServiceError {}
