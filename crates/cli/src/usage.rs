//! The message for an error in the arguments: one line with the error, a correction, and the help command of the typed
//! verb. The message is made from the kind and the context of clap's error.

use crate::file_arguments::is_named_as_capture;
use crate::verbs::Netgrain;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::path::Path;

/// Returns the message for a command-line error, in one line; `words` are the arguments after the name of the program.
pub fn message(e: &clap::Error, words: &[String]) -> String {
    let mut netgrain = Netgrain::command();
    netgrain.build();
    let verb = typed_verb(&netgrain, words);
    let text = match e.kind() {
        ErrorKind::MissingRequiredArgument => missing(e, &verb),
        ErrorKind::UnknownArgument => unknown(e, &netgrain, &verb),
        ErrorKind::InvalidSubcommand => no_verb(e, &verb),
        ErrorKind::InvalidValue if text_of(e, ContextKind::InvalidValue).is_some_and(|v| v.is_empty()) => {
            text_of(e, ContextKind::InvalidArg).map(|arg| format!("'{arg}' needs a value"))
        }
        ErrorKind::InvalidValue => not_a_choice(e),
        ErrorKind::ArgumentConflict => conflict(e),
        _ => None,
    };
    format!("{}; see {} --help", text.unwrap_or_else(|| plain(e)), verb.path)
}

/// The verb on the command line, or the program if no verb was recognized.
struct TypedVerb<'a> {
    command: &'a Command,
    /// `netgrain VERB`.
    path: String,
    /// The words after the verb.
    rest: &'a [String],
}

fn typed_verb<'a>(netgrain: &'a Command, words: &'a [String]) -> TypedVerb<'a> {
    let mut typed = TypedVerb { command: netgrain, path: "netgrain".into(), rest: words };
    while let Some((word, rest)) = typed.rest.split_first()
        && let Some(inner) = typed.command.find_subcommand(word)
    {
        typed = TypedVerb { command: inner, path: format!("{} {}", typed.path, inner.get_name()), rest };
    }
    typed
}

fn text_of(e: &clap::Error, kind: ContextKind) -> Option<String> {
    match e.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(all) => Some(all.join(" ")),
        _ => None,
    }
}

