//! Member filters, compiled to machine code if the host permits it.

use filter::{Filter, FilterError, LinkFilter};
use group::{MemberFilter, Packet};
use jit::{Frame, Matcher};
use lang::packet_filter;
use ring::flag;
use std::sync::Arc;
use wire::Headers;

/// Compiles a member's filter.
///
/// # Errors
/// The filter is invalid, or cannot be applied to the link type.
pub fn compile(text: &str, link_type: u16) -> Result<Arc<dyn MemberFilter>, FilterError> {
    let filter = LinkFilter::parse(text, link_type)?;
    // Machine code supports no filters that read the packet's direction or the results of the header parser, or that
    // loop.
    if let Ok(program) = packet_filter::program(&filter)
        && let Ok(matcher) = Matcher::of(&program)
    {
        return Ok(Arc::new(Native { text: text.to_owned(), matcher }));
    }
    let filter = Filter::parse(text)?;
    Ok(Arc::new(Interpreted { text: text.to_owned(), filter, link_type }))
}

struct Native {
    text: String,
    matcher: Matcher,
}

impl MemberFilter for Native {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        let mut matched = [0];
        self.matcher.matches(&[Frame::new(packet.bytes, packet.wire_len)], &mut matched);
        matched[0] != 0
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// A filter that is interpreted, because the host does not permit machine code or because machine code does not support
/// the filter.
struct Interpreted {
    text: String,
    filter: Filter,
    link_type: u16,
}

impl MemberFilter for Interpreted {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        let (bytes, wire_len) = (packet.bytes, packet.wire_len);
        let outgoing = packet.desc.flags & flag::OUTGOING != 0;
        self.filter.matches_direction(bytes, wire_len, &Headers::of(bytes, wire_len, self.link_type), outgoing)
    }

    fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Desc;
    use wire::build::Frame as Build;
    use wire::{EtherType, link};

    #[test]
    fn machine_code_and_interpreter_agree_on_tcp_and_udp_packets() {
        let (mut web, mut dns) = ([0; 60], [0; 60]);
        Build::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut web);
        Build::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 53).fill(&mut dns);
        let text = "tcp port 443";
        let filter = Filter::parse(text).expect("a filter");
        let interpreted: Arc<dyn MemberFilter> =
            Arc::new(Interpreted { text: text.into(), filter, link_type: link::ETHERNET });
        let native = compile(text, link::ETHERNET).expect("a filter");
        let desc = Desc::default();
        for member_filter in [&native, &interpreted] {
            let of = |bytes| member_filter.matches(&Packet { desc: &desc, bytes, wire_len: 60 });
            assert_eq!((of(&web), of(&dns), member_filter.text()), (true, false, text));
        }
    }

    #[test]
    fn an_error_in_a_filter_contains_its_position() {
        let error = |text, link| compile(text, link).err().expect("no filter").to_string();
        assert!(error("port nosuch0", 1).starts_with("`nosuch0` at column 6"));
        assert!(error("tcp", 147).contains("this link type are not decoded"));
        assert!(error("bytes > 5", 1).contains("netgrain flows"));
    }

    #[test]
    fn a_filter_uses_the_link_type_and_the_direction_of_packets() {
        let mut web = [0; 60];
        Build::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut web);
        let raw = compile("tcp port 443", link::RAW_IP).expect("a filter");
        let desc = Desc::default();
        assert!(raw.matches(&Packet { desc: &desc, bytes: &web[14..], wire_len: 46 }));
        assert!(!raw.matches(&Packet { desc: &desc, bytes: &web, wire_len: 60 }));
        let refused = compile("vlan 5", link::LINUX_SLL).err().expect("an error").to_string();
        assert!(refused.contains("VLAN tags are not supported"), "{refused}");
        let outbound = compile("outbound and tcp", link::ETHERNET).expect("a filter");
        for flags in [0, flag::OUTGOING] {
            let desc = Desc { flags, ..Desc::default() };
            let sent = outbound.matches(&Packet { desc: &desc, bytes: &web, wire_len: 60 });
            assert_eq!(sent, flags != 0);
        }
    }

    #[test]
    fn filters_with_anylink_and_protochain_are_evaluated() {
        let mut bytes = [0; 64];
        Build::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).tag(EtherType::VLAN, 5).fill(&mut bytes);
        let desc = Desc::default();
        for (text, is) in [("tcp port 443", false), ("anylink tcp port 443", true), ("ip protochain 6", false)] {
            let member_filter = compile(text, link::ETHERNET).expect("a filter");
            assert_eq!(member_filter.matches(&Packet { desc: &desc, bytes: &bytes, wire_len: 64 }), is, "{text}");
        }
    }
}
