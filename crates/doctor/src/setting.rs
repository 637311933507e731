//! Settings of the kernel that can be read, changed and put back, each with its value as text.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use sys::ethtool::{self, Pause};
use sys::sysfs::Tree;

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// A file below `/proc` or `/sys`.
    File {
        /// Its path, without the leading slash.
        path: String,
    },
    /// A feature of a port, `on` or `off`.
    Feature {
        /// The port.
        port: String,
        /// The kernel's name for the feature.
        feature: String,
    },
    /// Descriptors of a port's receive rings.
    RxRing {
        /// The port.
        port: String,
    },
    /// Receiving queues of a port.
    Queues {
        /// The port.
        port: String,
    },
    /// Pause frames of a port: `autoneg rx tx`, each 0 or 1.
    Pause {
        /// The port.
        port: String,
    },
}

/// A setting and the value that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What.
    pub setting: Setting,
    /// To what.
    pub value: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path } => write!(f, "/{path}"),
            Self::Feature { port, feature } => write!(f, "{port}: {feature}"),
            Self::RxRing { port } => write!(f, "{port}: receive ring"),
            Self::Queues { port } => write!(f, "{port}: queues"),
            Self::Pause { port } => write!(f, "{port}: pause frames (autoneg rx tx)"),
        }
    }
}

const fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn invalid(value: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{value:?} is not a value of this setting"))
}

fn switch(value: &str) -> io::Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(invalid(value)),
    }
}

fn number(value: &str) -> io::Result<u32> {
    value.parse().map_err(|_| invalid(value))
}

impl Setting {
    /// Its value now.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` where there is no such setting.
    pub fn read(&self, tree: &Tree) -> io::Result<String> {
        match self {
            Self::File { path } => tree.text(path).ok_or_else(|| io::ErrorKind::NotFound.into()),
            Self::Feature { port, feature } => {
                let all = ethtool::features(port)?;
                let found = all.iter().find(|f| f.name == *feature);
                found.map(|f| word(f.on).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            Self::RxRing { port } => Ok(ethtool::rings(port)?.rx.to_string()),
            Self::Queues { port } => Ok(ethtool::channels(port)?.receiving().to_string()),
            Self::Pause { port } => {
                let p = ethtool::pause(port)?;
                Ok(format!("{} {} {}", u8::from(p.autoneg), u8::from(p.rx), u8::from(p.tx)))
            }
        }
    }

    /// Gives it a value, and looks whether it has it then: some drivers and files take what they do not keep.
    ///
    /// # Errors
    /// What the kernel says; [`io::ErrorKind::Other`] when it kept another value.
    pub fn write(&self, tree: &Tree, value: &str) -> io::Result<()> {
        match self {
            Self::File { path } => tree.write(path, value)?,
            Self::Feature { port, feature } => ethtool::set_feature(port, feature, switch(value)?)?,
            Self::RxRing { port } => ethtool::set_rx_ring(port, number(value)?)?,
            Self::Queues { port } => ethtool::set_channels(port, number(value)?)?,
            Self::Pause { port } => {
                let bits: Vec<bool> = value.split(' ').map(|b| b == "1").collect();
                let [autoneg, rx, tx] = bits[..] else { return Err(invalid(value)) };
                ethtool::set_pause(port, Pause { autoneg, rx, tx })?;
            }
        }
        let now = self.read(tree)?;
        if now == value {
            Ok(())
        } else {
            Err(io::Error::other(format!("the kernel made it {now} instead of {value}")))
        }
    }
}
