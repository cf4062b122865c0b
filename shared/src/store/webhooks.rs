//! What is told to the outside, kept until it was heard or given up. At least once: the receiver knows a repeat by its id.

use super::args::arg;
use super::{Result, Store, StoreError, reply, scripts};
use serde::{Deserialize, Serialize};

/// Version of [`Hook`] that is written; readers take this one.
pub const HOOK_VERSION: u32 = 1;

/// Something that needs a person, or an end of a goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Version of this format.
    pub v: u32,
    /// The same in every repeat: goal and id of the event in its log.
    pub id: String,
    pub goal: String,
    /// Key of the ticket; empty: it is about the goal.
    #[serde(default)]
    pub ticket: String,
    /// The event's word, and the state that ticket or goal is in now: `needs_human`, `awaiting_approval`, `done`, `failed`,
    /// `cancelled`.
    pub event: String,
    pub state: String,
    #[serde(default)]
    pub detail: String,
    pub at_ms: u64,
    /// Times that it was sent without being taken.
    #[serde(default)]
    pub tries: u32,
}

impl Store {
    /// Whether transitions put anything in from now on, for the whole fleet.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn hooks_listen(&self, on: bool) -> Result<()> {
        self.call(&scripts::WEBHOOKS, &[arg("listen"), arg(u8::from(on))]).await.map(drop)
    }

    /// Up to `most` that are due; nobody else takes them before `lease_ms` are over.
    ///
    /// # Errors
    /// [`StoreError`]. What does not decode is logged and dropped.
    pub async fn hooks_take(&self, most: usize, lease_ms: u64) -> Result<Vec<Hook>> {
        let args = [arg("take"), arg(most), arg(lease_ms)];
        let said = reply::texts(self.call(&scripts::WEBHOOKS, &args).await?)?;
        let mut hooks = vec![];
        for pair in said.chunks_exact(2) {
            match serde_json::from_str::<Hook>(&pair[1]) {
                Ok(hook) if hook.v == HOOK_VERSION => hooks.push(hook),
                Ok(_) | Err(_) => {
                    tracing::error!(id = pair[0], body = pair[1], "a webhook that does not read is dropped");
                    self.hook_done(&pair[0]).await?;
                }
            }
        }
        Ok(hooks)
    }

    /// It was heard, or is given up.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn hook_done(&self, id: &str) -> Result<()> {
        self.call(&scripts::WEBHOOKS, &[arg("done"), arg(id)]).await.map(drop)
    }

    /// It is sent again after a while.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn hook_again(&self, hook: &Hook, delay_ms: u64) -> Result<()> {
        let body = serde_json::to_string(hook).map_err(|e| StoreError::Broken(e.to_string()))?;
        let args = [arg("again"), arg(&hook.id), arg(body), arg(delay_ms)];
        self.call(&scripts::WEBHOOKS, &args).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_text_of_version_1() {
        let text = r#"{"v":1,"id":"g:1-0","goal":"g","ticket":"t","event":"handed_over","state":"needs_human","detail":"why","at_ms":7,"tries":0}"#;
        let hook: Hook = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&hook).unwrap(), text);
    }
}
