//! A flow record as a line of text: time, duration, addresses, counters of each direction, TCP state.

use super::ranking::span;
use crate::flow_records::names::Names;
use crate::style::{Paint, StylePart};
use crate::table_layout::{Align, Cell, Column, Layout, Step};
use crate::zone::Zone;
use aggregate::Value;
use base::units::{show_bytes, show_count};
use flow::{EndReason, Record, TcpState};
use std::net::{IpAddr, SocketAddr};

const fn column(title: &'static str, width: usize, align: Align) -> Column {
    Column { title, width, align, narrow: None }
}

const fn narrow(title: &'static str, width: usize, align: Align, narrow: (&'static str, usize)) -> Column {
    Column { title, width, align, narrow: Some(narrow) }
}

const FIRST: usize = 0;
const INTERFACE: usize = 1;
const DURATION: usize = 2;
const PROTO: usize = 3;
const SRC: usize = 4;
const DST: usize = 5;
const PACKETS: usize = 6;
const BYTES: usize = 7;
const ID: usize = 8;
const DETAILS: usize = 9;

const COLUMNS: [Column; 10] = [
    narrow("first packet", 30, Align::Left, ("first packet", 12)),
    column("interface", 9, Align::Left),
    column("duration", 9, Align::Right),
    column("proto", 5, Align::Left),
    narrow("source", 24, Align::Middle, ("source", 21)),
    narrow("destination", 24, Align::Middle, ("destination", 21)),
    narrow("packets fwd/rev", 18, Align::Right, ("packets", 9)),
    narrow("bytes fwd/rev", 19, Align::Right, ("bytes", 9)),
    column("id", 20, Align::Left),
    column("details", 0, Align::Rest),
];

/// The steps by which lines become shorter on a narrow terminal, least important columns first.
const STEPS: [Step; 13] = [
    Step::Narrow(FIRST),
    Step::Narrow(PACKETS),
    Step::Narrow(BYTES),
    Step::Drop(INTERFACE),
    Step::Drop(DETAILS),
    Step::Drop(DURATION),
    Step::Narrow(SRC),
    Step::Narrow(DST),
    Step::Drop(PACKETS),
    Step::Drop(ID),
    Step::Drop(PROTO),
    Step::Drop(BYTES),
    Step::Drop(FIRST),
];

/// Formats flow records as the lines of a table.
pub struct Listing {
    layout: Layout,
    zone: Zone,
    /// The date that was last printed above a line; used only in tables whose lines have a time of day without a date.
    date: String,
}

impl Listing {
    /// The columns of the store that a line shows in addition to times, addresses and sums.
    pub const FIELDS: [&'static str; 12] = [
        "src_port",
        "dst_port",
        "tcp_state",
        "end_reason",
        "record_index",
        "syn_rtt_ns",
        "fwd_retransmitted",
        "rev_retransmitted",
        "lost",
        "vlan",
        "vlan_inner",
        "mpls",
    ];

    /// A formatter of lines that have at most `room` characters.
    pub fn new(room: Option<usize>, paint: Paint, zone: &Zone) -> Self {
        let mut columns = COLUMNS;
        if *zone != Zone::Utc {
            // A zone offset such as `+01:00` is five characters longer than `Z`.
            columns[FIRST].width += 5;
        }
        Self { layout: Layout::new(&columns, &STEPS, room, paint), zone: zone.clone(), date: String::new() }
    }

    /// The header line. First widens the column of interfaces to the longest name in `names`.
    pub fn header(&mut self, names: &Names) -> String {
        self.layout.widen(INTERFACE, names.all().iter().map(|(_, name)| name.as_str()));
        self.layout.header()
    }

    /// A text with the names of the columns that were left out so that lines fit the terminal.
    pub fn dropped(&self) -> Option<String> {
        self.layout.dropped()
    }

    /// The line of one record. If lines have a time of day without a date, a line with the date precedes it each time
    /// the date changes.
    pub fn line(&mut self, r: &Record, names: &Names) -> String {
        let mut text = String::new();
        let first = match self.layout.is_narrow(FIRST) {
            false => self.zone.show(r.first()),
            true => {
                let date = self.zone.show_date(r.first());
                if date != self.date {
                    text = format!("{date}\n");
                    self.date = date;
                }
                self.zone.show_clock(r.first(), 3)
            }
        };
        text += &self.layout.line(self.cells(first, r, names));
        text
    }

    fn cells(&self, first: String, r: &Record, names: &Names) -> Vec<Cell> {
        let k = &r.key;
        let has_ports = k.protocol.has_ports();
        let end = |address: IpAddr, port: u16| match has_ports {
            true => SocketAddr::new(address, port).to_string(),
            false => address.to_string(),
        };
        let [forward, reverse] = &r.directions;
        let pair =
            |place: usize, show: fn(u64) -> String, forward: u64, reverse: u64| match self.layout.is_narrow(place) {
                true => show(forward.saturating_add(reverse)),
                false => format!("{}/{}", show(forward), show(reverse)),
            };
        let (details, is_bad) = details(r, has_ports);
        vec![
            (first, Some(StylePart::Faint)),
            (names.interface(r.interface), None),
            (span(r.last().nanos().saturating_sub(r.first().nanos())), None),
            (k.protocol.to_string(), None),
            (end(k.src, k.src_port), None),
            (end(k.dst, k.dst_port), None),
            (pair(PACKETS, show_count, forward.packets, reverse.packets), None),
            (pair(BYTES, show_bytes, forward.bytes, reverse.bytes), None),
            (r.id.to_string(), Some(StylePart::Faint)),
            (details, is_bad.then_some(StylePart::Bad)),
        ]
    }
}

/// The TCP state, end reason, loss and encapsulation of a flow as text; the second value is true if the flow had a
/// reset, retransmissions or lost packets.
fn details(r: &Record, has_ports: bool) -> (String, bool) {
    let mut details = Vec::new();
    if !has_ports && r.key.dst_port > 0 {
        details.push(format!("type {} code {}", r.key.dst_port >> 8, r.key.dst_port & 0xff));
    }
    if r.tcp_state != TcpState::None {
        details.push(Value::State(Some(r.tcp_state)).to_string());
    }
    if r.end_reason != EndReason::EndOfFlow {
        details.push(Value::End(Some(r.end_reason)).to_string());
    }
    if r.record_index > 0 || r.end_reason == EndReason::ActiveTimeout {
        details.push(format!("part {}", r.record_index));
    }
    if let Some(rtt) = r.syn_rtt {
        details.push(format!("rtt {}", span(rtt)));
    }
    let retransmitted = r.directions[0].retransmitted.saturating_add(r.directions[1].retransmitted);
    if retransmitted > 0 {
        details.push(format!("{} retransmitted", show_count(retransmitted)));
    }
    if r.lost > 0 {
        details.push(format!("{} lost on the interface", show_count(r.lost)));
    }
    let around = Value::encapsulation(&r.encapsulation);
    if !around.is_empty() {
        details.push(around);
    }
    (details.join(", "), r.tcp_state == TcpState::Reset || retransmitted > 0 || r.lost > 0)
}
