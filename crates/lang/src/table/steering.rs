//! Defines the steering functions of the language, which select the member that receives a packet.

use super::row::row;
use super::value::Value;
use super::{Arguments, EvaluationError, Function};
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
    row!(
        "steer_rrobin",
        "Act",
        WORKER,
        "Delivers packets to the members in turn (round robin); each worker has its own count.",
        |_| steering(Steering::RoundRobin)
    ),
    row!("steer_rss", "Act", WORKER, "Steers by the hash of the NIC.", |_| steering(Steering::Rss)),
    row!(
        "steer_rx_queue",
        "Act",
        PLAIN,
        "Delivers to the member whose slot has the number of the receive queue.",
        |_| steering(Steering::Queue)
    ),
    row!(
        "steer_to",
        "Int -> Act",
        PLAIN,
        "Delivers to the member in this member slot, counted from 0, modulo the number of members; a new member gets \
         the lowest free slot.",
        |g| steering(Steering::To(g.number(0, u32::MAX.into())? as u32))
    ),
    row!(
        "steer_link"["steer_mac"],
        "Act",
        CASTS,
        "Steers by both link addresses; delivers a frame from or to the broadcast address to all members. Drops \
         frames that are not Ethernet.",
        |_| steering(Steering::Link)
    ),
    row!(
        "steer_local_link",
        "Text -> Act",
        CASTS,
        "Steers by the link address that is not the given address of the gateway. If neither address is that of the \
         gateway, delivers to the members of both addresses. Delivers broadcast frames to all members.",
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
        "Delivers to two members: one is chosen by the source link address, the other by the destination link \
         address. Delivers broadcast frames to all members.",
        |_| steering(Steering::DoubleMac)
    ),
    row!("steer_vlan", "Act", DROPS, "Steers by the VLAN id; drops frames without a tag.", |_| steering(
        Steering::Vlan
    )),
    row!("steer_p2p" ["steer_ip", "steer_ip6"], "Act", ALL, "Steers by both addresses, equally in both directions; \
     delivers packets with the address 255.255.255.255 to all members; drops packets that are not \
     IP.", |_| steering(Steering::Pair)),
    row!(
        "double_steer_ip",
        "Act",
        FLOWS,
        "Delivers to two members: one is chosen by the source address, the other by the destination address; drops \
         packets that are not IP.",
        |_| { steering(Steering::DoubleIp) }
    ),
    row!(
        "steer_local_ip",
        "Net -> Act",
        FLOWS,
        "Steers by the address that is in this network. If both addresses are in the network, delivers to the members \
         of both. Drops packets without an address in the network.",
        |g| {
            let net = g.net(0)?;
            local(net, net.bits().into(), if net.is_v4() { 32 } else { 128 })
        }
    ),
    row!(
        "steer_flow",
        "Act",
        FLOWS,
        "Steers by addresses, ports and protocol of the innermost packet, equally in both directions. Later fragments \
         go to the member of their first fragment. Drops packets that are not IP. Uses the hash of the descriptor if \
         the packet is complete and in no tunnel.",
        |_| steering(Steering::Flow)
    ),
    row!(
        "steer_local_net"["steer_net"],
        "Net -> Int -> Int -> Act",
        FLOWS,
        "Steers like `steer_local_ip`; the arguments are the network, its prefix length, and the number of address \
         bits in the hash: `steer_local_net \"131.114.0.0\" 16 24`.",
        |g| local(g.net(0)?, g.number(1, 128)?, g.number(2, 128)?)
    ),
    row!(
        "steer_field",
        "Int -> Int -> Act",
        DROPS,
        "Steers by bytes of the frame. The numbers are the offset from the begin of the frame and the number of bytes \
         (1 to 4). Drops shorter frames.",
        |g| steering(Steering::Bytes(offset(g, 0)?, size(g, 1, 4)?))
    ),
    row!(
        "steer_field_symmetric",
        "Int -> Int -> Int -> Act",
        DROPS,
        "Steers by the bytes at two offsets; exchanged values give the same member.",
        |g| steering(Steering::SymmetricBytes(offset(g, 0)?, offset(g, 1)?, size(g, 2, 4)?))
    ),
    row!(
        "double_steer_field",
        "Int -> Int -> Int -> Act",
        DROPS,
        "Delivers to two members: one is chosen by the bytes at the first offset, the other by those at the second \
         offset.",
        |g| { steering(Steering::DoubleBytes(offset(g, 0)?, offset(g, 1)?, size(g, 2, 4)?)) }
    ),
    row!(
        "steer_key",
        "Key -> Act",
        FLOWS,
        "Steers by a key, equally in both directions; drops packets that lack a field of the key.",
        |g| {
            let key = g.key(0)?;
            if key.is_empty() { Err(EvaluationError::EmptyKey) } else { steering(Steering::Key(key)) }
        }
    ),
    row!(
        "steer_common",
        "Act",
        FLOWS,
        "Steers by the fields that the keys of all flow maps of the program have in common, equally in both \
         directions, so that all packets of an entry of a map go to one member (except later fragments of tunnels, \
         whose keys are those of the outer packet). Drops packets that lack a field of the key.",
        |_| steering(Steering::Common)
    ),
    row!(
        "steer_rtp",
        "Act",
        FLOWS,
        "Steers RTP and its RTCP to the same member; drops all other packets. Later fragments go to the member of \
         their first fragment, and are dropped if the first fragment is unknown.",
        |_| steering(Steering::Rtp(false))
    ),
    row!(
        "steer_voip",
        "Act",
        ALL,
        "Delivers SIP to all members; treats other packets like `steer_rtp`.",
        |_| steering(Steering::Rtp(true))
    ),
    row!(
        "steer_gtp_usr"["gtp_steer"],
        "Net -> Int -> Act",
        ALL,
        "Steers GTP user packets by the address of the subscriber inside the tunnel, which is in the given network \
         with the given prefix length. Delivers the control plane to all members, and drops all other packets. Treats \
         later fragments like `steer_rtp`.",
        |g| {
            let bits = g.number(1, 128)? as u8;
            let net = g.net(0)?;
            let net = Prefix::new(net.address(), bits)
                .ok_or(EvaluationError::PrefixLength { address: net.address(), bits: bits.into() })?;
            steering(Steering::GtpUser(net))
        }
    ),
];
