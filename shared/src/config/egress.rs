//! Section `[egress]`: what inside the network may be called by tools, beside the public internet.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Entries of [`Egress::allow`].
const ENTRIES_MAX: usize = 200;

/// Whom tools may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Egress {
    /// Addresses, networks and names inside the network that may be called: `10.1.2.3:8080`, `10.0.0.0/8`, `[::1]:80`,
    /// `orders.internal`, `*.internal`.
    pub allow: Vec<String>,
}

/// One entry, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Addresses whose first `bits` are those of `address`.
    Net { address: IpAddr, bits: u8, port: Option<u16> },
    /// A host name, or with `below` every name that ends with `.name`.
    Name { name: String, below: bool, port: Option<u16> },
}

impl Egress {
    /// The entries, read.
    ///
    /// # Errors
    /// Names the first one that is none.
    pub fn parsed(&self) -> Result<Vec<Allowed>, String> {
        if self.allow.len() > ENTRIES_MAX {
            return Err(format!("has more than {ENTRIES_MAX} entries; name a network instead"));
        }
        self.allow.iter().map(|entry| Allowed::parse(entry)).collect()
    }
}

impl Allowed {
    /// # Errors
    /// Says what an entry looks like.
    pub fn parse(entry: &str) -> Result<Self, String> {
        let wrong = || {
            Err(format!(
                "has {entry:?}, which is no address, network or name such as 10.0.0.0/8 or *.internal"
            ))
        };
        if let Some((address, bits)) = entry.split_once('/') {
            return match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
                (Ok(address), Ok(bits)) if bits <= width(address) => {
                    Ok(Self::Net { address, bits, port: None })
                }
                _ => wrong(),
            };
        }
        if let Ok(socket) = entry.parse::<SocketAddr>() {
            let address = socket.ip();
            return Ok(Self::Net { address, bits: width(address), port: Some(socket.port()) });
        }
        if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self::Net { address, bits: width(address), port: None });
        }
        let (host, port) = match entry.split_once(':') {
            None => (entry, None),
            Some((host, port)) => match port.parse::<u16>() {
                Ok(port) => (host, Some(port)),
                Err(_) => return wrong(),
            },
        };
        let (name, below) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        let is_name = name.split('.').all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        });
        if !is_name {
            return wrong();
        }
        Ok(Self::Name { name: name.to_ascii_lowercase(), below, port })
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_a_wrong_one_is_named() {
        let net = |address: &str, bits, port| Allowed::Net { address: address.parse().unwrap(), bits, port };
        let name = |name: &str, below, port| Allowed::Name { name: name.into(), below, port };
        for (entry, want) in [
            ("10.0.0.0/8", net("10.0.0.0", 8, None)),
            ("127.0.0.1:9090", net("127.0.0.1", 32, Some(9090))),
            ("[::1]:80", net("::1", 128, Some(80))),
            ("::1", net("::1", 128, None)),
            ("Orders.internal:8080", name("orders.internal", false, Some(8080))),
            ("*.internal", name("internal", true, None)),
        ] {
            assert_eq!(Allowed::parse(entry), Ok(want), "{entry}");
        }
        for bad in ["", "*", "10.0.0.0/33", "http://x", "a b", "x:99999", "a..b", "10.0.0.0/8:80"] {
            assert!(Allowed::parse(bad).is_err(), "{bad}");
        }
        let many = Egress { allow: vec!["a".into(); ENTRIES_MAX + 1] };
        assert!(many.parsed().unwrap_err().contains("more than"));
    }
}
