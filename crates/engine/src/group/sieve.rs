//! Members' own filters: the words of `docs/FILTER.md`, and those of tcpdump as machine code.

use group::{Packet, Sieve, Syntax};
use jit::{Frame, Matcher, Refusal};
use lang::Facts;
use lang::interp::{Interpreter, Memory};
use lang::ir::{Kind, Program};
use ring::flag;
use std::sync::Arc;
use wire::{Filter, Headers};

/// Makes a member's filter.
///
/// # Errors
/// In words, with the place in the text.
pub fn of(text: &str, syntax: Syntax, link_type: u16) -> Result<Arc<dyn Sieve>, String> {
    match syntax {
        Syntax::Capture => {
            let filter = Filter::parse(text).map_err(|e| format!("filter: {e}"))?;
            Ok(Arc::new(Words { text: text.to_owned(), filter, link_type }))
        }
        Syntax::Tcpdump => {
            let program = lang::tcpdump::Filter::of_link(text, link_type).map_err(|e| format!("bpf: {e}"))?.program();
            match Matcher::of(&program) {
                Ok(matcher) => Ok(Arc::new(Native { text: text.to_owned(), matcher })),
                // Which way a packet went is not among its bytes.
                Err(Refusal::Memory(_) | Refusal::Host(_) | Refusal::TooLarge | Refusal::NoFilter(_)) => {
                    Ok(Arc::new(Slow { text: text.to_owned(), program }))
                }
                Err(e) => Err(format!("bpf: {e}")),
            }
        }
    }
}

struct Words {
    text: String,
    filter: Filter,
    link_type: u16,
}

impl Sieve for Words {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        let (bytes, wire_len) = (packet.bytes, packet.wire_len);
        self.filter.matches(bytes, wire_len, &Headers::of(bytes, wire_len, self.link_type))
    }

    fn text(&self) -> &str {
        &self.text
    }
}

struct Native {
    text: String,
    matcher: Matcher,
}

impl Sieve for Native {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        let mut matched = [0];
        self.matcher.matches(&[Frame::new(packet.bytes, packet.wire_len)], &mut matched);
        matched[0] != 0
    }

    fn text(&self) -> &str {
        &self.text
    }
}

/// Where this host refuses machine code, and for what machine code is not given.
struct Slow {
    text: String,
    program: Program,
}

impl Sieve for Slow {
    fn matches(&self, packet: &Packet<'_>) -> bool {
        let outgoing = u8::from(packet.desc.flags & flag::OUTGOING != 0);
        let facts = Facts { wire_len: packet.wire_len, outgoing, ..Facts::default() };
        let mut memory = Memory::of(&self.program, 0);
        Interpreter::new(&self.program).run(packet.bytes, &facts, &mut memory).kind != Kind::Drop
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
    use wire::link;

    #[test]
    fn all_three_ways_to_filter_say_the_same_of_plain_packets() {
        let (mut web, mut dns) = ([0; 60], [0; 60]);
        Build::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut web);
        Build::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 53).fill(&mut dns);
        let text = "tcp port 443";
        let program = lang::tcpdump::Filter::parse(text).expect("a filter").program();
        let slow: Arc<dyn Sieve> = Arc::new(Slow { text: text.into(), program });
        let made = [Syntax::Capture, Syntax::Tcpdump].map(|syntax| of(text, syntax, link::ETHERNET).expect("a filter"));
        let desc = Desc::default();
        for sieve in made.iter().chain([&slow]) {
            let of = |bytes| sieve.matches(&Packet { desc: &desc, bytes, wire_len: 60 });
            assert_eq!((of(&web), of(&dns), sieve.text()), (true, false, text));
        }
    }

    #[test]
    fn what_is_wrong_with_a_filter_is_said_in_its_own_words() {
        let why = |syntax, link| of("port nosuch0", syntax, link).err().expect("no filter");
        assert!(why(Syntax::Capture, 1).starts_with("filter: "));
        assert!(why(Syntax::Tcpdump, 1).starts_with("bpf: "));
        assert!(why(Syntax::Tcpdump, 147).contains("link type 147 are not read"));
    }

    #[test]
    fn tcpdumps_words_are_for_the_link_of_the_frames_and_know_which_way_they_went() {
        let mut web = [0; 60];
        Build::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut web);
        let raw = of("tcp port 443", Syntax::Tcpdump, link::RAW_IP).expect("a filter");
        let desc = Desc::default();
        assert!(raw.matches(&Packet { desc: &desc, bytes: &web[14..], wire_len: 46 }));
        assert!(!raw.matches(&Packet { desc: &desc, bytes: &web, wire_len: 60 }));
        let refused = of("vlan 5", Syntax::Tcpdump, link::LINUX_SLL).err().expect("an error");
        assert!(refused.starts_with("bpf: ") && refused.contains("no VLAN tag"), "{refused}");
        let outbound = of("outbound and tcp", Syntax::Tcpdump, link::ETHERNET).expect("a filter");
        for flags in [0, flag::OUTGOING] {
            let desc = Desc { flags, ..Desc::default() };
            let sent = outbound.matches(&Packet { desc: &desc, bytes: &web, wire_len: 60 });
            assert_eq!(sent, flags != 0);
        }
    }
}
