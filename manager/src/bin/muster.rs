//! The command line `muster`. Parsing, commands and exit codes are in `cli.rs`.

#[path = "../cli.rs"]
mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
