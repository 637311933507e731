//! Kernel settings that can be read, changed and restored, each with its value as text.

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
        /// The path, without the leading slash.
        path: String,
    },
    /// A feature of an interface; its value is `on` or `off`.
    Feature {
        /// The interface.
        port: String,
        /// The kernel's name of the feature.
        feature: String,
    },
    /// Number of descriptors of an interface's receive rings.
    RxRing {
        /// The interface.
        port: String,
    },
    /// Number of receive queues of an interface.
    Queues {
        /// The interface.
        port: String,
    },
    /// Use of pause frames by an interface, with a value of the form `autoneg rx tx`, each 0 or 1.
    Pause {
        /// The interface.
        port: String,
    },
}

/// A setting with the value that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// The value.
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

const fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn invalid(value: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{value:?} is not a value of this setting"))
}

fn parse_on_or_off(value: &str) -> io::Result<bool> {
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
    /// Reads the current value.
    ///
    /// # Errors
    /// The error of the kernel; `NotFound` if the setting does not exist.
    pub fn read(&self, tree: &Tree) -> io::Result<String> {
        match self {
            Self::File { path } => tree.text(path).ok_or_else(|| io::ErrorKind::NotFound.into()),
            Self::Feature { port, feature } => {
                let all = ethtool::features(port)?;
                let found = all.iter().find(|f| f.name == *feature);
                found.map(|f| on_or_off(f.on).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            Self::RxRing { port } => Ok(ethtool::rings(port)?.rx.to_string()),
            Self::Queues { port } => Ok(ethtool::channels(port)?.receiving().to_string()),
            Self::Pause { port } => {
                let p = ethtool::pause(port)?;
                Ok(format!("{} {} {}", u8::from(p.autoneg), u8::from(p.rx), u8::from(p.tx)))
            }
        }
    }

    /// Writes the value of the setting and reads it back, because some drivers and files accept a value without storing
    /// it.
    ///
    /// # Errors
    /// The error of the kernel; [`io::ErrorKind::Other`] if the setting has another value afterwards.
    pub fn write(&self, tree: &Tree, value: &str) -> io::Result<()> {
        match self {
            Self::File { path } => tree.write(path, value)?,
            Self::Feature { port, feature } => ethtool::set_feature(port, feature, parse_on_or_off(value)?)?,
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
            Err(io::Error::other(format!("the kernel set the value to {now} instead of {value}")))
        }
    }
}
