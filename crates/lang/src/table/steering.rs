//! Steering: functions that choose the member for a packet.

use super::actions::row;
use super::{Arguments, EvaluationError, Function};
use crate::eval::Value;
use crate::term::{ActionTerm, Steering};
use ir::Effect;
use ir::Prefix;

const PLAIN: &[Effect] = &[Effect::Fanout];
const DROPS: &[Effect] = &[Effect::Drop, Effect::Fanout];
const FLOWS: &[Effect] = &[Effect::Drop, Effect::Fanout, Effect::Tunnel, Effect::Datagram];
const CASTS: &[Effect] = &[Effect::Drop, Effect::Fanout, Effect::Classes];
const ALL: &[Effect] = &[Effect::Drop, Effect::Fanout, Effect::Classes, Effect::Tunnel, Effect::Datagram];
const WORKER: &[Effect] = &[Effect::Fanout, Effect::Local];

fn steering<'a>(s: Steering) -> Result<Value<'a>, EvaluationError> {
    Ok(Value::Act(ActionTerm::Steer(s)))
}

/// A number of bytes, 1 to `most`.
pub fn size(g: &Arguments<'_, '_>, i: usize, most: u64) -> Result<u8, EvaluationError> {
    match g.number(i, most) {
        Ok(n @ 1..) => Ok(n as u8),
        _ => Err(EvaluationError::Bytes(most)),
    }
}

fn offset(g: &Arguments<'_, '_>, i: usize) -> Result<u32, EvaluationError> {
    Ok(g.number(i, 65_000)? as u32)
}

fn local<'a>(net: Prefix, bits: u64, counted: u64) -> Result<Value<'a>, EvaluationError> {
    let wrong = |bits| EvaluationError::PrefixLength { address: net.address(), bits };
    let most = if net.is_v4() { 32 } else { 128 };
    let net = Prefix::new(net.address(), u8::try_from(bits).map_err(|_| wrong(bits))?).ok_or_else(|| wrong(bits))?;
    if counted > most { Err(wrong(counted)) } else { steering(Steering::Local(net, counted as u8)) }
}

