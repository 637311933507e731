//! The target compiles programs of the packet language. A program that compiles must pass the verifier and must run
//! without a panic. Its formatted text must compile to the same program, and formatting this text again must not change
//! it.

use crate::Target;
use crate::targets::bytes::{text_of, texts};
use crate::targets::packet::frames;
use ir::Facts;
use ir::interp::{Interpreter, ProgramState};
use lang::{compile, headline, syntax};
use std::sync::OnceLock;
use wire::link;

pub const TARGET: Target = Target { name: "program", run, seeds, rounds: 2500, memory: 64 << 20 };

fn run(bytes: &[u8]) {
    let text = text_of(bytes);
    headline(text);
    syntax::is_incomplete(text);
    let formatted = syntax::format(text);
    if let Ok(formatted) = &formatted {
        assert_eq!(syntax::format(formatted).as_ref(), Ok(formatted));
    }
    let compiled = match compile(text) {
        Ok(compiled) => compiled,
        Err(e) => return drop((e.show(text, "program"), e.place(text), e.excerpt(text))),
    };
    assert_eq!(compiled.program.verify(), Ok(()));
    let formatted = formatted.expect("formatted, because the program compiles");
    let again = compile(&formatted).unwrap_or_else(|e| panic!("{}", e.show(&formatted, "formatted")));
    assert_eq!(again.program.blocks, compiled.program.blocks);
    let mut state = ProgramState::of(&compiled.program, 7);
    let mut interpreter = Interpreter::new(&compiled.program);
    for (frame, facts) in samples() {
        interpreter.run(frame, facts, &mut state);
    }
}

fn samples() -> &'static [(Vec<u8>, Facts)] {
    static SAMPLES: OnceLock<Vec<(Vec<u8>, Facts)>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let facts = |frame: &[u8]| Facts::of(frame, frame.len() as u32, link::ETHERNET);
        frames().into_iter().map(|frame| (frame.clone(), facts(&frame))).collect()
    })
}

fn seeds() -> Vec<Vec<u8>> {
    texts(&[
        "main = ip >-> when is_tcp (forward \"eth1\") >-> steer_flow\n",
        "-- web\nmain = filter (has_port 80 || has_port 443) >-> log_msg \"seen\" >-> steer_flow\n",
        "main = case_of ip_tos $ with [0 ~> drop, 1 ~> kernel] >-> broadcast\n",
        "flows = up_to 1000 (flow_map 0 key_5tuple)\nmain = tcp >-> modify_fstate flows (+1) >-> class 2\n",
        "main = bpf \"tcp port 80 and not vlan\" >-> steer_p2p\n",
        "main = par (bloom_filter 1024 [10.0.0.1, 10.0.0.2] 32) (vlan_id_filter [10, 20]) >-> inv (mark 42)\n",
        "twice f = f >-> f\nmain = twice (modifyCounter (counter 1) (+1)) >-> link [\"eth1\", \"eth2\"]\n",
        "main = do\n  unless (has_addr_in [10.0.0.0/8, 2001:db8::/32]) drop\n  steer_field 26 4\n",
    ])
}
