//! The services' configuration, for the commands that run something on this machine.

use super::context::Context;
use super::error::CliError;
use shared::config::Config;

/// File (`--config`, or `muster.toml` in this folder) and environment.
///
/// # Errors
/// Usage, naming the key and the way out.
pub(crate) fn load(ctx: &Context) -> Result<Config, CliError> {
    Config::load(ctx.config.as_deref()).map_err(|e| {
        let message = e.to_string();
        match message.split_once("\n  hint: ") {
            Some((what, hint)) => CliError::usage(what, hint),
            None => CliError::usage(message, "every key is documented in deploy/config/muster.toml"),
        }
    })
}