fn values_of(e: &clap::Error, kind: ContextKind) -> Vec<String> {
    match e.get(kind) {
        Some(ContextValue::Strings(all)) => all.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

/// The text that clap itself makes for the error, in one line.
fn plain(e: &clap::Error) -> String {
    let text = e.render().to_string();
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let message: Vec<_> = lines.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more")).collect();
    message.join(" ").replace(" tip: ", "; ").trim_start_matches("error: ").to_owned()
}

fn missing(e: &clap::Error, verb: &TypedVerb<'_>) -> Option<String> {
    let wanted = values_of(e, ContextKind::InvalidArg);
    let is_query = ["packets", "flows", "series"].contains(&verb.command.get_name());
    if !is_query || !wanted.iter().any(|arg| arg.starts_with("--store")) {
        let what = if wanted.len() == 1 { "a required argument is" } else { "required arguments are" };
        let advice = match (verb.command.get_name(), &wanted[..]) {
            ("record", [store]) if store.starts_with("--store") => {
                " (the directory for the packet files, as in --store /data)"
            }
            _ => "",
        };
        return Some(format!("{what} missing: {}{advice}", wanted.join(" ")));
    }
    if let Some(file) = verb.rest.iter().find(|word| !word.starts_with('-') && Path::new(word).is_file()) {
        return Some(format!("{file} is a file: use -r {file}"));
    }
    if let Some(directory) = verb.rest.iter().find(|word| !word.starts_with('-') && Path::new(word).is_dir()) {
        return Some(format!(
            "{directory} is a directory: use --store {directory} if it is a store, or -r with the files in it"
        ));
    }
    let file = verb.rest.iter().find(|word| !word.starts_with('-') && is_named_as_capture(word));
    if let Some(file) = file {
        return Some(format!("there is no file {file}: check the path, then use -r {file}"));
    }
    Some("a source is missing: add --store <DIR> for a store, or -r <FILE> for files".into())
}

fn unknown(e: &clap::Error, netgrain: &Command, verb: &TypedVerb<'_>) -> Option<String> {
    let given = text_of(e, ContextKind::InvalidArg)?;
    if !given.starts_with('-') {
        let has_filter = verb.command.get_arguments().any(|arg| arg.get_long() == Some("filter"));
        let advice = if has_filter { "; a filter follows --filter, as in --filter 'tcp port 80'" } else { "" };
        return Some(format!("the argument '{given}' is unexpected{advice}"));
    }
    let text = format!("{} has no option '{given}'", verb.path);
    if let Some(similar) = similar_option(&given, verb) {
        return Some(format!("{text}; did you mean '{similar}'?"));
    }
    let takes_paths = verb.command.get_positionals().any(|arg| ["PATH", "FILE"].contains(&value_name(arg)));
    if takes_paths && ["-r", "--read"].contains(&given.as_str()) {
        return Some(format!("{text}; name the files without {given}, as in {} FILE", verb.path));
    }
    let others: Vec<&str> = netgrain
        .get_subcommands()
        .filter(|other| !other.is_hide_set() && other.get_name() != verb.command.get_name())
        .filter(|other| other.get_arguments().any(|arg| is_named(arg, &given)))
        .map(Command::get_name)
        .collect();
    Some(match &others[..] {
        [] => text,
        [one] => format!("{text}; it is an option of netgrain {one}"),
        some => format!("{text}; it is an option of the verbs {}", some.join(", ")),
    })
}

/// Names of options in other tools, and the names of the same options in netgrain.
const OF_OTHER_TOOLS: [(&str, &[&str]); 8] = [
    ("interface", &["iface", "if", "intf", "dev", "device"]),
    ("by", &["sort", "sort-by", "order", "order-by"]),
    ("limit", &["head", "max", "max-count"]),
    ("write", &["output", "out", "outfile"]),
    ("read", &["file", "input"]),
    ("from", &["start", "since", "begin", "after"]),
    ("to", &["end", "until", "before"]),
    ("packets", &["count", "max-packets"]),
];

/// The option of the verb that the given option probably means: an option with a similar name, or with the same meaning
/// in other tools. The similarity of clap is not used, because it also finds names that are not near.
fn similar_option(given: &str, verb: &TypedVerb<'_>) -> Option<String> {
    let name = given.strip_prefix("--")?.split('=').next()?;
    let options: Vec<&str> =
        verb.command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long).collect();
    let of_other_tool = OF_OTHER_TOOLS.iter().find(|(option, names)| options.contains(option) && names.contains(&name));
    let option = of_other_tool.map(|(option, _)| *option).or_else(|| base::nearest(name, options));
    option.map(|option| format!("--{option}"))
}

fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str())
}

fn is_named(arg: &Arg, given: &str) -> bool {
    let long = given.strip_prefix("--").map(|long| long.split_once('=').map_or(long, |(name, _)| name));
    match long {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short() == given.chars().nth(1),
    }
}

fn no_verb(e: &clap::Error, verb: &TypedVerb<'_>) -> Option<String> {
    let given = text_of(e, ContextKind::InvalidSubcommand)?;
    let text = format!("'{given}' is not a verb of {}", verb.path);
    let verbs = verb.command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help");
    let verbs: Vec<&str> = verbs.map(Command::get_name).collect();
    if let Some(similar) = base::nearest(&given, verbs.iter().copied()) {
        return Some(format!("{text}; did you mean '{similar}'?"));
    }
    if Path::new(&given).is_file() {
        return Some(format!(
            "{text}, but a file: use netgrain packets -r {given}, netgrain flows -r or netgrain series -r"
        ));
    }
    Some(format!("{text}; the verbs are {}", verbs.join(", ")))
}

fn not_a_choice(e: &clap::Error) -> Option<String> {
    let (arg, value) = (text_of(e, ContextKind::InvalidArg)?, text_of(e, ContextKind::InvalidValue)?);
    let text = format!("'{value}' is not a value of '{arg}'");
    let choices = values_of(e, ContextKind::ValidValue);
    let text = if choices.is_empty() { text } else { format!("{text}; write one of {}", choices.join(", ")) };
    Some(match base::nearest(&value, choices.iter().map(String::as_str)) {
        Some(similar) => format!("{text}; did you mean '{similar}'?"),
        None => text,
    })
}

