//! The specification of trains in text form: `train`, `train,bursts=10,per-burst=100,gap=10us,size=200:1514`.

use super::layout::min_len;
use crate::layout::MAX_FRAME;
use base::units::{parse_count, parse_span};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// The largest number of frame sizes.
pub const SIZES_MAX: usize = 64;

/// The default ports are in the port ranges of the other test traffic; see [`crate::Flow`].
const DEFAULT_SOURCE: &str = "10.0.0.1:32862";
const DEFAULT_DESTINATION: &str = "198.18.0.1:20862";
pub(super) const DEFAULT_SOURCE_MAC: [u8; 6] = [0x02, 0x6e, 0x67, 0, 0, 1];
const DEFAULT_DESTINATION_MAC: [u8; 6] = [0x02, 0x6e, 0x67, 0, 0, 2];

/// A complete description of trains. A gap is the time between two planned departures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainSpec {
    /// The number of the session, which distinguishes runs of the generator. `None` if the sender chooses the number.
    pub session: Option<u32>,
    /// Number of trains, at least 1. `None` means one train, or as many trains as the duration or the number of packets
    /// permits if one of these is given.
    pub trains: Option<u32>,
    /// The gap from the last packet of a train to the first packet of the next train.
    pub train_gap: Duration,
    /// Number of bursts of a train, at least 1.
    pub bursts: u32,
    /// The gap from the last packet of a burst to the first packet of the next burst.
    pub burst_gap: Duration,
    /// Number of packets of a burst, at least 1.
    pub per_burst: u16,
    /// The gap between two packets of a burst; zero for packets as fast as possible.
    pub gap: Duration,
    /// Frame lengths in bytes without frame check sequence, at least one; the packets have these lengths in turn.
    pub sizes: Vec<u16>,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port, of the same family.
    pub destination: SocketAddr,
    /// Source MAC address; `None` for that of the interface, or for a default in files.
    pub source_mac: Option<[u8; 6]>,
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// The run ends after this time: packets whose planned departure is at or after it are not sent.
    pub duration: Option<Duration>,
    /// The run ends after this number of packets.
    pub packets: Option<u64>,
}

impl TrainSpec {
    /// True if the text is a specification of trains and not of other traffic.
    pub fn is_train(text: &str) -> bool {
        text.split(',').next().is_some_and(|first| first.trim() == "train")
    }
}

impl FromStr for TrainSpec {
    type Err = TrainSpecError;

    fn from_str(text: &str) -> Result<Self, TrainSpecError> {
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        if first != "train" {
            return Err(TrainSpecError::First(first.to_owned()));
        }
        let mut sizes = None;
        let mut spec = Self {
            session: None,
            trains: None,
            train_gap: Duration::from_secs(1),
            bursts: 1,
            burst_gap: Duration::from_millis(10),
            per_burst: 100,
            gap: Duration::from_micros(100),
            sizes: Vec::new(),
            source: DEFAULT_SOURCE.parse().map_err(|_| TrainSpecError::Key(DEFAULT_SOURCE.to_owned()))?,
            destination: DEFAULT_DESTINATION
                .parse()
                .map_err(|_| TrainSpecError::Key(DEFAULT_DESTINATION.to_owned()))?,
            source_mac: None,
            destination_mac: DEFAULT_DESTINATION_MAC,
            duration: None,
            packets: None,
        };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let bad = |expected| TrainSpecError::Value { part: part.to_owned(), expected };
            let number = |max: u32| parse_count(value).ok().filter(|n| (1..=u64::from(max)).contains(n));
            let span = || parse_span(value).map_err(|_| bad("a span of time: 10us, 1ms, 0 for no gap"));
            match key {
                "session" => {
                    let session = parse_count(value).ok().and_then(|n| u32::try_from(n).ok());
                    spec.session = Some(session.ok_or(bad("a number below 2^32: session=7"))?);
                }
                "trains" => {
                    let n = number(u32::MAX).ok_or(bad("a number of trains from 1 to 4294967295: trains=10"))?;
                    spec.trains = Some(n as u32);
                }
                "bursts" => {
                    let n = number(u32::MAX).ok_or(bad("a number of bursts from 1 to 4294967295: bursts=10"))?;
                    spec.bursts = n as u32;
                }
                "per-burst" => {
                    let n = number(u16::MAX.into()).ok_or(bad("a number of packets from 1 to 65535: per-burst=100"))?;
                    spec.per_burst = n as u16;
                }
                "packets" => {
                    spec.packets = Some(parse_count(value).map_err(|_| bad("a number of packets: packets=10k"))?);
                }
                "gap" => spec.gap = span()?,
                "burst-gap" => spec.burst_gap = span()?,
                "train-gap" => spec.train_gap = span()?,
                "duration" => spec.duration = Some(span()?),
                "size" => sizes = Some(value),
                "from" => spec.source = address(value).ok_or(bad(ADDRESS))?,
                "to" => spec.destination = address(value).ok_or(bad(ADDRESS))?,
                "from-mac" => spec.source_mac = Some(mac(value).ok_or(bad(MAC))?),
                "to-mac" => spec.destination_mac = mac(value).ok_or(bad(MAC))?,
                _ => return Err(TrainSpecError::Key(part.to_owned())),
            }
        }
        if spec.source.is_ipv4() != spec.destination.is_ipv4() {
            return Err(TrainSpecError::Families { source: spec.source, destination: spec.destination });
        }
        spec.sizes = parse_sizes(sizes.unwrap_or("200"), min_len(&spec.source))?;
        Ok(spec)
    }
}