pub const STEERING: &[Function] = &[
    row!("steer_rrobin", "Act", WORKER, "To the members in turn; each worker counts for itself.", |_| steering(
        Steering::RoundRobin
    )),
    row!("steer_rss", "Act", WORKER, "By the hash of the NIC.", |_| steering(Steering::Rss)),
    row!("steer_rx_queue", "Act", PLAIN, "To the member with the number of the queue.", |_| steering(Steering::Queue)),
    row!(
        "steer_to",
        "Int -> Act",
        PLAIN,
        "To the member in this member slot, counted from 0, modulo the number of members; a new member gets the lowest free slot.",
        |g| steering(Steering::To(g.number(0, u32::MAX.into())? as u32))
    ),
    row!(
        "steer_link"["steer_mac"],
        "Act",
        CASTS,
        "By both link addresses; a frame from or to the broadcast address goes to all members. Drops frames that are not Ethernet.",
        |_| steering(Steering::Link)
    ),
    row!(
        "steer_local_link",
        "Text -> Act",
        CASTS,
        "By the link address that is not that of the gateway; to the members of both link addresses if neither is; broadcast frames as for `steer_link`.",
        |g| {
            let text = g.text(0)?;
            let mac = filter::mac(&text).ok_or(EvaluationError::LinkAddress(text))?;
            steering(Steering::LocalLink(mac))
        }
    ),
    row!(
        "double_steer_mac",
        "Act",
        CASTS,
        "To the members of both link addresses; broadcast frames as for `steer_link`.",
        |_| steering(Steering::DoubleMac)
    ),
    row!("steer_vlan", "Act", DROPS, "By the VLAN id; drops frames without a tag.", |_| steering(Steering::Vlan)),
    row!("steer_p2p" ["steer_ip", "steer_ip6"], "Act", ALL, "By both addresses, the same in both directions; packets with the address 255.255.255.255 go to all members; drops packets that are not IP.", |_| steering(Steering::Pair)),
    row!("double_steer_ip", "Act", FLOWS, "To the members of both addresses; drops packets that are not IP.", |_| {
        steering(Steering::DoubleIp)
    }),
    row!(
        "steer_local_ip",
        "Net -> Act",
        FLOWS,
        "By the address in this network; to the members of both addresses if both are; drops packets without such an address.",
        |g| {
            let net = g.net(0)?;
            local(net, net.bits().into(), if net.is_v4() { 32 } else { 128 })
        }
    ),
    row!(
        "steer_flow",
        "Act",
        FLOWS,
        "By addresses, ports and protocol, the same in both directions; of the innermost packet; later fragments as their first fragment; drops packets that are not IP. Uses the hash of the descriptor if the packet is complete and in no tunnel.",
        |_| steering(Steering::Flow)
    ),
    row!(
        "steer_local_net"["steer_net"],
        "Net -> Int -> Int -> Act",
        FLOWS,
        "As `steer_local_ip`, with the prefix length of the network and the number of address bits in the hash: `steer_local_net \"131.114.0.0\" 16 24`.",
        |g| local(g.net(0)?, g.number(1, 128)?, g.number(2, 128)?)
    ),
    row!(
        "steer_field",
        "Int -> Int -> Act",
        DROPS,
        "By bytes of the frame: offset from its start, and number of bytes (1 to 4); drops shorter frames.",
        |g| steering(Steering::Bytes(offset(g, 0)?, size(g, 1, 4)?))
    ),
    row!(
        "steer_field_symmetric",
        "Int -> Int -> Int -> Act",
        DROPS,
        "By bytes at two offsets, the same in either order.",
        |g| steering(Steering::SymmetricBytes(offset(g, 0)?, offset(g, 1)?, size(g, 2, 4)?))
    ),
    row!(
        "double_steer_field",
        "Int -> Int -> Int -> Act",
        DROPS,
        "To the two members of the bytes at two offsets.",
        |g| { steering(Steering::DoubleBytes(offset(g, 0)?, offset(g, 1)?, size(g, 2, 4)?)) }
    ),
    row!(
        "steer_key",
        "Key -> Act",
        FLOWS,
        "By a key, the same in both directions; drops packets without a field of the key.",
        |g| {
            let key = g.key(0)?;
            if key.is_empty() { Err(EvaluationError::EmptyKey) } else { steering(Steering::Key(key)) }
        }
    ),
    row!(
        "steer_common",
        "Act",
        FLOWS,
        "By the fields that the keys of all flow maps of the program have in common, the same in both directions, so that no two members see a flow of one map (except later fragments of tunnels, whose keys are those of the outer packet). Drops packets without a field of the key.",
        |_| steering(Steering::Common)
    ),
    row!(
        "steer_rtp",
        "Act",
        FLOWS,
        "RTP together with its RTCP; drops all other packets. Later fragments follow their first fragment, and are dropped if it is unknown.",
        |_| steering(Steering::Rtp(false))
    ),
    row!("steer_voip", "Act", ALL, "SIP to all members; other packets as `steer_rtp`.", |_| steering(Steering::Rtp(
        true
    ))),
    row!(
        "steer_gtp_usr"["gtp_steer"],
        "Net -> Int -> Act",
        ALL,
        "By the address of the subscriber inside GTP, in the network of the subscribers with this prefix length; the control plane to all members; drops all other packets. Later fragments as for `steer_rtp`.",
        |g| {
            let bits = g.number(1, 128)? as u8;
            let net = g.net(0)?;
            let net = Prefix::new(net.address(), bits)
                .ok_or(EvaluationError::PrefixLength { address: net.address(), bits: bits.into() })?;
            steering(Steering::GtpUser(net))
        }
    ),
];
