//! The target reads messages of the control socket of groups: requests and responses. A message that was read is
//! written as text; when this text is read, the message must be the same.

use crate::Target;
use crate::targets::bytes::texts;
use group::{Policy, Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

pub const TARGET: Target = Target { name: "group_message", run, seeds, rounds: 12_000, memory: 4 << 20 };

fn run(bytes: &[u8]) {
    check::<Request>(bytes);
    check::<Response>(bytes);
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<T>(bytes) {
        let written = serde_json::to_vec(&message).expect("an object");
        assert_eq!(serde_json::from_slice::<T>(&written).expect("the same object"), message);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let group = || "web".to_owned();
    let create = Request::Create {
        group: group(),
        program: Some("main = tcp >-> steer_flow".into()),
        policy: Policy::Shared,
        fold: true,
        ports: Some(vec!["eth1".into()]),
        queues: Some(vec![0, 3]),
        ephemeral: true,
    };
    let classes = vec!["2".to_owned()];
    let (filter, name) = (Some("port 53".to_owned()), "x".to_owned());
    let join = Request::Join { group: group(), classes, weight: 2, filter, descs: 1 << 16, name };
    let (classes, port) = (Vec::new(), Some("eth2".to_owned()));
    let file = Some("/tmp/a.pcap".into());
    let attach = Request::Attach { group: group(), port, file, max_bytes: 9, classes, weight: 1, filter: None };
    let requests = [create, join, attach, Request::SetWeight { group: group(), slot: 1, weight: 9 }, Request::List];
    let mut seeds: Vec<Vec<u8>> = requests.iter().map(|r| serde_json::to_vec(r).expect("an object")).collect();
    for response in [Response::done(), Response::refusal("there is no group \"wbe\"")] {
        seeds.push(serde_json::to_vec(&response).expect("an object"));
    }
    seeds.extend(texts(&[
        r#"{"ok":true,"generation":3,"items":2,"slot":4,"took_us":12,"late":1,"branches":2}"#,
        r#"{"do":"swap","group":"web","program":null}"#,
    ]));
    seeds
}
