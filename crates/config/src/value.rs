//! The types of configuration values. A value is read from TOML or from a flag. If its printed form is read again, the
//! result is the same value.

use crate::raw_value::RawValue;
use crate::units::{self, CpuList, Mode};
use crate::value_error::ValueError;
use base::units::{parse_age, parse_bytes, parse_span};
use duplicates::Classes;
use engine::DuplicateAction;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use store::MeterKey;
use timestamping::{SwitchTimestamps, TimestampSetting};
use upkeep::retention::{Free, ParseFreeError};
use wire::IpProtocol;

impl RawValue {
    /// The value as text; an integer is returned as its decimal digits.
    fn text(&self) -> Result<String, ValueError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Whole(n) => Ok(n.to_string()),
            other => Err(ValueError::Type { given: other.clone(), expected: "a text or a number" }),
        }
    }
}

/// The type of a configuration key.
pub trait Setting: Sized {
    /// The name of the type, as `docs/reference/configuration.md` prints it.
    const KIND: &'static str;

    /// Converts a raw value.
    ///
    /// # Errors
    /// The value is not of this type.
    fn read(given: &RawValue) -> Result<Self, ValueError>;

    /// The value as TOML.
    fn show(&self) -> String;
}

impl Setting for bool {
    const KIND: &'static str = "true or false";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        match given {
            RawValue::Yes(yes) => Ok(*yes),
            other => Err(ValueError::Boolean(other.clone())),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for String {
    const KIND: &'static str = "text";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        given.text()
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Setting for PathBuf {
    const KIND: &'static str = "path";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        given.text().map(Self::from)
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

/// A count; the suffixes of flags (`1M`, `100k`) are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl Setting for Count {
    const KIND: &'static str = "number";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let text = given.text()?;
        units::count(&text).map(Self).map_err(|_| ValueError::Type {
            given: given.clone(),
            expected: "a whole number of at least 0: write 64, 100k, 1M",
        })
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Setting for Size {
    const KIND: &'static str = "size";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        Ok(Self(parse_bytes(&given.text()?)?))
    }

    fn show(&self) -> String {
        match units::exact_size(self.0) {
            plain if plain.bytes().all(|b| b.is_ascii_digit()) => plain,
            with_unit => quoted(&with_unit),
        }
    }
}

/// The maximum age of a file before retention removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Duration);

impl Setting for Age {
    const KIND: &'static str = "age";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        Ok(Self(parse_age(&given.text()?)?))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

impl Setting for Duration {
    const KIND: &'static str = "span";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        Ok(parse_span(&given.text()?)?)
    }

    fn show(&self) -> String {
        let nanos = self.as_nanos();
        for (unit, scale) in [
            ("d", 86_400_000_000_000),
            ("h", 3_600_000_000_000),
            ("min", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
        ] {
            if nanos > 0 && nanos.is_multiple_of(scale) {
                return quoted(&format!("{}{unit}", nanos / scale));
            }
        }
        quoted(&if nanos == 0 { "0s".to_owned() } else { format!("{nanos}ns") })
    }
}

impl Setting for MeterKey {
    const KIND: &'static str = "sixteen hexadecimal digits";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        match given {
            // If a flag gives a secret key that has only decimal digits, the key was parsed as an integer and lost its
            // leading zeros. The format string adds the zeros again.
            RawValue::Whole(n) if *n >= 0 => Ok(format!("{n:016}").parse()?),
            other => Ok(other.text()?.parse()?),
        }
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

/// The idle timeout of one protocol, as `udp=10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleOf {
    /// The protocol.
    pub protocol: IpProtocol,
    /// The idle timeout of flows of this protocol.
    pub idle: Duration,
}

impl Setting for IdleOf {
    const KIND: &'static str = "PROTOCOL=SPAN";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let text = given.text()?;
        let (protocol, idle) =
            text.split_once('=').ok_or_else(|| ValueError::form(&text, "PROTOCOL=SPAN, as in udp=10s"))?;
        let (protocol, idle) = (protocol.trim(), idle.trim());
        let known = IpProtocol::from_name(protocol).or_else(|| protocol.parse().ok().map(IpProtocol));
        let unknown = || ValueError::text(protocol, "a protocol above IP: write tcp, udp, icmp, …, or its number");
        let idle = Duration::read(&RawValue::Text(idle.to_owned()))?;
        Ok(Self { protocol: known.ok_or_else(unknown)?, idle })
    }

    fn show(&self) -> String {
        quoted(&format!("{}={}", self.protocol, self.idle.show().trim_matches('"')))
    }
}

impl<T: Setting> Setting for Vec<T> {
    const KIND: &'static str = "list";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        match given {
            RawValue::List(values) => values.iter().map(T::read).collect(),
            // The value of a flag has no brackets, so a single value is read as a list of one element.
            RawValue::Text(text) if text.is_empty() => Ok(Self::new()),
            RawValue::Text(text) => text.split(',').map(|part| T::read(&RawValue::from_flag(part.trim()))).collect(),
            one => Ok(vec![T::read(one)?]),
        }
    }

    fn show(&self) -> String {
        let each: Vec<String> = self.iter().map(T::show).collect();
        format!("[{}]", each.join(", "))
    }
}

