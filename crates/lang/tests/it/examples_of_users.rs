//! Invalid programs, as users write them who know PFQ, Haskell, C or tcpdump but not this language. Each error must
//! name the position, the cause and the correction.

use base::Prng;
use netgrain_lang::compile;
use netgrain_lang::table::names;

/// For each program: the program, the text that the error marks, a part of the message, and another part of the message
/// or of the advice.
const WRONG: &[(&str, &str, &str, &str)] = &[
    // Calls without parentheses, as the PFQ thesis prints them; no compiler of PFQ accepted them.
    ("main = when is_tcp forward \"eth1\"", "forward", "this is a function", "(forward …)"),
    ("main = conditional is_udp mark 42 kernel", "mark", "this is a function", "(mark …)"),
    ("main = unless has_port 80 drop", "has_port", "takes a predicate here", "(has_port …)"),
    ("main = filter not is_tcp", "not", "takes a predicate here", "(not …)"),
    ("main = when (has_port 80) kernel drop", "drop", "takes 2 values", "`>->`"),
    ("main = filter (ip_ttl .< 9 .||. is_tcp)", "9", "takes a predicate here, but this is a number", "parentheses"),
    // Values that `main` cannot have.
    ("main = is_tcp", "is_tcp", "`main` takes an action here, but this is a predicate", "filter"),
    ("main = ip_ttl", "ip_ttl", "this is a property", "compare the property"),
    (
        "m = flow_map 0 key_5tuple\nmain = add_fstate m pkt_len",
        "pkt_len",
        "takes a number here",
        "`add_fstate flows 1`",
    ),
    ("main = \"eth1\"", "\"eth1\"", "this is a text", "forward"),
    ("main = forward", "forward", "this is a function", "the function still needs an interface name"),
    ("main = has_port 80", "has_port 80", "this is a predicate", "filter"),
    ("main = has_port", "has_port", "this is a function", "the predicate still needs a number; then `filter"),
    (
        "main = steer_local_net \"131.114.0.0\" 16",
        "steer_local_net \"131.114.0.0\" 16",
        "function (Int -> Act)",
        "the function still needs a number",
    ),
    ("main = par udp", "par udp", "function (Act -> Act)", "the function still needs an action"),
    ("main = flow_map 0 key_5tuple", "flow_map 0 key_5tuple", "this is a flow map", "incr_fstate"),
    ("main = key_5tuple", "key_5tuple", "this is a key", "steer_key"),
    ("main = [ip, tcp]", "[ip, tcp]", "this is a list", "`>->`"),
    ("main x y = ip", "main", "takes only the packet as a parameter", "`main = …`"),
    ("Main = ip", "Main", "there is no `main`", "lower case"),
    ("steer_flow", "", "expected `=`", "`main = …`"),
    ("main = ip\nsteer_flow\n", "", "expected `=`", "indent "),
    // Operators of other languages.
    ("main = filter (is_tcp && is_udp)", "&&", "found `&&`", "`.&&.`"),
    ("main = filter (is_tcp || is_udp)", "||", "found `||`", "`.||.`"),
    ("main = filter (is_tcp and is_udp)", "and", "takes no ", "`.&&.`"),
    ("main = filter (is_tcp `and is_udp)", "`", "between two backquotes", "between its two values"),
    ("main = filter (ip_ttl < 9)", "<", "found `<`", "`.<`"),
    ("main = filter (ip_ttl == 9)", "==", "found `==`", "`.==`"),
    ("main = filter (ip_ttl = 9)", "=", "found `=`", "`.==`"),
    ("main = filter (ip_ttl != 9)", "!=", "found `!=`", "`./=`"),
    ("main = filter !is_tcp", "!", "found `!`", "`not`"),
    ("main = ip >>= steer_flow", ">>=", "found `>>=`", "`>->`"),
    ("main = ip . steer_flow", ".", "found `.`", "`>->`"),
    ("main = ip | tcp", "|", "found `|`", "`.||.`"),
    ("main == ip", "==", "expected `=`", "`main = …`"),
    ("main = steer_key (key_ip_src + key_ip_dst)", "key_ip_src", "`+` takes a number", "`<>`"),
    ("main = steer_key key_ip_src key_ip_dst", "key_ip_dst", "takes 1 value", "`>->`"),
    ("main = ip // all", "//", "found `//`", "`--`"),
    ("main = ip # all", "#", "found `#`", "`--`"),
    ("main = forward 'eth1'", "'", "unexpected character", "double quotes"),
    ("main = forward “eth1”", "“", "unexpected character", "double quotes"),
    // Constructs of Haskell that this language does not have.
    ("main = do { tcp ; x <- steer_flow }", "<-", "found `<-`", "cannot bind a value"),
    ("main = let f = tcp in f", "let", "not part of the language", "binding"),
    ("main = f where f = tcp", "where", "found `where`", "binding"),
    ("main = return", "return", "not known", "`unit`"),
    ("main = case is_tcp of { 0 -> drop }", "is_tcp", "`case` takes a property", "`if …"),
    ("main = if is_tcp then drop", "", "expected `else`, found the end of the program", "`when`"),
    ("main = ip >->", "", "expected an expression, found the end of the program", ""),
    // Values.
    ("main = port \"80\"", "\"80\"", "takes a number", "without quotes"),
    ("main = port http", "http", "not known", "80 for `http`"),
    ("main = classify user", "user", "not known", "1 for `user`"),
    ("main = classify 64", "classify 64", "64 is out of range", ""),
    ("main = forward eth1", "eth1", "not known", "`forward \"eth1\"`"),
    ("main = link \"eth1\"", "\"eth1\"", "takes a list", "`[…]`"),
    ("main = filter (vlan_id 5)", "5", "takes a list", "`[…]`"),
    ("main = vlan_id_filter [5 6]", "6", "takes no ", "commas"),
    ("main = tee is_tcp \"eth1\"", "is_tcp", "takes an interface name", "`tee \"eth1\"`"),
    ("main = incr_fstate (flow_map key_5tuple)", "key_5tuple", "takes a number", "in this order: a number; a key"),
    ("main = incr_fstate 0", "0", "takes a flow map", ""),
    ("main = addr \"10.0.0.0/33\"", "\"10.0.0.0/33\"", "not an address or a network", "`10.0.0.0/8`"),
    ("main = addr CIDR (\"10.0.0.0\", 8)", "CIDR", "this is a function", "(CIDR …)"),
    ("main = mark 4294967296", "mark 4294967296", "out of range", ""),
    (
        "main = steer_local_net \"131.114.0.0\" 16 33",
        "steer_local_net \"131.114.0.0\" 16 33",
        "33 is not a valid prefix length",
        "",
    ),
    // Errors in names, and in the precedence of operators.
    ("main = steer_flw", "steer_flw", "not known", "`steer_flow`"),
    ("main = ip >-> steer", "steer", "not known", "`steer_ip`"),
    ("main = filter ip_ttl .< 9", "filter ip_ttl", "takes a property", "`filter (… .< …)`"),
    (
        "main = filter (is_tcp .&&. ip_ttl .< 9)",
        "is_tcp .&&. ip_ttl",
        "takes a property",
        "put each comparison into parentheses",
    ),
    ("main = is_ip6 >-> drop", "is_ip6", "this is a predicate", "`filter (…)`"),
    ("main = filter steer_flow", "steer_flow", "this action does more than filter", "`is_`"),
    ("main = when (mark 3) kernel", "(mark 3)", "this action does more than filter", "`is_`"),
    ("main = crc16", "crc16", "not known", "bench"),
    ("main = deliver 64", "deliver 64", "out of range", ""),
    // Filters inside.
    ("main = bpf tcp", "tcp", "takes a text in quotes", ""),
    ("main = bpf \"tcp prot 80\"", "bpf \"tcp prot 80\"", "`prot` at column 5", "did you mean `port`?"),
    ("main = bpf \"udp\" >-> bpf \"protochain 6\"", "bpf \"protochain 6\"", "in a loop", ""),
];

