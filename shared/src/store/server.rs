//! What must be true of the server before tickets are given to it.

use super::{Result, Store, reply};
use redis::Value;

/// The scripts use nothing newer than this.
const VERSION_MIN: (u32, u32) = (7, 0);

impl Store {
    /// Redis clock, milliseconds.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn now_ms(&self) -> Result<u64> {
        let mut parts = reply::array(self.command("TIME", &[]).await?)?.into_iter();
        let seconds = reply::number(parts.next().unwrap_or(Value::Nil))?;
        let micros = reply::number(parts.next().unwrap_or(Value::Nil))?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// One section of INFO as text.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer or the user may not ask.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the crate's enum grows; anything but a map is one node's text"
    )]
    pub async fn server_info(&self, section: &str) -> Result<String> {
        match self.command("INFO", &[section]).await? {
            // A cluster answers for each of its nodes.
            Value::Map(nodes) => Ok(nodes
                .into_iter()
                .next()
                .map_or(String::new(), |(_, v)| reply::text(v).unwrap_or_default())),
            other => reply::text(other),
        }
    }

    /// What [`Store::connect`] would refuse, each with the way out. Empty: all is well.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn problems(&self, allow_no_persistence: bool) -> Result<Vec<String>> {
        let mut out = vec![];
        let server = self.server_info("server").await?;
        let version = field(&server, "redis_version");
        if older(&version) {
            out.push(format!("redis {version} is too old\n  hint: use redis 7.0 or newer"));
        }
        // From INFO, which a plain ACL user may read: CONFIG is an administrator's.
        let memory = self.server_info("memory").await?;
        let policy = field(&memory, "maxmemory_policy");
        if !policy.is_empty() && policy != "noeviction" {
            out.push(format!(
                "redis may evict tickets: maxmemory-policy is {policy}\n  hint: CONFIG SET maxmemory-policy noeviction, and in redis.conf"
            ));
        }
        let persistence = self.server_info("persistence").await?;
        if field(&persistence, "aof_enabled") != "1" && !allow_no_persistence {
            out.push(
                "redis keeps no append-only file: a restart would lose tickets\n  hint: CONFIG SET appendonly yes, and in redis.conf; or accept the loss with redis.allow_no_persistence = true"
                    .into(),
            );
        }
        Ok(out)
    }
}

pub(super) fn field(info: &str, name: &str) -> String {
    info.lines()
        .find_map(|l| l.strip_prefix(name).and_then(|r| r.strip_prefix(':')))
        .map(|v| v.trim().to_owned())
        .unwrap_or_default()
}

fn older(version: &str) -> bool {
    let mut parts = version.split('.').map(|p| p.parse().unwrap_or(0));
    let got: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    !version.is_empty() && got < VERSION_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(older("6.2.14"));
        assert!(!older("7.0.15"));
        assert!(!older("10.1.0"));
        assert!(!older(""));
    }
}
