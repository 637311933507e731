//! `netgrain group`: distributes the packets of a running engine among the member programs of a group.

pub mod report;
pub mod show;

use crate::listen;
use crate::listen::ListenArgs;
use crate::outcome::{self, Failure, Outcome};
use crate::overwrite::OverwriteArgs;
use crate::signals;
use base::units;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use group::{Client, ClientError, Policy, Request, WEIGHT_MAX};
use report::ReportedGroup;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain group create -i eth1 web 'steer tcp port 443'
  netgrain group join -i eth1 web -w - | suricata -r /dev/stdin     (once for each worker)
  netgrain group stats -i eth1 web
  netgrain group create -i eth1,eth2 tap 'steer'         (both directions of a link, on two interfaces of one engine)
  netgrain group swap -i eth1 web 'copy udp port 53'
  netgrain group attach -i eth1 web --out-interface eth2 (and again with eth3: a load balancer)
  netgrain group attach -i eth1 web -w /data/web.pcap --max-size 10GB

A program is copy, steer or drop, optionally with a capture filter, or a program of the packet language. \
    docs/reference/groups.md describes classes, policies, counters and the protocol.")]
pub struct GroupArgs {
    #[command(subcommand)]
    verb: GroupVerb,
}

#[derive(Subcommand)]
enum GroupVerb {
    /// Create a group with a program and a join policy
    Create(CreateArgs),
    /// List the groups, one line each
    List(ControlArgs),
    /// Join a group as a member: print counts or lines, or write pcap to a file or pipe, until interrupted
    Join(Box<JoinArgs>),
    /// Print a group's program
    Program(NamedArgs),
    /// Replace the program of a running group
    Swap(SwapArgs),
    /// Print the packet counters of groups, classes and members
    Stats(StatsArgs),
    /// Change the weight of a member, which determines its share of the steered packets
    SetWeight(SetWeightArgs),
    /// Add an interface or a file as a member, to which the engine sends or writes the packets
    Attach(Box<AttachArgs>),
    /// Remove a member that was added with attach
    Detach(DetachArgs),
    /// Delete a group and end its members
    Delete(NamedArgs),
}

#[derive(Args)]
struct ControlArgs {
    /// Interface of the engine; repeat for a group that gets packets of several interfaces; `list` and `stats` print a
    /// report for each interface
    #[arg(short = 'i', long, value_name = "IFACE", value_delimiter = ',', required_unless_present = "socket")]
    interface: Vec<String>,
    /// Control socket of the engine [default: /run/netgrain/IFACE.groups]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON object per group
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct NamedArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Name of the group
    #[arg(value_name = "GROUP")]
    group: String,
}

#[derive(Args)]
struct StatsArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Name of the group [default: all groups]
    #[arg(value_name = "GROUP")]
    group: Option<String>,
}

#[derive(Args)]
struct SourceArgs {
    /// Program [default: copy to every member of the default class]
    #[arg(value_name = "PROGRAM", conflicts_with = "file")]
    program: Option<String>,
    /// Read the program from a file
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args)]
struct CreateArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// Users who may join and change the group
    #[arg(long, value_enum, default_value_t = PolicyArg::Restricted)]
    policy: PolicyArg,
    /// Only these queues of the interface [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = units::whole::<u16>(0..=65535))]
    queues: Option<Vec<u16>>,
    /// Steer by the method of PFQ, for comparison: any change of members moves nearly all flows to other
    /// members
    #[arg(long)]
    fold: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyArg {
    /// The user who creates the group, root, and the user of the engine
    Restricted,
    /// All users who may use the socket
    Shared,
}

#[derive(Args)]
struct SwapArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Args)]
struct SetWeightArgs {
    #[command(flatten)]
    named: NamedArgs,
    /// Slot of the member, as `group stats` prints it
    #[arg(value_name = "SLOT", value_parser = units::whole::<u8>(0..=255))]
    slot: u8,
    /// New weight of the member
    #[arg(value_name = "WEIGHT", value_parser = units::whole::<u8>(1..=u64::from(WEIGHT_MAX)))]
    weight: u8,
}

