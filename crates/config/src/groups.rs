//! The `[[group]]` sections of the configuration: groups that exist before the first packet. One table defines the keys
//! of a group, their values, the output of `--dump` and the text of `docs/reference/configuration.md`, as another table
//! does for the keys of all other sections.

use super::error::{ConfigError, Similar};
use super::raw_value::{RawValue, raw_value};
use super::value::{Setting, quoted};
use super::value_error::ValueError;
use base::units::parse_bytes;
use group::{FILE_BYTES_DEFAULT, PacketSink, Policy, WEIGHT_MAX};
use group_services::{GroupPlan, GroupProgramError, MemberPlan};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::DeValue;

/// The description of the `[[group]]` sections in configuration files and in the manual page.
pub const ABOUT: &str = "Groups distribute the captured packets among members (docs/reference/groups.md); each group \
    has one section. SIGHUP creates and deletes groups and swaps changed programs; the other groups continue.";

macro_rules! keys {
    ($($(#[doc = $meaning:literal])+ $key:ident: $type:ty = $default:expr;)+) => {
        /// One group.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Group {
            $($(#[doc = $meaning])+ pub $key: $type,)+
            /// The text of the group's program, taken from the key `program` or from the file of the key `file`.
            pub source: Option<String>,
        }

        impl Default for Group {
            fn default() -> Self {
                Self { $($key: $default,)+ source: None }
            }
        }

        /// Names, kinds and meanings of all keys.
        const KEYS: &[(&str, &str, &str)] =
            &[$((stringify!($key), <$type as Setting>::KIND, concat!($($meaning),+)),)+];

        impl Group {
            fn set(&mut self, key: &str, given: &RawValue) -> Option<Result<(), ValueError>> {
                $(if key == stringify!($key) {
                    return Some(<$type as Setting>::read(given).map(|value| self.$key = value));
                })+
                None
            }

            fn show(&self, key: &str) -> String {
                $(if key == stringify!($key) {
                    return self.$key.show();
                })+
                String::new()
            }
        }
    };
}

keys! {
    /// Name of the group: letters, digits, - _ and dots.
    name: String = String::new();
    /// Program of the group: copy, steer or drop with an optional filter, or a program of the packet language; if
    /// neither program nor file is given, every packet is copied.
    program: Option<String> = None;
    /// File with the program of the group; a relative path starts at the directory of the configuration.
    file: Option<PathBuf> = None;
    /// Users who may join and change the group: the engine's user (restricted), or any user who may use the socket
    /// (shared).
    policy: JoinPolicy = JoinPolicy(Policy::Restricted);
    /// Steer by the method of PFQ, for comparison: any change of members moves nearly all flows to other
    /// members.
    fold: bool = false;
    /// Interfaces whose packets the group gets; an empty list means all.
    interfaces: Vec<String> = Vec::new();
    /// Interfaces and files that are members, to which the engine sends or writes packets: `interface:NAME` or
    /// `file:PATH`, optionally followed by `,weight=N`, `,class=NAME` and, for files, `,max_size=SIZE`.
    members: Vec<Member> = Vec::new();
}

/// The join policy of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinPolicy(pub Policy);

impl Setting for JoinPolicy {
    const KIND: &'static str = "restricted or shared";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        match given {
            RawValue::Text(text) if text == "restricted" => Ok(Self(Policy::Restricted)),
            RawValue::Text(text) if text == "shared" => Ok(Self(Policy::Shared)),
            other => Err(ValueError::Type { given: other.clone(), expected: Self::KIND }),
        }
    }

    fn show(&self) -> String {
        quoted(self.0.name())
    }
}

/// A member that the engine itself serves: an interface through which it sends, or a file that it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member(pub MemberPlan);

impl Setting for Member {
    const KIND: &'static str = "interface:NAME or file:PATH";

    fn read(given: &RawValue) -> Result<Self, ValueError> {
        let RawValue::Text(text) = given else {
            return Err(ValueError::Type { given: given.clone(), expected: Self::KIND });
        };
        let mut parts = text.split(',').map(str::trim);
        let mut to = match parts.next().and_then(|first| first.split_once(':')) {
            Some(("interface", name)) if !name.is_empty() => PacketSink::Port(name.to_owned()),
            Some(("file", path)) if !path.is_empty() => {
                PacketSink::File { path: path.into(), max_bytes: FILE_BYTES_DEFAULT }
            }
            _ => return Err(ValueError::form(text, Self::KIND)),
        };
        let (mut classes, mut weight) = (Vec::new(), 1);
        for part in parts {
            match (part.split_once('='), &mut to) {
                (Some(("class", name)), _) => classes.push(name.to_owned()),
                (Some(("weight", n)), _) => {
                    let n = n.parse().ok().filter(|n| (1..=WEIGHT_MAX).contains(n));
                    weight = n.ok_or_else(|| ValueError::Weight(part.to_owned()))?;
                }
                (Some(("max_size", size)), PacketSink::File { max_bytes: most, .. }) => {
                    *most = parse_bytes(size)?;
                }
                _ => return Err(ValueError::form(part, "weight=N, class=NAME or, for a file, max_size=SIZE")),
            }
        }
        Ok(Self(MemberPlan { to, classes, weight }))
    }

    fn show(&self) -> String {
        let MemberPlan { to, classes, weight } = &self.0;
        let mut text = match to {
            PacketSink::Port(name) => format!("interface:{name}"),
            PacketSink::File { path, max_bytes: most } => format!("file:{},max_size={most}", path.display()),
        };
        classes.iter().for_each(|class| text += &format!(",class={class}"));
        if *weight != 1 {
            text += &format!(",weight={weight}");
        }
        quoted(&text)
    }
}

impl Group {
    /// Converts the section to the plan from which the engine creates the group.
    pub fn plan(&self) -> GroupPlan {
        GroupPlan {
            name: self.name.clone(),
            program: self.source.clone(),
            policy: self.policy.0,
            fold: self.fold,
            ports: (!self.interfaces.is_empty()).then(|| self.interfaces.clone()),
            members: self.members.iter().map(|m| m.0.clone()).collect(),
        }
    }

    /// Returns true if the group receives the packets of this interface.
    pub fn has(&self, port: &str) -> bool {
        self.interfaces.is_empty() || self.interfaces.iter().any(|p| p == port)
    }

    /// Returns this group as a reload of the section `new` changes it: with the values of `new`, but with the old
    /// values of the keys members, interfaces, policy and fold, because a running group cannot change these values.
    pub fn settled(&self, new: &Self) -> Self {
        let (interfaces, members) = (self.interfaces.clone(), self.members.clone());
        Self { policy: self.policy, fold: self.fold, interfaces, members, ..new.clone() }
    }

    /// Returns the keys whose values differ in `new` and take effect only at the next start of the process.
    pub fn waiting(&self, new: &Self) -> Vec<&'static str> {
        let differs = |key: &&str| self.show(key) != new.show(key);
        ["policy", "fold", "interfaces", "members"].into_iter().filter(differs).collect()
    }

    /// Reads one `[[group]]` section; relative paths in the section start at `directory`.
    fn read(table: &Spanned<DeValue<'_>>, directory: &Path, errors: &mut Vec<(usize, String)>) -> Self {
        let mut group = Self::default();
        let (mut at, start) = (table.span().start, table.span().start);
        let DeValue::Table(keys) = table.get_ref() else {
            errors.push((at, "group: write a line [[group]], and the keys of the group in the lines below".into()));
            return group;
        };
        for (key, value) in keys {
            let name = key.get_ref().as_ref();
            if ["program", "file"].contains(&name) {
                at = key.span().start;
            }
            match group.set(name, &raw_value(value)) {
                Some(Ok(())) => {}
                Some(Err(e)) => errors.push((key.span().start, format!("group.{name}: {e}"))),
                None => {
                    let known = KEYS.iter().map(|k| k.0);
                    errors.push((key.span().start, format!("no key {name} in a group{}", Similar::of(name, known))));
                }
            }
        }
        let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        if group.name.is_empty() || !group.name.chars().all(plain) {
            errors.push((start, "group.name: write a name of letters, digits, - _ and dots".into()));
        }
        if let Err(e) = group.settle(directory) {
            errors.push((at, e.to_string()));
        }
        group
    }

    /// Resolves relative paths, reads the text of the program and checks its syntax.
    fn settle(&mut self, directory: &Path) -> Result<(), GroupSourceError> {
        for member in &mut self.members {
            if let PacketSink::File { path, .. } = &mut member.0.to {
                *path = directory.join(&*path);
            }
        }
        self.source = match (&self.program, &mut self.file) {
            (Some(_), Some(_)) => return Err(GroupSourceError::Twice),
            (Some(program), None) => Some(program.clone()),
            (None, Some(file)) => {
                *file = directory.join(&*file);
                let text = std::fs::read_to_string(&*file);
                Some(text.map_err(|error| GroupSourceError::Unreadable { path: file.clone(), error })?)
            }
            (None, None) => None,
        };
        let checked = self.source.as_deref().map_or(Ok(()), group_services::check_group_program);
        checked.map_err(GroupSourceError::Invalid)
    }
}

