//! Programs without the packet language: `copy`, `steer` and `drop`, each with an optional capture filter.
//!
//! ```text
//! steer                     each packet to one member, always the same for the same flow, in both directions
//! steer tcp port 443        only these; the others are dropped
//! copy not port 22          each to every member of the default class
//! ```
//! `steer` uses the flow hash that each descriptor already contains, so it costs little time. All packets without a
//! flow (such as ARP) are steered to the same member.

use crate::error::GroupProgramError;
use filter::Filter;
use group::{Compiled, Delivery, IngressInterface, Packet, Program, ServiceError, Verdict};
use std::sync::Arc;
use wire::Headers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shorthand {
    Copy,
    Steer,
    Drop,
}

struct ShorthandProgram {
    text: String,
    word: Shorthand,
    filter: Option<Arc<Filter>>,
    link_type: u16,
}

/// Parses a shorthand program. Returns `None` if the source is in the packet language.
///
/// # Errors
/// The filter of the program is invalid.
pub fn parse(source: &str, link_type: u16) -> Result<Option<Arc<dyn Compiled>>, GroupProgramError> {
    let text = source.trim();
    let (word, filter) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let word = match word {
        "copy" => Shorthand::Copy,
        "steer" => Shorthand::Steer,
        "drop" => Shorthand::Drop,
        _ => return Ok(None),
    };
    if filter.trim_start().starts_with('=') {
        // The source defines a function of this name in the packet language.
        return Ok(None);
    }
    let filter = match filter.trim() {
        "" => None,
        filter => Some(Arc::new(Filter::parse(filter).map_err(GroupProgramError::Filter)?)),
    };
    Ok(Some(Arc::new(ShorthandProgram { text: text.to_owned(), word, filter, link_type })))
}

impl Compiled for ShorthandProgram {
    fn instances(&self, queues: &[IngressInterface], _group: &str) -> Result<Vec<Box<dyn Program>>, ServiceError> {
        let instance = || Instance { word: self.word, filter: self.filter.clone(), link_type: self.link_type };
        Ok(queues.iter().map(|_| Box::new(instance()) as Box<dyn Program>).collect())
    }

    fn text(&self) -> &str {
        &self.text
    }
}

struct Instance {
    word: Shorthand,
    filter: Option<Arc<Filter>>,
    link_type: u16,
}

impl Program for Instance {
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        // A shorthand program does not change the mark that the interface's program has set in a packet.
        batch.iter().zip(out.iter_mut()).for_each(|(p, v)| v.mark = p.desc.mark);
        match self.word {
            Shorthand::Copy => {}
            Shorthand::Steer => {
                batch.iter().zip(out.iter_mut()).for_each(|(p, v)| v.delivery = Delivery::Steer(p.desc.hash));
            }
            Shorthand::Drop => out.iter_mut().for_each(|v| v.delivery = Delivery::Drop),
        }
        let Some(filter) = &self.filter else { return };
        for (p, v) in batch.iter().zip(out) {
            let matches = filter.matches(p.bytes, p.wire_len, &Headers::of(p.bytes, p.wire_len, self.link_type));
            v.delivery = match (self.word, matches) {
                // `drop` with a filter copies the packets that the filter does not match.
                (Shorthand::Drop, false) => Delivery::Copy,
                (Shorthand::Drop, true) | (_, false) => Delivery::Drop,
                _ => v.delivery,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Desc;

    fn evaluated(source: &str) -> [Verdict; 2] {
        let mut tcp = [0; 60];
        let mut udp = [0; 60];
        wire::build::Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut tcp);
        wire::build::Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 53).fill(&mut udp);
        let descs = [7, 9].map(|hash| Desc { hash, mark: 10 * hash, ..Desc::default() });
        let batch = [(&descs[0], &tcp), (&descs[1], &udp)].map(|(desc, bytes)| Packet { desc, bytes, wire_len: 60 });
        let mut out = [Verdict::default(); 2];
        parse(source, 1)
            .expect("a valid program")
            .expect("a shorthand")
            .instances(&[IngressInterface::default()], "g")
            .expect("an instance")[0]
            .evaluate(&batch, &mut out);
        out
    }

    fn verdicts(source: &str) -> [Delivery; 2] {
        evaluated(source).map(|v| v.delivery)
    }

    #[test]
    fn the_mark_of_the_interfaces_program_is_not_changed() {
        for source in ["steer", "copy", "copy tcp"] {
            assert_eq!(evaluated(source).map(|v| v.mark), [70, 90], "{source}");
        }
    }

    #[test]
    fn each_shorthand_with_and_without_a_filter_delivers_as_documented() {
        use Delivery::{Copy, Drop, Steer};
        assert_eq!(verdicts("steer"), [Steer(7), Steer(9)]);
        assert_eq!(verdicts(" steer tcp port 443 "), [Steer(7), Drop]);
        assert_eq!(verdicts("copy not tcp"), [Drop, Copy]);
        assert_eq!(verdicts("drop udp"), [Copy, Drop]);
        assert_eq!(verdicts("drop"), [Drop, Drop]);
    }

    #[test]
    fn other_sources_are_not_shorthands_and_an_invalid_filter_is_an_error() {
        assert!(parse("main = ip >-> steer_flow", 1).expect("no error").is_none());
        assert!(parse("copy = ip\nmain = copy", 1).expect("no error").is_none());
        assert!(parse("", 1).expect("no error").is_none());
        assert!(parse("steer prot 5", 1).is_err());
    }
}
