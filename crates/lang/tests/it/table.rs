//! Tests that the function table is complete and unambiguous, that its types and effects are correct, and that the
//! reference page agrees with it.

use ir::Effects;
use netgrain_lang::compile;
use netgrain_lang::table::{PARTS, find, names, operator, operators, reference};
use netgrain_lang::types::Type;
use std::collections::BTreeSet;

#[test]
fn the_reference_page_is_generated_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/packet-language-functions.md");
    let page = std::fs::read_to_string(path).expect(path);
    if page != reference() && std::env::var_os("NETGRAIN_WRITE_DOCS").is_some() {
        return std::fs::write(path, reference()).expect("a file that can be written");
    }
    assert!(
        page == reference(),
        "docs/reference/packet-language-functions.md is not what `netgrain lang functions` prints; run this test with \
         NETGRAIN_WRITE_DOCS=1"
    );
}

#[test]
fn names_are_unique_and_descriptions_end_with_a_full_stop() {
    let mut seen = BTreeSet::new();
    for name in names() {
        assert!(seen.insert(name), "{name} occurs twice");
        assert!(find(name).is_some(), "{name}");
    }
    for f in PARTS.iter().flat_map(|p| p.1) {
        assert!(f.description.ends_with('.') || f.description.ends_with('`'), "{}: {}", f.name, f.description);
        assert_eq!(f.of(), Type::of_signature(f.signature));
    }
    assert!(seen.len() > 200, "{}", seen.len());
}

#[test]
fn every_operator_has_a_function_and_compiles() {
    for sign in operators() {
        let f = operator(sign).unwrap_or_else(|| panic!("`{sign}` has no function"));
        let of = f.of();
        let (takes, gives) = of.parts();
        let [a, b] = [takes[0], takes[1]].map(sample);
        // In operators that end in a dot, such as `<.`, the number is the left operand.
        let (a, b) = if sign.ends_with('.') && !sign.starts_with('.') { (b, a) } else { (a, b) };
        let main = match gives {
            Type::Act => format!("{a} {sign} {b}"),
            Type::Pred => format!("when ({a} {sign} {b}) unit"),
            Type::Key => format!("steer_key ({a} {sign} {b})"),
            Type::Arm => format!("case_of ip_ttl [{a} {sign} {b}]"),
            other => unreachable!("{other} of an operator"),
        };
        let text = format!("main = {main}");
        compile(&text).unwrap_or_else(|e| panic!("{}", e.show(&text, "table")));
    }
}

/// All functions of PFQ version 6, by the category in which PFQ lists them, and additional functions of other versions.
const PFQ: &str = "less less_eq equal not_equal greater greater_eq any_bit all_bit or xor and not \
    is_ip is_tcp is_udp is_icmp is_flow is_frag is_first_frag is_more_frag \
    is_l3_proto is_l4_proto has_port has_src_port has_dst_port flow_port \
    has_addr has_src_addr has_dst_addr has_vlan has_vid vlan_id has_mark \
    has_state bloom bloom_src bloom_dst is_broadcast is_multicast \
    is_ip_broadcast is_ip_multicast is_ip_host is_incoming_host \
    is_rtp is_rtcp is_sip is_voip is_gtp is_gtp_cp is_gtp_up \
    is_eth_pup is_eth_sprite is_eth_ip is_eth_arp is_eth_revarp is_eth_at \
    is_eth_aarp is_eth_vlan is_eth_ipx is_eth_ipv6 is_eth_loopback \
    is_ip6 is_udp6 is_tcp6 is_icmp6 \
    ip_tos ip_tot_len ip_id ip_frag ip_ttl tcp_source tcp_dest tcp_hdrlen \
    udp_source udp_dest udp_len icmp_type icmp_code get_mark get_state \
    unit filter ip udp tcp icmp flow vlan no_frag no_more_frag port src_port \
    dst_port addr src_addr dst_addr l3_proto l4_proto vlan_id_filter \
    bloom_filter bloom_src_filter bloom_dst_filter mac_broadcast \
    mac_multicast ip_broadcast ip_multicast ip_host incoming_host \
    rtp rtcp sip voip gtp gtp_cp gtp_up ip6 udp6 tcp6 icmp6 \
    conditional when unless inv par par3 par4 par5 par6 par7 par8 shift src dst \
    steer_rrobin steer_rss steer_rx_queue steer_to steer_link \
    steer_local_link double_steer_mac steer_vlan steer_p2p double_steer_ip \
    steer_local_ip steer_flow steer_local_net steer_field \
    steer_field_symmetric double_steer_field steer_key steer_rtp steer_voip \
    steer_gtp_usr steer_ip6 steer_ip steer_net gtp_steer steer_mac \
    broadcast drop classify deliver dispatch class_steering class' drop' when' unless' conditional' \
    filter' forward_kernel kernel detour kernel_if detour_if forward forwardIO bridge tee tap link \
    log_msg log_buff log_packet trace inc dec mark put_state bloomCalcM bloomCalcN bloomCalcP \
    key_5tuple key_3tuple key_eth_type key_eth_src key_eth_dst key_ip_src \
    key_ip_dst key_ip_proto key_ip_ecn key_ip_dscp key_src_port \
    key_dst_port key_icmp_type key_icmp_code";

