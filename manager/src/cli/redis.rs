//! The private Redis of a fleet on this machine: its configuration file, its program, and whether it answers.

use super::children::Program;
use super::error::CliError;
use super::home::{Home, secret, write_private};
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Oldest version that the scripts are written for.
pub(crate) const VERSION_MIN: (u32, u32) = (7, 0);
const HINT: &str =
    "Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis; or ./deploy/quickstart.sh";
/// One try of asking whether it answers.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// A server that only this fleet uses: on loopback, behind a random password, its data under `.muster/redis`.
#[derive(Clone, Debug)]
pub(crate) struct PrivateRedis {
    port: u16,
    pub(crate) password: String,
    conf: PathBuf,
    pub(crate) version: String,
}

impl PrivateRedis {
    /// Finds the program and a free port, and writes the configuration.
    ///
    /// # Errors
    /// Usage when there is no redis-server or an old one, with the command that installs it.
    pub(crate) async fn prepare(home: &Home) -> Result<Self, CliError> {
        let version = version().await?;
        let port = free_port()?;
        // A password at all, because any user of this machine reaches a loopback port.
        let password = secret("r");
        let conf = home.path("redis/redis.conf");
        let folder = home.path("redis").display().to_string();
        write_private(&conf, &configuration(port, &password, &folder))?;
        Ok(Self { port, password, conf, version })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn program(&self) -> Program {
        Program {
            name: "redis".into(),
            argv: vec!["redis-server".into(), self.conf.clone().into_os_string()],
            env: vec![],
        }
    }

    /// Whether it answers and has loaded its data.
    pub(crate) async fn answers(&self) -> bool {
        tokio::time::timeout(PING_TIMEOUT, self.ping()).await.is_ok_and(|r| r.unwrap_or(false))
    }

    async fn ping(&self) -> std::io::Result<bool> {
        let mut to = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
        to.write_all(format!("AUTH {}\r\nPING\r\n", self.password).as_bytes()).await?;
        let mut heard = Vec::new();
        let mut buffer = [0; 256];
        loop {
            let n = to.read(&mut buffer).await?;
            heard.extend_from_slice(&buffer[..n]);
            let lines = heard.iter().filter(|b| **b == b'\n').count();
            if n == 0 || lines >= 2 {
                return Ok(String::from_utf8_lossy(&heard).contains("+PONG"));
            }
        }
    }
}

/// A port that nobody listens on now.
pub(crate) fn free_port() -> Result<u16, CliError> {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .map(|a| a.port())
        .map_err(|e| CliError::failed(format!("no free port on loopback: {e}"), "is loopback up?"))
}

fn configuration(port: u16, password: &str, folder: &str) -> String {
    let folder = folder.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "# Written by `muster up` at every start; changes are lost.\n\
         bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir \"{folder}\"\ndaemonize no\n\
         appendonly yes\nappendfsync everysec\naof-load-truncated yes\nsave \"\"\n\
         maxmemory-policy noeviction\ntcp-keepalive 60\n"
    )
}

/// The installed version, checked.
async fn version() -> Result<String, CliError> {
    let shown = tokio::process::Command::new("redis-server").arg("--version").output().await;
    let shown = match shown {
        Ok(shown) => String::from_utf8_lossy(&shown.stdout).into_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(CliError::usage("there is no redis-server on this machine", HINT));
        }
        Err(e) => return Err(CliError::failed(format!("redis-server: {e}"), HINT)),
    };
    let Some(version) = shown.split_whitespace().find_map(|w| w.strip_prefix("v=")) else {
        return Err(CliError::usage(
            format!("redis-server does not say its version: {}", shown.trim()),
            HINT,
        ));
    };
    if !is_new_enough(version) {
        return Err(CliError::usage(
            format!("redis-server is {version}, at least {}.{} is needed", VERSION_MIN.0, VERSION_MIN.1),
            HINT,
        ));
    }
    Ok(version.to_owned())
}

/// Whether a version such as `7.0.15` will do.
pub(crate) fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= VERSION_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_new_enough("7.0.15") && is_new_enough("10.1") && is_new_enough("8.2.1"));
        assert!(!is_new_enough("6.2.14") && !is_new_enough(""));
    }

    #[test]
    fn a_folder_with_blanks_and_quotes_is_quoted() {
        let conf = configuration(1, "p", "/a b/\"c\"");
        assert!(conf.contains("dir \"/a b/\\\"c\\\"\"\n"), "{conf}");
        assert!(conf.contains("maxmemory-policy noeviction\n") && conf.contains("appendonly yes\n"));
    }
}