/// The reason why a `[[group]]` section has no valid program.
#[derive(Debug)]
enum GroupSourceError {
    /// The section has both `program` and `file`.
    Twice,
    /// The file cannot be read.
    Unreadable { path: PathBuf, error: io::Error },
    /// The program is not valid.
    Invalid(GroupProgramError),
}

impl fmt::Display for GroupSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("group.program and group.file: write only one of them"),
            Self::Unreadable { path, error } => {
                write!(f, "group.file: {}: {}", path.display(), sys::advice::unreadable(error))
            }
            Self::Invalid(e) => write!(f, "group.program: {e}"),
        }
    }
}

impl std::error::Error for GroupSourceError {}

/// Reads all `[[group]]` sections.
pub fn read(
    value: &Spanned<DeValue<'_>>,
    directory: &Path,
    line: impl Fn(usize) -> usize,
) -> Result<Vec<Group>, Vec<ConfigError>> {
    let DeValue::Array(tables) = value.get_ref() else {
        let text = "group: write [[group]], in double brackets, because there may be several groups".into();
        return Err(vec![ConfigError { line: line(value.span().start), text }]);
    };
    let (mut errors, mut names) = (Vec::new(), BTreeSet::new());
    let mut groups = Vec::new();
    for table in tables {
        let group = Group::read(table, directory, &mut errors);
        if !names.insert(group.name.clone()) {
            errors.push((table.span().start, format!("group.name: there are two groups {:?}", group.name)));
        }
        groups.push(group);
    }
    let errors: Vec<ConfigError> = errors.into_iter().map(|(at, text)| ConfigError { line: line(at), text }).collect();
    if errors.is_empty() { Ok(groups) } else { Err(errors) }
}

