//! Defines the functions of the language for flow maps and for the keys of flow maps.

use super::row::row;
use super::value::{MILLION, Value};
use super::{Arguments, EvaluationError, Function};
use crate::term::{ActionTerm, FlowMap, Pred, Prop};
use ir::key::{Field, Key};
use ir::{Effect, Expiry, MAX_CAPACITY};
use std::sync::Arc;

/// Default capacity of a map, in entries. The flow tracker of Enif has about the same capacity.
const CAPACITY: u32 = 1 << 20;
/// Prefix of the name of a map without a binding.
pub const UNNAMED: &str = "flow_map ";
/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

const NONE: &[Effect] = &[];
const READ: &[Effect] = &[Effect::MapRead, Effect::MapWrite, Effect::Tunnel, Effect::Datagram];
const WRITE: &[Effect] = &[Effect::MapRead, Effect::MapWrite, Effect::Tunnel, Effect::Datagram];

fn add<'a>(g: &Arguments<'_, 'a>, by: u64) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Act(ActionTerm::Add(g.map(0)?, by)))
}

/// At least one millisecond, because an entry with a lifetime of zero would never be present.
fn milliseconds(g: &Arguments<'_, '_>) -> Result<u64, EvaluationError> {
    match g.number(0, 1 << 40)? {
        0 => Err(EvaluationError::Lifetime),
        ms => Ok(ms),
    }
}

/// Returns a changed copy of the map. The copy has no name until a binding gives it a name.
fn changed<'a>(map: &Arc<FlowMap>, change: impl FnOnce(&mut FlowMap)) -> Result<Value<'a>, EvaluationError> {
    let mut map = (**map).clone();
    if !map.name.starts_with(UNNAMED) {
        map.name.insert_str(0, UNNAMED);
    }
    change(&mut map);
    Ok(Value::Map(Arc::new(map)))
}

pub const FLOWS: &[Function] = &[
    row!(
        "flow_map",
        "Int -> Key -> Map",
        NONE,
        "A flow map: a table with a number for each flow; the key defines the flow. The name of the map is that of \
         its binding; without a binding, it contains the given number. Default: 1,048,576 flows without expiry.",
        |g| {
            let (n, key) = (g.number(0, 63)?, g.key(1)?);
            if key.is_empty() {
                return Err(EvaluationError::EmptyKey);
            }
            let name = format!("{UNNAMED}{n}");
            Ok(Value::Map(Arc::new(FlowMap { name, key, capacity: CAPACITY, expiry: Expiry::Never })))
        }
    ),
    row!(
        "up_to",
        "Int -> Map -> Map",
        NONE,
        "Limits the map to this number of flows; a full map refuses new flows and counts them.",
        |g| {
            let Ok(n @ 1..) = g.number(0, MAX_CAPACITY.into()) else {
                return Err(EvaluationError::Capacity);
            };
            changed(&g.map(1)?, |m| m.capacity = n as u32)
        }
    ),
    row!(
        "idle_after",
        "Int -> Map -> Map",
        NONE,
        "Removes a flow from the map after this number of milliseconds without a packet.",
        |g| {
            let ms = milliseconds(g)?;
            changed(&g.map(1)?, |m| m.expiry = Expiry::Idle(ms * MS))
        }
    ),
    row!(
        "for_ms",
        "Int -> Map -> Map",
        NONE,
        "Removes a flow from the map this number of milliseconds after its first packet, so that the number that the \
         map stores for the flow covers only an interval of this length.",
        |g| {
            let ms = milliseconds(g)?;
            changed(&g.map(1)?, |m| m.expiry = Expiry::Lifetime(ms * MS))
        }
    ),
    row!(
        "get_fstate",
        "Map -> Prop",
        READ,
        "The number that the map stores for the flow; 0 for a flow without an entry. Used as a predicate, it holds if \
         the number is not 0.",
        |g| Ok(Value::Prop(Prop::Flow(g.map(0)?)))
    ),
    row!("has_fstate", "Map -> Pred", READ, "The flow has an entry in the map.", |g| Ok(Value::Pred(Pred::Known(
        g.map(0)?
    )))),
    row!("set_fstate", "Map -> Int -> Act", WRITE, "Stores this number for the flow in the map.", |g| Ok(Value::Act(
        ActionTerm::Put(g.map(0)?, g.number(1, i64::MAX as u64)?)
    ))),
    row!("incr_fstate", "Map -> Act", WRITE, "Adds one to the number that the map stores for the flow.", |g| add(g, 1)),
    row!("decr_fstate", "Map -> Act", WRITE, "Subtracts one from the number that the map stores for the flow.", |g| {
        add(g, u64::MAX)
    }),
    row!(
        "add_fstate",
        "Map -> Int -> Act",
        WRITE,
        "Adds this number to the number that the map stores for the flow.",
        |g| add(g, g.number(1, i64::MAX as u64)?)
    ),
    row!(
        "modify_fstate",
        "Map -> Change -> Act",
        WRITE,
        "Changes the number that the map stores for the flow: `modify_fstate m (+1)`.",
        |g| add(g, g.change(1)? as u64)
    ),
    row!("clear_fstate", "Map -> Act", WRITE, "Removes the entry of the flow from the map.", |g| Ok(Value::Act(
        ActionTerm::Forget(g.map(0)?)
    ))),
];