#[test]
fn all_functions_of_pfq_exist() {
    let missing: Vec<_> = PFQ.split_whitespace().filter(|n| find(n).is_none()).collect();
    assert_eq!(missing, [] as [&str; 0]);
}

/// A value of this type, as a program writes it.
fn sample(of: &Type) -> String {
    match of {
        Type::Act => "unit".into(),
        Type::Pred => "is_ip".into(),
        Type::Prop => "ip_ttl".into(),
        Type::Int => "3".into(),
        Type::Chance => "0.001".into(),
        Type::Text | Type::Interface => "\"eth1\"".into(),
        Type::Net => "\"10.0.0.0/8\"".into(),
        Type::Key => "key_5tuple".into(),
        Type::Map => "(flow_map 0 key_5tuple)".into(),
        Type::Counter => "(counter 1)".into(),
        Type::Change => "(+1)".into(),
        Type::Arm => "(arm 3 unit)".into(),
        Type::List(of) => format!("[{}]", sample(of)),
        other => unreachable!("{other} in the table"),
    }
}

#[test]
fn examples_compile_and_have_only_the_declared_effects() {
    for f in PARTS.iter().flat_map(|p| p.1) {
        let of = f.of();
        let (takes, gives) = of.parts();
        let call = f.example().unwrap_or_else(|| f.name.to_owned());
        let main = match gives {
            Type::Act if f.name == "steer_common" => format!("incr_fstate (flow_map 0 key_5tuple) >-> {call}"),
            Type::Act => call.clone(),
            Type::Pred => format!("when ({call}) unit"),
            Type::Prop => format!("when ({call} .== 1) unit"),
            Type::Key => format!("steer_key ({call})"),
            Type::Map => format!("incr_fstate ({call})"),
            Type::Counter => format!("modifyCounter ({call}) (+1)"),
            Type::Int => format!("when (ip_ttl .== ({call})) unit"),
            Type::Net => format!("addr ({call})"),
            Type::Arm => format!("case_of ip_ttl [{call}]"),
            Type::List(_) => format!("case_of ip_ttl ({call})"),
            other => unreachable!("{other} in the table"),
        };
        let text = format!("flows = flow_map 0 key_5tuple\nmain = {main}");
        let compiled = compile(&text).unwrap_or_else(|e| panic!("{}", e.show(&text, "table")));
        // `wrapped` has the declared effects of the function, of the wrapper around its call, and of the sample
        // arguments.
        let wrapped = compiled.bindings.iter().find(|b| b.name == "main").expect("a program").effects;
        let does = compiled.program.effects();
        assert!(does.within(wrapped), "`{text}` has the effects {does}; the table declares {wrapped}");
        if *gives == Type::Act && !takes.contains(&&Type::Act) {
            let own = f.effects();
            // A program with `steer_common` must contain a flow map.
            let counts = (f.name == "steer_common").then_some("incr_fstate");
            let words = call.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| *word != f.name);
            let given =
                words.chain(counts).filter_map(find).map(|g| g.effects()).fold(Effects::default(), Effects::with);
            let map = if takes.contains(&&Type::Map) { own } else { Effects::default() };
            assert!(
                does.within(own.with(given).with(map)),
                "`{}` has the effects {does}; the table declares {own}",
                f.name
            );
        }
    }
}
