//! The scripts: their sources with the prelude in front, called by hash, sent whole when the server forgot them.

use redis::Cmd;
use std::sync::LazyLock;

/// One script as it is sent.
pub(super) struct Script {
    pub(super) name: &'static str,
    source: String,
    hash: String,
}

const PRELUDE: &str = include_str!("scripts/prelude.lua");

impl Script {
    fn new(name: &'static str, body: &str) -> Self {
        // The shebang must stay the first line; its flags decide what runs on a full server.
        let (shebang, rest) = body.split_once('\n').unwrap_or((body, ""));
        let source = format!(
            "{shebang}\n{PRELUDE}\nlocal function main()\n{rest}\nend\nlocal answer = main()\nflush()\nreturn answer\n"
        );
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { name, source, hash }
    }

    /// The call by hash and the call with the whole source, for the same arguments.
    pub(super) fn calls(&self, key: &str, args: &[Vec<u8>]) -> (Cmd, Cmd) {
        let build = |verb: &str, what: &str| {
            let mut cmd = redis::cmd(verb);
            cmd.arg(what).arg(1).arg(key);
            for a in args {
                cmd.arg(a.as_slice());
            }
            cmd
        };
        (build("EVALSHA", &self.hash), build("EVAL", &self.source))
    }
}

macro_rules! scripts {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(super) static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, include_str!(concat!("scripts/", $name, ".lua"))));)*
    };
}

scripts! {
    ANSWER = "answer";
    AUDIT = "audit";
    CLAIM = "claim";
    COMPLETE = "complete";
    DEAD_LETTERS = "dead_letters";
    DECIDE = "decide";
    GOAL_KEYS = "goal_keys";
    MANAGE_CLAIM = "manage_claim";
    MANAGE_FINISH = "manage_finish";
    OUTCOME = "outcome";
    PATCH = "patch";
    PLAN_STORE = "plan_store";
    PROGRESS = "progress";
    QUOTA = "quota";
    RENEW = "renew";
    RESERVE = "reserve";
    SEAL = "seal";
    SETTLE = "settle";
    STEER = "steer";
    SUBMIT_GOAL = "submit_goal";
    SWEEP = "sweep";
    TICKETS = "tickets";
    UNSERVED = "unserved";
}
