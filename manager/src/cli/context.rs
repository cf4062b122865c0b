//! What every command is given: how to speak, where to look.

use super::client::{self, Client, Found};
use super::error::CliError;
use super::home::Home;
use super::out::Out;
use std::path::PathBuf;

/// One run of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) out: Out,
    /// `--url` or `MUSTER_URL`.
    pub(crate) url: Option<String>,
    pub(crate) home: Home,
    /// `--config`: read by what runs here (`up`, `run` with a private fleet, `doctor`).
    pub(crate) config: Option<PathBuf>,
}

impl Context {
    /// The configured manager.
    ///
    /// # Errors
    /// Unreachable, when none is configured and none runs here.
    pub(crate) async fn client(&self) -> Result<Client, CliError> {
        match client::find(self.url.as_deref(), &self.home).await? {
            Found::Named { url, token } | Found::Local { url, token } => Client::new(&url, token),
            Found::Nothing => {
                let file = self.home.path("api.json");
                let detail = match self.home.api() {
                    Some(api) => format!("{} names {}, and nothing answers there", file.display(), api.url),
                    None => format!("no --url, no MUSTER_URL, no {}", file.display()),
                };
                Err(CliError::Unreachable {
                    url: None,
                    nobody: true,
                    detail,
                    hint: "start a fleet here with `muster up`, or name one by --url or MUSTER_URL".into(),
                })
            }
        }
    }
}