/// `"none"` stands for `None`.
impl<T: Setting> Setting for Option<T> {
    const KIND: &'static str = T::KIND;

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        match given {
            RawValue::Text(text) if text == "none" => Ok(None),
            other => T::read(other).map(Some).map_err(|e| ValueError::Optional(Box::new(e))),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| quoted("none"), T::show)
    }
}

impl Setting for CpuList {
    const KIND: &'static str = "processors";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        units::cpu_list(&given.text()?)
    }

    fn show(&self) -> String {
        let each: Vec<String> = self.0.iter().map(usize::to_string).collect();
        quoted(&each.join(","))
    }
}

impl Setting for Mode {
    const KIND: &'static str = "octal";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        units::octal(&given.text()?)
    }

    fn show(&self) -> String {
        quoted(&format!("{:o}", self.0))
    }
}

/// The capture method of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// AF_XDP on an interface that is dedicated or that neither the host nor another program uses, otherwise TPACKET.
    Auto,
    /// AF_XDP.
    AfXdp,
    /// TPACKET_V3.
    Tpacket,
}

impl SourceKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AfXdp => "af-xdp",
            Self::Tpacket => "tpacket",
        }
    }
}

impl Setting for SourceKind {
    const KIND: &'static str = "auto, af-xdp or tpacket";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let text = given.text()?;
        let kinds = [Self::Auto, Self::AfXdp, Self::Tpacket];
        let kind = kinds.into_iter().find(|kind| kind.name() == text);
        kind.ok_or_else(|| ValueError::Type { given: given.clone(), expected: "one of auto, af-xdp or tpacket" })
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

impl Setting for TimestampSetting {
    const KIND: &'static str = "auto, poll, batch, udts, wdts, adaptive, kernel or hardware";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let expected = "one of auto, poll, batch, udts, wdts, adaptive, kernel or hardware";
        given.text()?.parse().map_err(|_| ValueError::Type { given: given.clone(), expected })
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

impl Setting for SwitchTimestamps {
    const KIND: &'static str = "off, metawatch or arista-header";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let expected = "one of off, metawatch or arista-header";
        given.text()?.parse().map_err(|_| ValueError::Type { given: given.clone(), expected })
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

/// The treatment of duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateMode {
    /// Packets are not compared.
    Off,
    /// Duplicates are stored, and their descriptors have the class.
    Mark,
    /// Duplicates are not stored.
    Drop,
}

impl DuplicateMode {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Mark => "mark",
            Self::Drop => "drop",
        }
    }

    /// What the engine does with duplicates; `None` if packets are not compared.
    pub const fn action(self) -> Option<DuplicateAction> {
        match self {
            Self::Off => None,
            Self::Mark => Some(DuplicateAction::Mark),
            Self::Drop => Some(DuplicateAction::Drop),
        }
    }
}

/// The packets with which a packet is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateTable {
    /// The packets of its queue.
    Queue,
    /// The packets of its interface.
    Interface,
    /// The packets of all interfaces.
    All,
}

impl DuplicateTable {
    const ALL: [Self; 3] = [Self::Queue, Self::Interface, Self::All];

    const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Interface => "interface",
            Self::All => "all",
        }
    }
}

impl Setting for DuplicateTable {
    const KIND: &'static str = "queue, interface or all";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let text = given.text()?;
        let table = Self::ALL.into_iter().find(|table| table.name() == text);
        table.ok_or_else(|| ValueError::Type { given: given.clone(), expected: "one of queue, interface or all" })
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

impl Setting for DuplicateMode {
    const KIND: &'static str = "off, mark or drop";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let text = given.text()?;
        let mode = [Self::Off, Self::Mark, Self::Drop].into_iter().find(|mode| mode.name() == text);
        mode.ok_or_else(|| ValueError::Type { given: given.clone(), expected: "one of off, mark or drop" })
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

impl Setting for Classes {
    const KIND: &'static str = "classes separated by commas";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let expected = "a list of switching, routing, nat, proxying and fragment, or all";
        given.text()?.parse().map_err(|_| ValueError::Type { given: given.clone(), expected })
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }
}

/// The space to keep free on the volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeepFree {
    /// `none`: no files are removed to free space; the recorder waits while the volume is full.
    None,
    /// The given space or share.
    Some(Free),
}