/// All groups as TOML.
pub fn dump(groups: &[Group]) -> String {
    let mut out = format!("\n# Groups: {}\n", ABOUT);
    if groups.is_empty() {
        out += "# [[group]]\n";
        for (key, _, meaning) in KEYS {
            let _ = writeln!(out, "# {key} = {}   # {}", Group::default().show(key), meaning.trim());
        }
    }
    for group in groups {
        out += "[[group]]\n";
        for (key, ..) in KEYS {
            let _ = writeln!(out, "{key} = {}", group.show(key));
        }
    }
    out
}

/// Returns the section of `docs/reference/configuration.md` about groups.
pub fn manual() -> String {
    let mut out = format!("\n## [[group]] *\n\n{ABOUT}\n\n| key | default | kind | meaning |\n|---|---|---|---|\n");
    for (key, kind, meaning) in KEYS {
        let _ = writeln!(out, "| `{key}` | `{}` | {kind} | {} |", Group::default().show(key), meaning.trim());
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::{Config, dump, read::read};
    use testkit::TempDir;

    fn errors_of(text: &str) -> Vec<String> {
        read(text, "".as_ref(), &mut Config::default()).expect_err("an error").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dumped_groups_read_back_as_the_same_groups() {
        let text = "[[group]]\nname = \"web\"\nprogram = \"steer tcp port 443\"\npolicy = \"shared\"\n\
            members = [\"interface:eth2,weight=2\", \"file:/data/web.pcap,max_size=1MiB,class=user\"]\n\
            [[group]]\nname = \"all\"\ninterfaces = [\"eth1\"]\n";
        let mut config = Config::default();
        read(text, "".as_ref(), &mut config).expect("right");
        let [web, all] = &config.group[..] else { panic!("two groups: {:?}", config.group) };
        assert_eq!((web.source.as_deref(), web.members.len()), (Some("steer tcp port 443"), 2));
        assert!(web.has("eth7") && web.plan().members[0].weight == 2);
        assert!(!all.has("eth7") && all.has("eth1") && all.plan().program.is_none());
        let mut back = Config::default();
        read(&dump(&config), "".as_ref(), &mut back).expect("right");
        assert_eq!(back, config);
    }

    #[test]
    fn errors_of_a_group_are_reported_with_their_lines() {
        let found = errors_of(
            "[[group]]\nname = \"a\"\nprogarm = \"copy\"\n[[group]]\nname = \"a\"\nprogram = \"main = ipp\"\n\
             [[group]]\nname = \"b/c\"\nmembers = [\"prot:eth1\"]\npolicy = \"private\"\n",
        );
        assert_eq!(found[0], "line 3: no key progarm in a group; did you mean program?");
        assert!(found.iter().any(|s| s.starts_with("line 4: group.name: there are two groups \"a\"")), "{found:?}");
        assert!(found.iter().any(|s| s.starts_with("line 6: group.program: program, line 1, column 8")), "{found:?}");
        assert!(found.iter().any(|s| s.starts_with("line 7: group.name")), "{found:?}");
        assert!(found.iter().any(|s| s.contains("write interface:NAME or file:PATH")), "{found:?}");
        assert!(found.iter().any(|s| s.contains("restricted or shared")), "{found:?}");
        assert!(errors_of("[group]\nname = \"a\"\n")[0].contains("double brackets"));
    }

    #[test]
    fn a_program_may_be_in_a_file_beside_the_configuration() {
        let dir = TempDir::new("groups");
        std::fs::write(dir.join("web.ng"), "main = ip >-> steer_flow\n").expect("written");
        let config = dir.join("c.toml");
        std::fs::write(&config, "[[group]]\nname = \"web\"\nfile = \"web.ng\"\n").expect("written");
        let read = crate::load(&config).map_err(|_| ()).expect("right");
        assert_eq!(read.group[0].source.as_deref(), Some("main = ip >-> steer_flow\n"));
        std::fs::write(&config, "[[group]]\nname = \"web\"\nfile = \"wbe.ng\"\n").expect("written");
        assert!(crate::load(&config).is_err());
    }
}
