//! Synthetic traffic of `netgrain gen`: conversations, distributions and self-similar sources, written into a capture.

use super::{GenArgs, TRUTH_OF_TCP, check_extension, create, failed, print};
use crate::outcome::{Failure, Outcome, versioned};
use crate::overwrite;
use crate::privileges;
use crate::signals;
use crate::style::plural;
use base::Timestamp;
use base::units::Rate;
use engine::Sent;
use r#gen::{ConversationTruth, Synthetic, SyntheticKind, SyntheticSpec};
use pcap::classic::{Resolution, Writer};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Writes the synthetic traffic that `args` describes to a capture, and the truths of its conversations to a file.
pub fn run(args: &GenArgs) -> Result<Outcome, Failure> {
    let mut spec: SyntheticSpec = args.spec.parse().map_err(Failure::say)?;
    spec.packets = args.packets.or(spec.packets);
    spec.duration = args.duration.or(spec.duration);
    spec.has_end().map_err(Failure::say)?;
    let Some(path) = &args.write else {
        return Err(Failure::Said(
            "this traffic is written to a file with -w, and netgrain replay sends the file with its timing".to_owned(),
        ));
    };
    if args.rate.is_some_and(|rate| rate != Rate::Flat) {
        return Err(Failure::Said(
            "--rate does not apply to this traffic: set its gaps, or use netgrain replay --speed".to_owned(),
        ));
    }
    if let Some(truth) = &args.truth {
        if !matches!(spec.kind, SyntheticKind::Conversations(_)) {
            return Err(Failure::Said(TRUTH_OF_TCP.to_owned()));
        }
        if is_same_file(path, truth) {
            return Err(Failure::Said(format!(
                "{}: -w and --truth name the same file: write the frames and the truth to two files",
                truth.display()
            )));
        }
    }
    privileges::keep_calls_of_queries()?;
    check_extension(path)?;
    let fail = |e: std::io::Error| failed(path, &e);
    let mut out = Writer::new(create(path, args.overwrite.force)?, Resolution::Nanos, 1).map_err(fail)?;
    let mut truth = match &args.truth {
        Some(path) => Some((path, create(path, args.overwrite.force)?)),
        None => None,
    };
    let begin = sys::clock::realtime();
    let mut traffic = Synthetic::new(&spec, begin);
    if truth.is_some() {
        traffic = traffic.with_truth();
    }
    let (stop, mut sent) = (signals::stop_flag(), Sent::default());
    let mut frame = vec![0; traffic.max_len()];
    while !stop.load(Ordering::Relaxed) {
        let Some((ts, len)) = traffic.next(&mut frame) else { break };
        out.write(ts, len as u32, &frame[..len]).map_err(fail)?;
        (sent.made, sent.sent, sent.bytes) = (sent.made + 1, sent.sent + 1, sent.bytes + len as u64);
        sent.nanos = ts.since(begin).as_nanos() as u64;
        if let Some((path, file)) = &mut truth {
            for ended in traffic.take_ended() {
                writeln!(file, "{}", document(&ended, begin)).map_err(|e| failed(path, &e))?;
            }
        }
    }
    out.finish().and_then(|mut file| file.flush()).map_err(fail)?;
    if let Some((path, mut file)) = truth {
        for conversation in traffic.take_ended().into_iter().chain(traffic.take_open()) {
            writeln!(file, "{}", document(&conversation, begin)).map_err(|e| failed(path, &e))?;
        }
        file.flush().map_err(|e| failed(path, &e))?;
    }
    print(args, &sent)?;
    if traffic.limited() > 0 {
        let frames = plural(traffic.limited(), "frame length", "frame lengths");
        sys::say!("netgrain: {frames} of the distribution outside of 60 to 9014 bytes, set to the nearest of them");
    }
    Ok(Outcome::Yes)
}

/// True if two outputs are one file, or both are standard output.
fn is_same_file(a: &Path, b: &Path) -> bool {
    // A file that does not exist yet is compared by its directory and its name.
    let place = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((parent.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    // Links of a file have its number. A device such as /dev/null can take both outputs.
    let number = |path: &Path| {
        let about = path.metadata().ok().filter(|about| about.is_file())?;
        Some((about.dev(), about.ino()))
    };
    let is_device = a.metadata().is_ok_and(|about| !about.is_file());
    match (overwrite::is_stdout(a), overwrite::is_stdout(b)) {
        (true, true) => true,
        (false, false) if !is_device => {
            place(a).is_some_and(|place_a| place(b) == Some(place_a))
                || number(a).is_some_and(|number_a| number(b) == Some(number_a))
        }
        _ => false,
    }
}

/// The truth of a conversation as a JSON document.
fn document(truth: &ConversationTruth, begin: Timestamp) -> serde_json::Value {
    let time = |nanos| begin.after(std::time::Duration::from_nanos(nanos)).nanos().to_string();
    let [client, server] = truth.addresses.map(|address| Ipv4Addr::from_bits(address).to_string());
    let side = |n: usize| {
        serde_json::json!({
            "packets": truth.packets[n],
            "bytes": truth.bytes[n],
            "payload": truth.payload[n],
            "repeated": truth.repeated[n],
            "late": truth.late[n],
            "lost_before": truth.lost_before[n],
            "lost_after": truth.lost_after[n],
        })
    };
    versioned(serde_json::json!({
        "id": truth.id,
        "client": client,
        "server": server,
        "client_port": truth.ports[0],
        "server_port": truth.ports[1],
        "begin_nanos": time(truth.begin),
        "end_nanos": time(truth.end),
        "from_client": side(0),
        "from_server": side(1),
        "reset": truth.is_reset,
        "complete": truth.is_complete,
    }))
}
