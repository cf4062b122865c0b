//! `muster __exec`: becomes another program that is told (SIGTERM) when its parent dies, however it dies.
//! A detour by exec, because setting it between fork and exec would need unsafe code.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Process id of the parent.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    argv: Vec<OsString>,
}

/// Does not return unless the program cannot be started.
pub(crate) fn run(args: &Args) -> u8 {
    #[cfg(target_os = "linux")]
    {
        let set = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
        // The parent may have died before the call: nobody would tell us any more.
        if set.is_err() || nix::unistd::getppid().as_raw() != args.parent {
            return 1;
        }
    }
    let Some((program, rest)) = args.argv.split_first() else { return 64 };
    let e = std::process::Command::new(program).args(rest).exec();
    super::out::Out::new(false).note(&format!("{}: {e}", program.display()));
    if e.kind() == std::io::ErrorKind::NotFound { 64 } else { 1 }
}
