//! Who may be called on a model's word: the guard before every tool that opens an address (SSRF).
//!
//! What a name resolves to is checked where the connection takes it from, so the address that is called is the one that
//! was checked; there is no second look-up that could say otherwise. Redirects are followed by the caller, each
//! through [`Guard::check`]. No proxy is used: it would resolve names itself, past the guard.

mod address;

use crate::config::{Allowed, Egress};
use address::{is_in, is_public};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder, Url};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::Host;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// An address is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("only http:// and https:// addresses can be opened")]
    Scheme,
    #[error("an address with a user or a password in it is not opened")]
    User,
    /// Private, loopback, link-local, metadata, multicast: nothing of the public internet.
    #[error(
        "`{0}` is inside the fleet's own network, which tools do not call; an operator can allow it in egress.allow"
    )]
    Inside(String),
    #[error("`{0}` is not known, its name does not resolve")]
    Unknown(String),
}

impl Refused {
    /// The refusal in an error of the client, if that is what it was.
    #[must_use]
    pub fn of(error: &reqwest::Error) -> Option<Self> {
        let mut at = std::error::Error::source(error);
        while let Some(source) = at {
            if let Some(refused) = source.downcast_ref::<Self>() {
                return Some(refused.clone());
            }
            at = source.source();
        }
        None
    }
}

/// How names become addresses; tests play a lying one.
type Lookup = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// The rule, made once of the configuration; cheap to clone.
#[derive(Clone)]
pub struct Guard {
    allow: Arc<[Allowed]>,
    lookup: Option<Lookup>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("allow", &self.allow).finish_non_exhaustive()
    }
}

impl Guard {
    /// # Errors
    /// An entry of `egress.allow` that is none, by name.
    pub fn new(config: &Egress) -> Result<Self, String> {
        Ok(Self { allow: config.parsed()?.into(), lookup: None })
    }

    /// Also what an operator wrote as an address, or as `localhost`, into this URL: there is nothing to be fooled by.
    /// A name still has to resolve to what may be called.
    #[must_use]
    pub fn also(mut self, url: &Url) -> Self {
        let port = url.port_or_known_default();
        let more = match url.host() {
            Some(Host::Ipv4(ip)) => Allowed::Net { address: ip.into(), bits: 32, port },
            Some(Host::Ipv6(ip)) => Allowed::Net { address: ip.into(), bits: 128, port },
            Some(Host::Domain(name)) if name.eq_ignore_ascii_case("localhost") => {
                Allowed::Name { name: "localhost".into(), below: false, port }
            }
            Some(Host::Domain(_)) | None => return self,
        };
        self.allow = self.allow.iter().cloned().chain([more]).collect();
        self
    }

    /// Whether this address may be called, as far as it says itself; what a name resolves to is looked at when it is
    /// called. To be asked for the first address and for every redirect.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, url: &Url) -> Result<(), Refused> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err(Refused::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::User);
        }
        let port = url.port_or_known_default();
        let literal = |ip: IpAddr| {
            let is_allowed = |entry: &Allowed| match entry {
                Allowed::Net { address, bits, port: only } => {
                    is_in(ip, *address, *bits) && (only.is_none() || *only == port)
                }
                Allowed::Name { .. } => false,
            };
            if is_public(ip) || self.allow.iter().any(is_allowed) {
                Ok(())
            } else {
                Err(Refused::Inside(ip.to_string()))
            }
        };
        match url.host() {
            Some(Host::Ipv4(ip)) => literal(ip.into()),
            Some(Host::Ipv6(ip)) => literal(ip.into()),
            Some(Host::Domain(name)) => {
                // A name that is allowed on some ports is not called on others.
                let ports: Vec<Option<u16>> = self.ports_of(name).collect();
                if ports.is_empty() || ports.contains(&None) || ports.contains(&port) {
                    Ok(())
                } else {
                    Err(Refused::Inside(name.into()))
                }
            }
            None => Err(Refused::Scheme),
        }
    }

    /// A client whose connections all pass the guard; it follows no redirects and uses no proxy.
    pub fn client(&self) -> ClientBuilder {
        Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(self.clone()))
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
    }

    fn ports_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = Option<u16>> + 'a {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.allow.iter().filter_map(move |entry| match entry {
            Allowed::Name { name, below, port } => {
                let holds = if *below {
                    host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'))
                } else {
                    host == *name
                };
                holds.then_some(*port)
            }
            Allowed::Net { .. } => None,
        })
    }

    /// Those addresses of a name that may be called.
    fn admitted(&self, host: &str, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, Refused> {
        if found.is_empty() {
            return Err(Refused::Unknown(host.into()));
        }
        let is_named = self.ports_of(host).next().is_some();
        // An address that is allowed on one port only counts where the URL itself has it: here no port is known.
        let in_network = |ip: IpAddr| {
            self.allow.iter().any(|entry| match entry {
                Allowed::Net { address, bits, port: None } => is_in(ip, *address, *bits),
                Allowed::Net { .. } | Allowed::Name { .. } => false,
            })
        };
        let kept: Vec<IpAddr> = found
            .into_iter()
            .filter(|ip| is_named || is_public(*ip) || in_network(*ip))
            .take(ADDRESSES_MAX)
            .collect();
        if kept.is_empty() { Err(Refused::Inside(host.into())) } else { Ok(kept) }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = match &guard.lookup {
                Some(lookup) => lookup(&host),
                None => match tokio::net::lookup_host((host.as_str(), 0)).await {
                    Ok(found) => found.map(|socket| socket.ip()).collect(),
                    Err(_) => vec![],
                },
            };
            let kept = guard.admitted(&host, found)?;
            Ok(Box::new(kept.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