/// The flags that select the packets that a member gets.
#[derive(Args)]
struct MemberArgs {
    /// Classes of the member: default, user, control, or numbers
    #[arg(long = "class", value_name = "LIST", value_delimiter = ',')]
    classes: Vec<String>,
    /// Share of the steered packets, relative to the weights of the other members
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = units::whole::<u8>(1..=u64::from(WEIGHT_MAX)))]
    weight: u8,
    /// Only packets that match this capture filter
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

#[derive(Args)]
#[command(group(ArgGroup::new("where").required(true).args(["port", "write"])))]
struct AttachArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    part: MemberArgs,
    /// Send the packets out of this interface of the engine's host
    #[arg(long = "out-interface", value_name = "IFACE")]
    port: Option<String>,
    /// Write the packets as nanosecond pcap to this file on the engine's host; the file must not exist
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Maximum size of the file; later packets are counted as failed
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = units::parse_bytes, requires = "write")]
    max_size: u64,
}

#[derive(Args)]
struct DetachArgs {
    #[command(flatten)]
    named: NamedArgs,
    /// Slot of the member, as `group stats` prints it
    #[arg(value_name = "SLOT", value_parser = units::whole::<u8>(0..=255))]
    slot: u8,
}

#[derive(Args)]
struct JoinArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    part: MemberArgs,
    /// Capacity of the branch that the member has on each queue, in descriptors [default: 131072]
    #[arg(long, value_name = "N", value_parser = units::parse_count)]
    descs: Option<u64>,
    /// Write nanosecond pcap to a file, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "print")]
    write: Option<PathBuf>,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    /// Print one line per packet
    #[arg(long)]
    print: bool,
    /// Stop after this many packets
    #[arg(short = 'c', long, value_name = "N", value_parser = crate::values::count)]
    packets: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    duration: Option<Duration>,
    /// Name of this member in the reports and metrics of the engine
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
}

/// Runs the verb.
pub fn run(args: &GroupArgs) -> Result<Outcome, Failure> {
    match &args.verb {
        GroupVerb::Create(a) => {
            let policy = if a.policy == PolicyArg::Shared { Policy::Shared } else { Policy::Restricted };
            let request = Request::Create {
                group: a.named.group.clone(),
                program: a.source.text()?,
                policy,
                fold: a.fold,
                // The request has the key `ports` only for several interfaces, because older engines do not accept the
                // key.
                ports: (a.named.control.interface.len() > 1).then(|| a.named.control.interface.clone()),
                queues: a.queues.clone(),
                ephemeral: false,
            };
            let (response, _) = a.named.control.request(&request)?;
            if a.named.control.json {
                show::loaded(&a.named.group, &response)?;
            } else {
                show::print_notes(&response);
                sys::say!(
                    "netgrain: group {} created; join it with: netgrain group join {}",
                    a.named.group,
                    a.named.hint()
                );
            }
            Ok(Outcome::of(response.unresponsive.is_empty()))
        }
        GroupVerb::List(control) => {
            let groups = control.request_all(&Request::List)?;
            show::list(&groups, control.json)?;
            Ok(Outcome::of(!groups.is_empty()))
        }
        GroupVerb::Join(a) => join(a),
        GroupVerb::Program(a) => {
            let (response, _) = a.request(&Request::Program { group: a.group.clone() })?;
            let (program, generation) = (response.program, response.generation.unwrap_or_default());
            let mut out = std::io::stdout().lock();
            if a.control.json {
                let document = serde_json::json!({"group": a.group, "program": program, "generation": generation});
                writeln!(out, "{}", outcome::versioned(document))?;
            } else {
                writeln!(out, "{}", program.as_deref().unwrap_or("copy"))?;
            }
            Ok(Outcome::Yes)
        }
        GroupVerb::Swap(a) => {
            let (group, program) = (a.named.group.clone(), a.source.text()?);
            let (response, _) = a.named.request(&Request::Swap { group, program })?;
            let (generation, took) = (response.generation.unwrap_or_default(), response.took_us.unwrap_or_default());
            if a.named.control.json {
                show::loaded(&a.named.group, &response)?;
            } else {
                show::print_notes(&response);
                let others = if response.unresponsive.is_empty() { "" } else { " on the other queues" };
                sys::say!("netgrain: generation {generation} runs{others}; the swap took {:.1} ms", took as f64 / 1e3);
            }
            Ok(Outcome::of(response.unresponsive.is_empty()))
        }
        GroupVerb::Stats(a) => {
            let groups = a.control.request_all(&Request::Stats { group: a.group.clone() })?;
            show::stats(&groups, a.control.json)
        }
        GroupVerb::SetWeight(a) => {
            let group = a.named.group.clone();
            a.named.request(&Request::SetWeight { group, slot: a.slot, weight: a.weight })?;
            Ok(Outcome::Yes)
        }
        GroupVerb::Attach(a) => attach(a),
        GroupVerb::Detach(a) => {
            a.named.request(&Request::Detach { group: a.named.group.clone(), slot: a.slot })?;
            Ok(Outcome::Yes)
        }
        GroupVerb::Delete(a) => {
            a.request(&Request::Delete { group: a.group.clone() })?;
            Ok(Outcome::Yes)
        }
    }
}