fn key<'a>(fields: &[Field]) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Key(Key::of(fields)))
}

pub const KEYS: &[Function] = &[
    row!("key_5tuple"["TUPLE_5"], "Key", NONE, "Addresses, ports and protocol.", |_| Ok(Value::Key(Key::FIVE_TUPLE))),
    row!("key_3tuple"["TUPLE_3"], "Key", NONE, "Addresses and protocol.", |_| Ok(Value::Key(Key::THREE_TUPLE))),
    row!("key_eth_type"["ETH_TYPE"], "Key", NONE, "The ethertype.", |_| key(&[Field::EthType])),
    row!("key_eth_src"["ETH_SRC"], "Key", NONE, "The source link address.", |_| key(&[Field::EthSrc])),
    row!("key_eth_dst"["ETH_DST"], "Key", NONE, "The destination link address.", |_| key(&[Field::EthDst])),
    row!("key_vlan"["VLAN_ID"], "Key", NONE, "The VLAN id; 0 without a tag.", |_| key(&[Field::Vlan])),
    row!("key_ip_src"["IP_SRC"], "Key", NONE, "The source address.", |_| key(&[Field::IpSrc])),
    row!("key_ip_dst"["IP_DST"], "Key", NONE, "The destination address.", |_| key(&[Field::IpDst])),
    row!("key_ip_proto" ["IP_PROTO", "PROTOCOL"], "Key", NONE, "The protocol above IP.", |_| key(&[Field::IpProto])),
    row!("key_ip_ecn"["IP_ECN"], "Key", NONE, "The ECN bits.", |_| key(&[Field::IpEcn])),
    row!("key_ip_dscp"["IP_DSCP"], "Key", NONE, "The DSCP.", |_| key(&[Field::IpDscp])),
    row!("key_src_port"["SRC_PORT"], "Key", NONE, "The source port; 0 if the packet has none.", |_| key(&[
        Field::SrcPort
    ])),
    row!("key_dst_port"["DST_PORT"], "Key", NONE, "The destination port; 0 if the packet has none.", |_| key(&[
        Field::DstPort
    ])),
    row!("key_icmp_type"["ICMP_TYPE"], "Key", NONE, "The type of an ICMP message; 0 for other protocols.", |_| key(&[
        Field::IcmpType
    ])),
    row!("key_icmp_code"["ICMP_CODE"], "Key", NONE, "The code of an ICMP message; 0 for other protocols.", |_| key(&[
        Field::IcmpCode
    ])),
    row!("key_with", "Key -> Key -> Key", NONE, "A key with the fields of both keys; written `<>`.", |g| Ok(
        Value::Key(g.key(0)?.with(g.key(1)?))
    )),
    row!(
        "both_ways"["symmetric"],
        "Key -> Key",
        NONE,
        "A key with the fields of this key, but with the same value in both directions of a flow.",
        |g| Ok(Value::Key(g.key(0)?.both_ways()))
    ),
];

/// Number of hash functions of the Bloom filters whose sizes the three functions below compute.
const HASHES: f64 = 4.0;

fn whole<'a>(x: f64) -> Result<Value<'a>, EvaluationError> {
    if x.is_finite() && (0.0..9e15).contains(&x) { Ok(Value::Int(x as i64)) } else { Err(EvaluationError::BloomSize) }
}

pub const BLOOM: &[Function] = &[
    row!(
        "CIDR"["IPv4"],
        "Net -> Net",
        NONE,
        "The address or network itself, for programs written for PFQ: `CIDR (\"10.0.0.0\", 8)`.",
        |g| Ok(Value::Net(g.net(0)?))
    ),
    row!(
        "bloomCalcM",
        "Int -> Chance -> Int",
        NONE,
        "Number of bits of a Bloom filter for this number of hosts at this probability of a false positive: `0.001`, \
         or a whole number of millionths. Sets are exact in this language; the functions `bloomCalc…` exist for \
         programs that compute with the sizes.",
        |g| {
            let (n, p) = (g.number(0, 1 << 40)? as f64, g.chance(1)?);
            whole((-HASHES * n / (1.0 - p.powf(1.0 / HASHES)).ln()).ceil())
        }
    ),
    row!(
        "bloomCalcN",
        "Int -> Chance -> Int",
        NONE,
        "Number of hosts that a Bloom filter of this many bits can store at this probability of a false positive.",
        |g| {
            let (m, p) = (g.number(0, 1 << 40)? as f64, g.chance(1)?);
            whole((-m * (1.0 - p.powf(1.0 / HASHES)).ln() / HASHES).ceil())
        }
    ),
    row!(
        "bloomCalcP",
        "Int -> Int -> Int",
        NONE,
        "Probability of a false positive, in millionths, of a Bloom filter with this number of hosts and this number \
         of bits.",
        |g| {
            let (n, m) = (g.number(0, 1 << 40)? as f64, g.number(1, 1 << 40)? as f64);
            whole(((1.0 - (1.0 - 1.0 / m).powf(HASHES * n)).powf(HASHES) * MILLION).round())
        }
    ),
];
