//! What the fleet knows of an endpoint and model: how it wants to be asked. Text of the client's own making.

use super::{Result, Store, reply};

/// A probe that died is repeated after this.
const PROBE_S: &str = "120";

impl Store {
    /// What is known; `None`: nothing, or it has expired.
    ///
    /// # Errors
    /// [`super::StoreError`]; repeatable.
    pub async fn model_traits(&self, endpoint: &str) -> Result<Option<String>> {
        let text = reply::text(self.command("GET", &[&self.keys.at(&format!("mt:{endpoint}"))]).await?)?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Keeps it for so long.
    ///
    /// # Errors
    /// [`super::StoreError`]; repeatable.
    pub async fn keep_model_traits(&self, endpoint: &str, text: &str, expiry_s: u64) -> Result<()> {
        let (key, expiry) = (self.keys.at(&format!("mt:{endpoint}")), expiry_s.max(1).to_string());
        self.command("SET", &[&key, text, "EX", &expiry]).await?;
        Ok(())
    }

    /// Whether this process is the one to probe: one at a time in the fleet.
    ///
    /// # Errors
    /// [`super::StoreError`]; after one it is not known whether the probe was claimed.
    pub async fn claim_probe(&self, endpoint: &str) -> Result<bool> {
        let key = self.keys.at(&format!("mtp:{endpoint}"));
        Ok(reply::text(self.command("SET", &[&key, "1", "NX", "EX", PROBE_S]).await?)? == "OK")
    }
}
