//! Provides an example call of each function of the language, for programs in which `flows` is a flow map. Most
//! examples are taken from the function's description or derived from its type; the others are listed in this file.

use super::Function;
use crate::types::Type;

const WRITTEN: &[(&str, &str)] = &[
    ("filter", "filter (has_port 80)"),
    ("unique", "unique 100"),
    ("is_duplicate", "is_duplicate \"routing\""),
    ("addr", "addr 10.0.0.0/8"),
    ("port", "port 80"),
    ("src_port", "src_port 80"),
    ("dst_port", "dst_port 80"),
    ("l3_proto", "l3_proto 0x0806"),
    ("l4_proto", "l4_proto 47"),
    ("is_l3_proto", "is_l3_proto 0x0806"),
    ("is_l4_proto", "is_l4_proto 47"),
    ("has_port", "has_port 80"),
    ("has_src_port", "has_src_port 80"),
    ("has_dst_port", "has_dst_port 80"),
    ("has_port_range", "has_port_range 5000 6000"),
    ("vlan_id_filter", "vlan_id_filter [10, 20]"),
    ("vlan_id", "vlan_id [10, 20]"),
    ("has_addr_in", "has_addr_in [10.0.0.0/8, 2001:db8::/32]"),
    ("bloom_filter", "bloom_filter 1024 [10.0.0.1, 10.0.0.2] 32"),
    ("bloom_src_filter", "bloom_src_filter 1024 [10.0.0.1, 10.0.0.2] 32"),
    ("bloom_dst_filter", "bloom_dst_filter 1024 [10.0.0.1, 10.0.0.2] 32"),
    ("bloom", "bloom 1024 [10.0.0.1, 10.0.0.2] 32"),
    ("bloom_src", "bloom_src 1024 [10.0.0.1, 10.0.0.2] 32"),
    ("bloom_dst", "bloom_dst 1024 [10.0.0.1, 10.0.0.2] 32"),
    ("conditional", "conditional is_tcp steer_flow drop"),
    ("when", "when is_tcp (forward \"eth1\")"),
    ("unless", "unless is_tcp drop"),
    ("case_of", "case_of ip_tos $ with [0 ~> drop, 1 ~> kernel]"),
    ("sequence", "sequence tcp steer_flow"),
    ("inv", "inv tcp"),
    ("par", "par tcp udp"),
    ("par3", "par3 tcp udp icmp"),
    ("par4", "par4 tcp udp icmp rtp"),
    ("par5", "par5 tcp udp icmp rtp sip"),
    ("par6", "par6 tcp udp icmp rtp sip gtp"),
    ("par7", "par7 tcp udp icmp rtp sip gtp vlan"),
    ("par8", "par8 tcp udp icmp rtp sip gtp vlan broadcast"),
    ("shift", "shift (port 80)"),
    ("outer", "outer steer_p2p"),
    ("src", "src (port 80)"),
    ("dst", "dst (port 80)"),
    ("kernel_if", "kernel_if is_icmp"),
    ("detour_if", "detour_if is_icmp"),
    ("link", "link [\"eth1\", \"eth2\"]"),
    ("log_msg", "log_msg \"seen\""),
    ("modifyCounter", "modifyCounter (counter 1) (+1)"),
    ("modify_fstate", "modify_fstate flows (+1)"),
    ("steer_local_link", "steer_local_link \"00:1b:21:0a:0b:0c\""),
    ("steer_field", "steer_field 26 4"),
    ("steer_field_symmetric", "steer_field_symmetric 26 30 4"),
    ("double_steer_field", "double_steer_field 26 30 4"),
    ("up_to", "up_to 100000 (flow_map 0 key_5tuple)"),
    ("idle_after", "idle_after 30000 (flow_map 0 key_5tuple)"),
    ("for_ms", "for_ms 1000 (flow_map 0 key_ip_src)"),
    ("key_with", "key_with key_ip_src key_dst_port"),
    ("both_ways", "both_ways (key_ip_src <> key_ip_dst)"),
    ("bloomCalcM", "bloomCalcM 1000 0.001"),
    ("bloomCalcN", "bloomCalcN 16384 0.001"),
    ("bloomCalcP", "bloomCalcP 1000 16384"),
];

impl Function {
    /// An example call; `None` for a function without parameters.
    pub fn example(&self) -> Option<String> {
        let of = self.of();
        let takes = of.parts().0;
        if takes.is_empty() {
            return None;
        }
        let written = WRITTEN.iter().find(|(name, _)| *name == self.name).map(|(_, call)| *call);
        let call = |e: &&str| e.strip_prefix(self.name).is_some_and(|rest| rest.starts_with(' '));
        let shown = || self.description.split('`').skip(1).step_by(2).find(call);
        Some(match written.or_else(shown) {
            Some(call) => call.to_owned(),
            None => takes.iter().fold(self.name.to_owned(), |call, of| format!("{call} {}", sample(of))),
        })
    }
}

/// A value of this type.
fn sample(of: &Type) -> String {
    match of {
        Type::Act => "drop".into(),
        Type::Pred => "is_tcp".into(),
        Type::Prop => "ip_ttl".into(),
        Type::Int => "1".into(),
        Type::Chance => "0.001".into(),
        Type::Text | Type::Interface => "\"eth1\"".into(),
        Type::Net => "10.0.0.0/8".into(),
        Type::Key => "key_5tuple".into(),
        Type::Map => "flows".into(),
        Type::Counter => "(counter 1)".into(),
        Type::Change => "(+1)".into(),
        Type::Arm => "(0 ~> drop)".into(),
        Type::List(of) => format!("[{}]", sample(of)),
        other => unreachable!("{other} in the table"),
    }
}
