//! `muster completions`: what a shell needs to complete commands and options.

use super::context::Context;
use super::error::{CliError, Exit};
use clap::CommandFactory as _;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster completions bash > ~/.local/share/bash-completion/completions/muster\n  \
        muster completions zsh > ~/.zfunc/_muster\n  muster completions fish > ~/.config/fish/completions/muster.fish"
)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

/// The script, to stdout; it knows the commands of this very binary.
pub(crate) fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut super::Cli::command(), "muster", &mut script);
    ctx.out.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