const ADDRESS: &str = "an address and a port: 10.0.0.1:5000, [2001:db8::1]:5000";
const MAC: &str = "a MAC address: 02:00:00:00:00:01";

fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok()
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| {
            let is_hex = (1..=2).contains(&byte.len()) && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(byte, 16).ok().filter(|_| is_hex)
        })
        .collect::<Option<_>>()?;
    bytes.try_into().ok()
}

fn parse_sizes(text: &str, min: usize) -> Result<Vec<u16>, TrainSpecError> {
    let size = |text: &str| text.parse().ok().filter(|len: &u16| (min..=MAX_FRAME).contains(&usize::from(*len)));
    let sizes: Option<Vec<u16>> = text.split(':').map(size).collect();
    sizes.filter(|sizes| sizes.len() <= SIZES_MAX).ok_or(TrainSpecError::Sizes { text: text.to_owned(), min })
}

/// Writes the specification in the notation of [`FromStr`], with all keys that have a value.
impl fmt::Display for TrainSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mac = |mac: &[u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        let sizes: Vec<String> = self.sizes.iter().map(u16::to_string).collect();
        write!(
            f,
            "train,bursts={},per-burst={},gap={}ns,burst-gap={}ns,train-gap={}ns,size={},from={},to={},to-mac={}",
            self.bursts,
            self.per_burst,
            self.gap.as_nanos(),
            self.burst_gap.as_nanos(),
            self.train_gap.as_nanos(),
            sizes.join(":"),
            self.source,
            self.destination,
            mac(&self.destination_mac),
        )?;
        if let Some(session) = self.session {
            write!(f, ",session={session}")?;
        }
        if let Some(source_mac) = &self.source_mac {
            write!(f, ",from-mac={}", mac(source_mac))?;
        }
        if let Some(trains) = self.trains {
            write!(f, ",trains={trains}")?;
        }
        if let Some(duration) = self.duration {
            write!(f, ",duration={}ns", duration.as_nanos())?;
        }
        self.packets.map_or(Ok(()), |packets| write!(f, ",packets={packets}"))
    }
}

/// The error in a specification of trains. Its text names the faulty part and a valid form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrainSpecError {
    /// The first part is not the word `train`.
    First(String),
    /// A part with an unknown key.
    Key(String),
    /// A known key with an invalid value.
    Value {
        /// The part as written.
        part: String,
        /// A description of valid values.
        expected: &'static str,
    },
    /// The frame sizes are invalid, or too small for the headers and the payload.
    Sizes {
        /// The sizes as written.
        text: String,
        /// The smallest possible size.
        min: usize,
    },
    /// Source and destination are of different address families.
    Families {
        /// The source.
        source: SocketAddr,
        /// The destination.
        destination: SocketAddr,
    },
}