impl FromStr for KeepFree {
    type Err = ParseFreeError;

    fn from_str(text: &str) -> Result<Self, ParseFreeError> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Some) }
    }
}

/// The space on the volume that retention of packet files keeps free; `None` is `auto`, the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keep(pub Option<KeepFree>);

impl Setting for Keep {
    const KIND: &'static str = "size, percentage, none or auto";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        match given {
            RawValue::Text(text) if text == "auto" => Ok(Self(None)),
            other => Ok(Self(Some(other.text()?.parse()?))),
        }
    }

    fn show(&self) -> String {
        match self.0 {
            None => quoted("auto"),
            Some(KeepFree::None) => quoted("none"),
            Some(KeepFree::Some(Free::Bytes(bytes))) => Size(bytes).show(),
            Some(KeepFree::Some(Free::Percent(percent))) => quoted(&format!("{percent}%")),
        }
    }
}

/// A TOML string, in the same quoting as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    fn back<T: Setting + PartialEq + fmt::Debug>(value: T) {
        let shown = value.show();
        let given = RawValue::from_flag(shown.trim_matches('"'));
        assert_eq!(T::read(&given), Ok(value), "{shown}");
    }

    #[test]
    fn an_error_for_a_wrong_value_names_the_accepted_form() {
        let text = |t: &str| RawValue::Text(t.to_owned());
        let errors = [
            bool::read(&text("yes")).expect_err("no bool"),
            Duration::read(&text("soon")).expect_err("no span"),
            Size::read(&RawValue::Yes(true)).expect_err("no size"),
            Count::read(&text("many")).expect_err("no count"),
            SourceKind::read(&text("pcap")).expect_err("no kind"),
            TimestampSetting::read(&text("ptp")).expect_err("no method"),
            <SwitchTimestamps as Setting>::read(&text("arista")).expect_err("no format"),
            DuplicateMode::read(&text("on")).expect_err("no mode"),
            DuplicateTable::read(&text("link")).expect_err("no table"),
            Classes::read(&text("routing,natt")).expect_err("no classes"),
            Option::<Size>::read(&text("nothing")).expect_err("no size"),
            Vec::<Count>::read(&text("1,x")).expect_err("no count"),
            Vec::<IdleOf>::read(&text("udp=10s, icmp")).expect_err("no span"),
            IdleOf::read(&text("upd=10s")).expect_err("no protocol"),
            IdleOf::read(&text("udp=soon")).expect_err("no span"),
            <MeterKey as Setting>::read(&text("abc")).expect_err("no secret"),
        ];
        let expected = [
            "true nor false",
            "10s, 5min",
            "a text or a number",
            "100k",
            "tpacket",
            "adaptive",
            "arista-header",
            "mark or drop",
            "interface or all",
            "proxying",
            "or none",
            "100k",
            "udp=10s",
            "write tcp, udp",
            "10s, 5min",
            "sixteen",
        ];
        for (error, part) in errors.iter().zip(expected) {
            assert!(error.to_string().contains(part), "{error} lacks {part:?}");
        }
    }

    #[test]
    fn a_shown_value_reads_back_as_the_same_value() {
        for span in [0, 1, 999, 1_000_000_000, 30_000_000_000, 300_000_000_000, 90_000_000_000, 86_400_000_000_000] {
            back(Duration::from_nanos(span));
        }
        for size in [0, 1, 1023, 1024, 1 << 20, 3 << 30, (1 << 40) + 1] {
            back(Size(size));
        }
        back(Some(Count(7)));
        back(MeterKey(0x12));
        back(IdleOf { protocol: IpProtocol::UDP, idle: Duration::from_millis(1500) });
        back(IdleOf { protocol: IpProtocol(253), idle: Duration::from_secs(120) });
        back(Some(MeterKey(u64::MAX)));
        back(None::<Size>);
        back(Keep(Some(KeepFree::Some(Free::Percent(2.5)))));
        back(Keep(Some(KeepFree::None)));
        back(Keep(None));
    }
}
