//! The tests to which protocol names without a value are translated, such as `tcp`.

use crate::names;
use crate::offsets::Offsets;
use crate::test::Test;

/// The test for a protocol name without a value; `None` if the name is not a protocol.
pub fn protocol_test(name: &str, at: &Offsets) -> Option<Result<Test, &'static str>> {
    const IS_IS: u32 = 0x83;
    let either = |p| Ok::<_, &'static str>(at.ip_protocol(p)?.or(at.ip6_protocol(p)?));
    Some(match name {
        "icmp6" => at.ip6_protocol(58),
        "tcp" | "udp" | "sctp" | "pim" | "ah" | "esp" => either(names::above(name)?),
        "esis" | "es-is" => at.iso_protocol(0x82),
        "isis" | "is-is" => at.iso_protocol(IS_IS),
        "clnp" => at.iso_protocol(0x81),
        _ => match names::above(name) {
            Some(p) => at.ip_protocol(p),
            None => at.carries(names::ethertype(name)?),
        },
    })
}