impl fmt::Display for TrainSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(text) => write!(f, "a train specification begins with the word train, not {text:?}"),
            Self::Key(part) => write!(
                f,
                "unknown part {part:?} of a train specification: write session=, trains=, train-gap=, bursts=, \
                 burst-gap=, per-burst=, gap=, size=, from=, to=, from-mac=, to-mac=, duration= or packets=, separated \
                 by commas"
            ),
            Self::Value { part, expected } => write!(f, "{part:?} should be {expected}"),
            Self::Sizes { text, min } => write!(
                f,
                "size={text} should be a frame length from {min} to {MAX_FRAME} bytes without frame check sequence, or \
                 up to {SIZES_MAX} lengths with colons: size={min}:1514; headers and payload take {min} bytes"
            ),
            Self::Families { source, destination } => write!(
                f,
                "from={source} and to={destination} should be two IPv4 addresses or two IPv6 addresses; give both \
                 from= and to="
            ),
        }
    }
}

impl std::error::Error for TrainSpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_specifications_are_rejected_with_advice() {
        for (bad, advice) in [
            ("", "begins with the word train"),
            ("60", "begins with the word train"),
            ("train,colour=red", "unknown part \"colour=red\""),
            ("train,", "unknown part \"\""),
            ("train,bursts=0", "from 1 to 4294967295"),
            ("train,trains=0", "trains=10"),
            ("train,per-burst=65536", "from 1 to 65535"),
            ("train,gap=10", "10us"),
            ("train,gap", "10us"),
            ("train,size=89", "from 90 to 9014"),
            ("train,size=100:", "size=90:1514"),
            ("train,size=100,from=[::1]:1,to=[::2]:2", "from 110 to 9014"),
            ("train,from=[::1]:1", "give both"),
            ("train,to=10.0.0.1", "10.0.0.1:5000"),
            ("train,to-mac=02:00:00:00:01", "02:00:00:00:00:01"),
            ("train,to-mac=02:00:00:00:00:+1", "02:00:00:00:00:01"),
            ("train,session=4294967296", "below 2^32"),
            ("train,packets=1.5", "packets=10k"),
            ("train,duration=soon", "1ms"),
        ] {
            let error = bad.parse::<TrainSpec>().expect_err(bad).to_string();
            assert!(error.contains(advice), "{bad}: {error}");
        }
        let many = format!("train,size={}", ["100"; 65].join(":"));
        assert!(many.parse::<TrainSpec>().is_err());
    }

    #[test]
    fn a_displayed_specification_parses_to_the_same_value() {
        for text in [
            "train",
            "train,trains=3,packets=7",
            "train,duration=1s, gap=0, size=90:1514",
            "train,from=[2001:db8::1]:1,to=[2001:db8::2]:65535,size=110,session=4294967295",
            "train,to-mac=ff:ff:ff:ff:ff:ff,from-mac=2:0:0:0:0:ab",
        ] {
            let spec: TrainSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse::<TrainSpec>().unwrap(), spec, "{spec}");
        }
    }

    #[test]
    fn a_run_has_one_train_by_default_unless_a_duration_or_a_number_of_packets_is_given() {
        let packets = |text: &str| crate::train::Departures::new(&text.parse().unwrap()).count();
        assert_eq!(packets("train"), 100);
        assert_eq!(packets("train,trains=2"), 200);
        assert_eq!(packets("train,packets=1k"), 1000);
        assert_eq!(packets("train,packets=1k,trains=2"), 200);
        // A train lasts 9.9 ms and is followed by a gap of 1 s.
        assert_eq!(packets("train,duration=2s"), 200);
        assert_eq!(packets("train,duration=2s,trains=1"), 100);
    }
}
