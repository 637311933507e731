//! `netgrain man`: writes the man pages of all verbs, from the table of verbs.

use crate::outcome::Failure;
use crate::verbs::Netgrain;
use clap::{Arg, Command, CommandFactory};
use std::path::Path;

/// Writes a man page for each verb into the directory.
///
/// # Errors
/// The directory or a page cannot be written.
pub fn write(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::uncreatable(dir, &e))?;
    clap_mangen::generate_to(with_shown_positionals(Netgrain::command()), dir)
        .map_err(|e| Failure::Said(format!("{}: {e}", dir.display())))
}

/// Returns the verbs without hidden positional arguments, which the synopsis of a man page would list. An argument of a
/// command cannot be removed, but a hidden option is in no part of a man page, so each of these arguments becomes a
/// hidden option.
fn with_shown_positionals(command: Command) -> Command {
    let hidden_option = |arg: Arg| match arg.is_positional() && arg.is_hide_set() {
        true => arg.last(false).long("hidden-positional"),
        false => arg,
    };
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = command.mut_args(hidden_option);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_shown_positionals))
}