fn conflict(e: &clap::Error) -> Option<String> {
    let given = text_of(e, ContextKind::InvalidArg)?;
    let others = values_of(e, ContextKind::PriorArg);
    if others.is_empty() || others == [given.clone()] {
        return Some(format!("'{given}' cannot be used twice; write it once"));
    }
    let others: Vec<String> = others.iter().map(|other| format!("'{other}'")).collect();
    Some(format!("'{given}' cannot be used with {}; leave one of them out", others.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn message_for(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let all = ["netgrain".to_owned()].into_iter().chain(words.iter().cloned());
        let e = Netgrain::try_parse_from(all).map(drop).expect_err("clap rejects the arguments");
        message(&e, &words)
    }

    #[test]
    fn an_error_names_the_help_command_of_the_typed_verb() {
        for (line, help) in [
            ("packets -r", "see netgrain packets --help"),
            ("flows --store S --top", "see netgrain flows --help"),
            ("flows --store S --group foo", "see netgrain flows --help"),
            ("record -r x.pcap", "see netgrain record --help"),
            ("verify -r x.pcap", "see netgrain verify --help"),
            ("run --sim 60 --source-kind pcap", "see netgrain run --help"),
            ("group create x --colour", "see netgrain group create --help"),
            ("recrod", "see netgrain --help"),
        ] {
            assert!(message_for(line).ends_with(&format!("; {help}")), "{line}: {}", message_for(line));
        }
    }

    #[test]
    fn missing_arguments_are_named_in_the_right_number() {
        assert!(message_for("convert x.pcap").starts_with("a required argument is missing: "));
        assert!(message_for("convert").starts_with("required arguments are missing: "), "{}", message_for("convert"));
    }

    #[test]
    fn an_unknown_option_lists_the_verbs_that_have_it() {
        assert!(
            message_for("retain --parquet x").contains("an option of the verbs flows, series"),
            "{}",
            message_for("retain --parquet x")
        );
        assert!(message_for("verify -r x").contains("as in netgrain verify FILE"), "{}", message_for("verify -r x"));
        assert!(message_for("flows --store S --stoer x").contains("did you mean '--store'?"));
    }

    #[test]
    fn only_near_names_and_names_of_other_tools_are_suggested() {
        for (line, option) in [
            ("flows --store S --iface eth1", "--interface"),
            ("flows --store S --sort bytes", "--by"),
            ("packets --store S --start now", "--from"),
            ("run --outtput x", ""),
            ("flows --store S --frobnicate", ""),
        ] {
            let message = message_for(line);
            let expected = format!("did you mean '{option}'?");
            assert!(message.contains(&expected) != option.is_empty(), "{line}: {message}");
            assert!(message.contains("did you mean") != option.is_empty(), "{line}: {message}");
        }
        assert!(message_for("recrod").contains("did you mean 'record'?"));
        assert!(message_for("capture").contains("the verbs are run, record"), "{}", message_for("capture"));
        assert!(message_for("packets --store S --format tsv").contains("write one of"));
    }

    #[test]
    fn a_filter_without_its_flag_names_the_flag() {
        for verb in ["listen -i eth1", "record --store S -i eth1", "run --store S -i eth1"] {
            let message = message_for(&format!("{verb} tcp"));
            assert!(message.starts_with("the argument 'tcp' is unexpected; a filter follows --filter"), "{message}");
        }
    }

    #[test]
    fn a_query_without_a_source_is_an_error_that_names_both_sources() {
        for verb in ["packets", "flows", "series"] {
            assert!(message_for(verb).contains("add --store <DIR> for a store, or -r <FILE>"), "{}", message_for(verb));
            let file = message_for(&format!("{verb} no-such.pcap"));
            assert!(file.contains("there is no file no-such.pcap: check the path, then use -r no-such.pcap"), "{file}");
        }
    }
}