fn attach(a: &AttachArgs) -> Result<Outcome, Failure> {
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(|e| Failure::say(format!("{}: {e}", path.display())));
    let request = Request::Attach {
        group: a.named.group.clone(),
        port: a.port.clone(),
        // Relative paths start at the working directory of the engine, so the path is made absolute here.
        file: a.write.as_ref().map(absolute).transpose()?,
        max_bytes: a.max_size,
        classes: a.part.classes.clone(),
        weight: a.part.weight,
        filter: a.part.filter.clone(),
    };
    let (response, _) = a.named.request(&request)?;
    let slot = response.slot.unwrap_or_default();
    if a.named.control.json {
        outcome::json(&serde_json::json!({"group": a.named.group, "slot": slot}))?;
    } else {
        sys::say!(
            "netgrain: slot {slot} of group {}; remove it with: netgrain group detach {} {slot}",
            a.named.group,
            a.named.hint()
        );
    }
    Ok(Outcome::Yes)
}

fn join(a: &JoinArgs) -> Result<Outcome, Failure> {
    let control = &a.named.control;
    let name = if a.name.is_empty() { default_name() } else { a.name.clone() };
    let request = Request::Join {
        group: a.named.group.clone(),
        classes: a.part.classes.clone(),
        weight: a.part.weight,
        filter: a.part.filter.clone(),
        descs: a.descs.unwrap_or(0),
        name: name.clone(),
    };
    let listen_args = ListenArgs {
        interface: None,
        socket: None,
        write: a.write.clone(),
        format: None,
        overwrite: a.overwrite,
        print: a.print,
        // The engine applies the filter of this member, so that non-matching packets take no space in its ring.
        filter: None,
        lossless: false,
        packets: a.packets,
        duration: a.duration,
        name,
        json: control.json,
    };
    // The file is opened and the signal handlers are installed before the member joins. So a member whose file cannot
    // be written does not join, and a signal does not end the process before it has read the packets of the member.
    let target = listen::Target::open(&listen_args, &control.path()?)?;
    let stop = signals::stop_or_hangup_flag();
    a.named.has_ports()?;
    let path = control.path()?;
    let session = connect(&path)?.join(&request).map_err(|e| failed(&e, &path))?;
    sys::say!("netgrain: slot {} of group {}, program generation {}", session.slot, a.named.group, session.generation);
    session.unresponsive.iter().for_each(|queue| sys::say!("netgrain: {queue}"));
    let leave_handle = session.leave_handle();
    listen::listen_to(&listen_args, session.listeners, target, &stop, listen::ListenTarget::Group, &|| {
        leave_handle.leave().is_ok()
    })
}

