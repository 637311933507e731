//! Steering: functions that choose the member for a packet.

use super::actions::row;
use super::{Arguments, Function};
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

fn steering<'a>(s: Steering) -> Result<Value<'a>, String> {
    Ok(Value::Act(ActionTerm::Steer(s)))
}

/// A number of bytes, 1 to `most`.
pub fn size(g: &Arguments<'_, '_>, i: usize, most: u64) -> Result<u8, String> {
    match g.number(i, most) {
        Ok(n @ 1..) => Ok(n as u8),
        _ => Err(format!("1 to {most} bytes are possible")),
    }
}

fn offset(g: &Arguments<'_, '_>, i: usize) -> Result<u32, String> {
    Ok(g.number(i, 65_000)? as u32)
}

fn local<'a>(net: Prefix, bits: u64, counted: u64) -> Result<Value<'a>, String> {
    let wrong = |bits: u64| format!("{} has no {bits} bits", net.address());
    let most = if net.is_v4() { 32 } else { 128 };
    let net = Prefix::new(net.address(), u8::try_from(bits).map_err(|_| wrong(bits))?).ok_or_else(|| wrong(bits))?;
    if counted > most { Err(wrong(counted)) } else { steering(Steering::Local(net, counted as u8)) }
}

pub const STEERING: &[Function] = &[
    row!("steer_rrobin", "Act", WORKER, "To each member in turn, as each worker counts.", |_| steering(
        Steering::RoundRobin
    )),
    row!("steer_rss", "Act", WORKER, "By the hash that the card gave.", |_| steering(Steering::Rss)),
    row!("steer_rx_queue", "Act", PLAIN, "The member with the number of the queue.", |_| steering(Steering::Queue)),
    row!(
        "steer_to",
        "Int -> Act",
        PLAIN,
        "The member with this number, counted from 0 in the order of places, modulo how many there are; who joins takes the lowest free place.",
        |g| steering(Steering::To(g.number(0, u32::MAX.into())? as u32))
    ),
    row!(
        "steer_link"["steer_mac"],
        "Act",
        CASTS,
        "By both link addresses; broadcast of what is from or to everybody. Drops what is not Ethernet.",
        |_| steering(Steering::Link)
    ),
    row!(
        "steer_local_link",
        "Text -> Act",
        CASTS,
        "By the link address that is not the gateway's; to both ends' members where neither is; broadcast as before.",
        |g| {
            let text = g.text(0)?;
            let mac = filter::mac(&text)
                .ok_or_else(|| format!("{text:?} is no link address; write \"00:1b:21:0a:0b:0c\""))?;
            steering(Steering::LocalLink(mac))
        }
    ),
    row!(
        "double_steer_mac",
        "Act",
        CASTS,
        "To the members of both link addresses; broadcast as before.",
        |_| steering(Steering::DoubleMac)
    ),
    row!("steer_vlan", "Act", DROPS, "By the VLAN id; drops what has no tag.", |_| steering(Steering::Vlan)),
    row!("steer_p2p" ["steer_ip", "steer_ip6"], "Act", ALL, "By both addresses, the same in both directions; broadcast of 255.255.255.255; drops what is not IP.", |_| steering(Steering::Pair)),
    row!("double_steer_ip", "Act", FLOWS, "To the members of both addresses; drops what is not IP.", |_| steering(
        Steering::DoubleIp
    )),
    row!(
        "steer_local_ip",
        "Net -> Act",
        FLOWS,
        "By the address in this network; to both where both are; drops where none is.",
        |g| {
            let net = g.net(0)?;
            local(net, net.bits().into(), if net.is_v4() { 32 } else { 128 })
        }
    ),
    row!(
        "steer_flow",
        "Act",
        FLOWS,
        "By addresses, ports and protocol, the same in both directions; through tunnels; later fragments as their first; drops what is not IP. The hash is that of the packet's descriptor where the packet is whole and in no tunnel.",
        |_| steering(Steering::Flow)
    ),
    row!(
        "steer_local_net"["steer_net"],
        "Net -> Int -> Int -> Act",
        FLOWS,
        "As `steer_local_ip`, with the network's length and how many bits of the address count: `steer_local_net \"131.114.0.0\" 16 24`.",
        |g| local(g.net(0)?, g.number(1, 128)?, g.number(2, 128)?)
    ),
    row!(
        "steer_field",
        "Int -> Int -> Act",
        DROPS,
        "By bytes of the frame: offset from its start, and how many (1 to 4); drops what is shorter.",
        |g| steering(Steering::Bytes(offset(g, 0)?, size(g, 1, 4)?))
    ),
    row!(
        "steer_field_symmetric",
        "Int -> Int -> Int -> Act",
        DROPS,
        "By bytes at two offsets, in either order.",
        |g| steering(Steering::SymmetricBytes(offset(g, 0)?, offset(g, 1)?, size(g, 2, 4)?))
    ),
    row!(
        "double_steer_field",
        "Int -> Int -> Int -> Act",
        DROPS,
        "To the members of the bytes at each of two offsets.",
        |g| { steering(Steering::DoubleBytes(offset(g, 0)?, offset(g, 1)?, size(g, 2, 4)?)) }
    ),
    row!(
        "steer_key",
        "Key -> Act",
        FLOWS,
        "By a key, the same in both directions; drops what lacks a field of it.",
        |g| {
            let key = g.key(0)?;
            if key.is_empty() { Err("the key is empty".into()) } else { steering(Steering::Key(key)) }
        }
    ),
    row!(
        "steer_common",
        "Act",
        FLOWS,
        "By what the keys of all flow maps of the program have in common, the same in both directions: no two members see a flow of one map (but for later fragments of tunnels, whose keys are of the ends of the tunnel). Drops what lacks a field of it.",
        |_| steering(Steering::Common)
    ),
    row!(
        "steer_rtp",
        "Act",
        FLOWS,
        "RTP together with its RTCP; drops the rest. Later fragments go where their first went, and nowhere where it is not known.",
        |_| steering(Steering::Rtp(false))
    ),
    row!("steer_voip", "Act", ALL, "Broadcast of SIP; the rest as `steer_rtp`.", |_| steering(Steering::Rtp(true))),
    row!(
        "steer_gtp_usr"["gtp_steer"],
        "Net -> Int -> Act",
        ALL,
        "By the user's address inside GTP, in the subscribers' network of this length; broadcast of the control plane; drops the rest. Later fragments as by `steer_rtp`.",
        |g| {
            let bits = g.number(1, 128)? as u8;
            let net = g.net(0)?;
            let net =
                Prefix::new(net.address(), bits).ok_or_else(|| format!("{} has no {bits} bits", net.address()))?;
            steering(Steering::GtpUser(net))
        }
    ),
];