#[test]
fn each_error_names_the_position_the_cause_and_the_correction() {
    let mut poor = String::new();
    for (text, marked, message, advice) in WRONG {
        let error = compile(text).expect_err(text);
        let all = format!("{}; {}", error.what, error.help.clone().unwrap_or_default());
        let place = text.get(error.span.clone());
        if place != Some(*marked) || !error.what.contains(message) || !all.contains(advice) {
            poor += &format!("wanted {marked:?}, {message:?}, {advice:?}:\n{}\n", error.show(text, "x"));
        }
    }
    assert!(poor.is_empty(), "{poor}");
}

#[test]
fn notations_of_pfq_and_haskell_are_accepted() {
    for text in [
        "main = addr (CIDR (\"192.168.0.0\",24))",
        "main = steer_net (IPv4 \"131.114.0.0\") 16 24",
        "main = ip >=> steer_flow",
        "main = ip >> steer_flow",
        "main = filter (ip_ttl .<. 9)",
        "main = steer_local_net 131.114.0.0 16 24",
        "main = ip >-> if is_tcp then steer_flow else steer_p2p",
        "main = do { tcp ; steer_flow ; }",
    ] {
        compile(text).unwrap_or_else(|e| panic!("{}", e.show(text, "x")));
    }
}

/// Generates an expression with valid syntax whose types may be wrong.
fn any_expression(prng: &mut Prng, depth: u32) -> String {
    let names: Vec<&str> = names().collect();
    let any = |prng: &mut Prng, of: &[&str]| of[prng.below(of.len() as u64) as usize].to_owned();
    if depth == 0 || prng.below(3) == 0 {
        return match prng.below(6) {
            0 => any(prng, &["0", "1", "80", "0x50", "-1", "64", "65536", "0.001", "9223372036854775807"]),
            1 => any(prng, &["\"eth1\"", "\"10.0.0.0/8\"", "\"tcp port 80\"", "\"\"", "\"é\""]),
            2 => any(prng, &["10.0.0.0/8", "2001:db8::1", "1.2.3.4"]),
            3 => any(prng, &["x", "f", "g", "main", "_"]),
            _ => any(prng, &names),
        };
    }
    let mut inner = || any_expression(prng, depth - 1);
    let (a, b, c) = (inner(), inner(), inner());
    match prng.below(10) {
        0 => format!("({a} {b})"),
        1 => format!("({a} {b} {c})"),
        2 => format!("({a} >-> {b})"),
        3 => format!(
            "({a} {} {b})",
            any(prng, &[".<", ".==", ".&&.", ".||.", "<>", "+", "*", "~>", "$", "`any_bit`", "`f`"])
        ),
        4 => format!("[{a}, {b}]"),
        5 => format!("(if {a} then {b} else {c})"),
        6 => format!("(\\x -> {a})"),
        7 => format!("(case {a} of {{ {b} -> {c}; _ -> {a} }})"),
        8 => format!("(do {{ {a}; {b} }})"),
        _ => format!("({a}, {b})"),
    }
}

#[test]
fn ill_typed_programs_are_rejected_with_a_position_and_without_panic() {
    let seed = testkit::seed("ill_typed_programs_are_rejected_with_a_position_and_without_panic");
    let mut prng = Prng::new(seed);
    let mut ran = 0;
    for _ in 0..20_000 {
        let [f, g, main] = [2, 2, 3].map(|depth| any_expression(&mut prng, depth));
        let text = format!("f x = {f}\ng = {g}\nmain = {main}\n");
        match compile(&text) {
            Ok(compiled) => {
                ran += 1;
                assert_eq!(compiled.program.verify(), Ok(()), "seed {seed}: {text}");
            }
            Err(e) => {
                assert!(text.get(e.span.clone()).is_some(), "seed {seed}: {:?} is not a range of\n{text}", e.span);
                assert!(e.show(&text, "x").contains(" --> x:"), "seed {seed}: {text}");
            }
        }
    }
    assert!(ran > 30, "seed {seed}: only {ran} texts were valid programs");
}
