//! The journal of calls that change the world outside: an intent before, an outcome after, single-use permits with them.

use super::args::arg;
use super::{Held, Result, Store, StoreError, reply, scripts};
use serde::{Deserialize, Serialize};

/// What is known of an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// It ran; its answer is kept.
    Done,
    /// A person says that it is not to be run again.
    Settled,
    /// It did not happen.
    Retracted,
    /// Begun, and nothing heard since: in doubt once its worker is gone. Also what a newer version wrote (I7).
    #[default]
    #[serde(other)]
    Intent,
}

/// One record of the journal, the same in Redis and beside the goal's objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Version of this format.
    pub v: u32,
    pub state: EffectState,
    pub tool: String,
    pub args: serde_json::Value,
    /// Of tool and arguments.
    pub digest: String,
    /// Epoch of the attempt that began it.
    pub epoch: u64,
    /// What the tool answered, or what a person said.
    pub answer: String,
    pub ok: bool,
}

impl Effect {
    /// Version that is written.
    pub const VERSION: u32 = 1;
}

/// Answer to a begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// Run it now, once.
    Run,
    /// It stands in the journal already.
    Known(Box<Effect>),
    /// There is no approved permit any more.
    Denied,
    /// The ticket is another's, or the goal is over.
    Fenced,
    /// The ticket's journal is full (I11).
    Full,
}

fn read(text: &str) -> Effect {
    // What does not read is an intent whose outcome nobody knows: never run again by itself.
    serde_json::from_str(text).unwrap_or_default()
}

fn written(effect: &Effect) -> Result<String> {
    serde_json::to_string(effect).map_err(|e| StoreError::Broken(format!("effect: {e}")))
}

impl Store {
    async fn effect_call(
        &self,
        what: &str,
        held: &Held,
        key: &str,
        record: &str,
        permit: bool,
    ) -> Result<(String, String)> {
        let args = [
            arg(what),
            arg(&held.id),
            arg(held.epoch),
            arg(&held.lease_id),
            arg(key),
            arg(record),
            arg(u8::from(permit)),
        ];
        let mut parts = reply::texts(self.call(&scripts::EFFECTS, &args).await?)?.into_iter();
        Ok((parts.next().unwrap_or_default(), parts.next().unwrap_or_default()))
    }

    /// Writes the intent, and with `permit` uses up the approved permit in the same step (I3, I7).
    ///
    /// # Errors
    /// [`StoreError`]; after one the intent may stand there: a repeat answers [`Begun::Known`] with this same epoch.
    pub async fn effect_begin(&self, held: &Held, key: &str, effect: &Effect, permit: bool) -> Result<Begun> {
        let (word, known) = self.effect_call("begin", held, key, &written(effect)?, permit).await?;
        Ok(match word.as_str() {
            "OK" => Begun::Run,
            "KNOWN" => Begun::Known(Box::new(read(&known))),
            "DENIED" => Begun::Denied,
            "FENCED" | "GONE" => Begun::Fenced,
            "FULL" => Begun::Full,
            other => return Err(StoreError::Broken(format!("effects answered {other:?}"))),
        })
    }

    /// Writes the outcome, whoever owns the ticket by now. `false`: the ticket or the intent is gone.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn effect_end(&self, held: &Held, key: &str, effect: &Effect) -> Result<bool> {
        Ok(self.effect_call("end", held, key, &written(effect)?, false).await?.0 == "OK")
    }

    /// It did not happen: the call may be made again. `false`: the ticket is another's.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn effect_retract(&self, held: &Held, key: &str) -> Result<bool> {
        Ok(self.effect_call("retract", held, key, "", false).await?.0 == "OK")
    }

    /// Uses up an answered permit whose call leaves nothing outside. `false`: there is none, or the ticket is another's.
    ///
    /// # Errors
    /// [`StoreError`]; after one it may be used up: ask again.
    pub async fn permit_use(&self, held: &Held) -> Result<bool> {
        Ok(self.effect_call("use", held, "", "", false).await?.0 == "OK")
    }

    /// The ticket's journal: key and record, sorted by key.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn effects(&self, ticket: &str) -> Result<Vec<(String, Effect)>> {
        let key = format!("{}:e", self.keys.ticket(ticket));
        let all = super::fields::Map::of(self.command("HGETALL", &[&key]).await?)?;
        let mut out: Vec<(String, Effect)> = all.pairs().map(|(k, v)| (k.to_owned(), read(v))).collect();
        out.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Golden bytes of version 1: a change here is a new version, not an edit.
    #[test]
    fn golden_bytes_of_version_1() {
        let effect = Effect {
            v: 1,
            state: EffectState::Done,
            tool: "refund".into(),
            args: json!({"order": "A1"}),
            digest: "d".into(),
            epoch: 7,
            answer: "ok".into(),
            ok: true,
        };
        let want = r#"{"v":1,"state":"done","tool":"refund","args":{"order":"A1"},"digest":"d","epoch":7,"answer":"ok","ok":true}"#;
        assert_eq!(written(&effect).unwrap(), want);
        assert_eq!(read(want), effect);
    }

    #[test]
    fn i7_what_does_not_read_is_in_doubt() {
        assert_eq!(read("nonsense").state, EffectState::Intent);
        assert_eq!(read(r#"{"v":9,"state":"floating","tool":"t","args":{},"digest":"","epoch":1,"answer":"","ok":true}"#).state, EffectState::Intent);
    }
}
