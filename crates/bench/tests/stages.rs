//! `netgrain bench` as a program of its own, and the stories about it. Stages start further processes of the program that
//! they are in, so this test is such a program: with `bench` as its first word it is the verb, else the test.

use clap::Parser;
use netgrain_bench::Stage;
use std::process::ExitCode;

#[derive(Parser)]
enum Verb {
    Bench {
        #[command(subcommand)]
        stage: Stage,
    },
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("bench") {
        let Verb::Bench { stage } = Verb::parse();
        return match stage.run(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::from(2)
            }
        };
    }
    ExitCode::SUCCESS
}
