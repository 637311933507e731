//! A record as a line that people read: when, where, how long, who with whom, how much in each direction, how it went.

use super::names::Names;
use super::ranking::span;
use base::units::{show_bytes, show_count};
use flow::{EndReason, Record, TcpState};
use report::Value;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What stands above the lines.
pub const HEADER: &str = "first packet                    interface         for  proto  source                    destination               \
                          packets there/back     bytes there/back  how it went";

/// One record.
pub struct Told<'a>(pub &'a Record, pub &'a Names);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(r, names) = self;
        let k = &r.key;
        let has_ports = k.protocol.has_ports();
        let end = |address: IpAddr, port: u16| match has_ports {
            true => SocketAddr::new(address, port).to_string(),
            false => address.to_string(),
        };
        let [there, back] = &r.sides;
        let pair = |there: String, back: String| format!("{there}/{back}");
        write!(
            f,
            "{}  {:<9}  {:>9}  {:<5}  {:<24}  {:<24}  {:>18}  {:>19}  ",
            r.first(),
            names.interface(r.interface),
            span(r.last().nanos().saturating_sub(r.first().nanos())),
            k.protocol.to_string(),
            end(k.src, k.src_port),
            end(k.dst, k.dst_port),
            pair(show_count(there.packets), show_count(back.packets)),
            pair(show_bytes(there.bytes), show_bytes(back.bytes)),
        )?;
        let mut how = Vec::new();
        if !has_ports && k.dst_port > 0 {
            how.push(format!("type {} code {}", k.dst_port >> 8, k.dst_port & 0xff));
        }
        if r.tcp != TcpState::None {
            how.push(Value::State(Some(r.tcp)).to_string());
        }
        if r.end != EndReason::Ended {
            how.push(Value::End(Some(r.end)).to_string());
        }
        if r.part > 0 || r.end == EndReason::Active {
            how.push(format!("part {}", r.part));
        }
        if let Some(rtt) = r.syn_rtt {
            how.push(format!("rtt {}", span(rtt)));
        }
        let retransmitted = there.retransmitted + back.retransmitted;
        if retransmitted > 0 {
            how.push(format!("{} retransmitted", show_count(retransmitted)));
        }
        if r.lost > 0 {
            how.push(format!("{} lost on the interface", show_count(r.lost)));
        }
        let around = Value::around(&r.around);
        if !around.is_empty() {
            how.push(around);
        }
        how.push(format!("id {}", r.id));
        f.write_str(&how.join(", "))
    }
}