/// The default name of a member: the verb and its process ID.
fn default_name() -> String {
    format!("group join ({})", std::process::id())
}

impl ControlArgs {
    /// The path of the control socket; if several interfaces are given, that of the first interface.
    fn path(&self) -> Result<PathBuf, Failure> {
        self.paths().next().ok_or_else(|| Failure::Said("name an interface with -i, or a socket with --socket".into()))
    }

    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let of = |interface: &String| group_services::groups_socket(&engine::default_socket(interface));
        let interfaces = if self.socket.is_some() { &[][..] } else { &self.interface };
        self.socket.iter().cloned().chain(interfaces.iter().map(of))
    }

    fn request(&self, body: &Request) -> Result<(group::Response, Vec<Value>), Failure> {
        request(&self.path()?, body)
    }

    /// The groups that all control sockets report. A group with packets of several interfaces is reported by several
    /// sockets and appears once in the result. A socket without response is an error, because a partial list could be
    /// mistaken for the complete list.
    fn request_all(&self, request: &Request) -> Result<Vec<ReportedGroup>, Failure> {
        let mut all: Vec<ReportedGroup> = Vec::new();
        let several = self.paths().count() > 1;
        for path in self.paths() {
            let reported = Client::connect(&path).and_then(|client| client.request(request));
            let reported = reported.map_err(|e| match e {
                ClientError::Refused(why) if several => Failure::Said(format!("{}: {why}", path.display())),
                e => failed(&e, &path),
            });
            for group in ReportedGroup::read_all(reported?.1)? {
                if !all.iter().any(|known| known.is_same(&group)) {
                    all.push(group);
                }
            }
        }
        Ok(all)
    }
}

fn connect(path: &Path) -> Result<Client, Failure> {
    Client::connect(path).map_err(|e| failed(&e, path))
}

fn request(path: &Path, request: &Request) -> Result<(group::Response, Vec<Value>), Failure> {
    connect(path)?.request(request).map_err(|e| failed(&e, path))
}

fn failed(e: &ClientError, path: &Path) -> Failure {
    let path = path.display();
    match e {
        ClientError::Unreachable(_) => {
            Failure::Said(format!("{path}: {e}; is `netgrain run` or `netgrain record` running on that interface?"))
        }
        ClientError::NoResponse(_) => Failure::Said(format!("{path}: {e}")),
        _ => Failure::say(e),
    }
}

impl NamedArgs {
    /// Sends a request about an existing group.
    fn request(&self, body: &Request) -> Result<(group::Response, Vec<Value>), Failure> {
        self.has_ports()?;
        self.control.request(body)
    }

    /// Checks that the packets of the group come from all named interfaces, if there are several.
    fn has_ports(&self) -> Result<(), Failure> {
        let named = &self.control.interface;
        if named.len() < 2 || self.control.socket.is_some() {
            return Ok(());
        }
        let (_, groups) = self.control.request(&Request::Stats { group: Some(self.group.clone()) })?;
        let groups = ReportedGroup::read_all(groups)?;
        let sources: Vec<&str> = groups.iter().flat_map(|g| &g.report.sources).map(String::as_str).collect();
        match named.iter().find(|name| !sources.contains(&name.as_str())) {
            None => Ok(()),
            Some(unknown) => Err(Failure::Said(format!(
                "the packets of group {} come from {}, not from {unknown}; name only these interfaces",
                self.group,
                sources.join(", ")
            ))),
        }
    }

    /// The arguments that name this group, for an example command.
    fn hint(&self) -> String {
        let control = match (self.control.interface.first(), &self.control.socket) {
            (_, Some(path)) => format!("--socket {}", path.display()),
            (Some(interface), None) => format!("-i {interface}"),
            (None, None) => String::new(),
        };
        format!("{control} {}", self.group)
    }
}

impl SourceArgs {
    fn text(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.file else { return Ok(self.program.clone()) };
        let text = std::fs::read_to_string(path);
        text.map(Some).map_err(|e| Failure::unreadable(path, &e))
    }
}
