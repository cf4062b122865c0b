//! The scripts: their sources with the common parts in front, called by hash, sent whole when the server forgot them.

use redis::Cmd;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One script as it is sent.
pub(super) struct Script {
    pub(super) name: &'static str,
    plain: Sent,
    guarded: Sent,
}

/// Source and hash of it.
struct Sent {
    source: String,
    hash: String,
}

const COMMON: &str = concat!(
    include_str!("scripts/prelude.lua"),
    include_str!("scripts/consequences.lua"),
    include_str!("scripts/money.lua")
);
/// On a Cluster while the slot moves between two nodes, part of the keys is on the one and part on the other; a script
/// would take those that are not there for keys that never were. Two names that never are keys are refused by both
/// nodes then, before anything is written.
const GUARD: &str = "redis.call('EXISTS', P .. 'moving', P .. 'moving:')";

impl Script {
    fn new(name: &'static str, body: &str) -> Self {
        Self { name, plain: Sent::new(body, ""), guarded: Sent::new(body, GUARD) }
    }

    /// The call by hash; `cluster`: with the guard.
    pub(super) fn by_hash(&self, key: &str, args: &[Vec<u8>], cluster: bool) -> Cmd {
        command("EVALSHA", &self.sent(cluster).hash, key, args)
    }

    /// The same call with the whole source, tens of KiB: made only for a server that does not know the hash.
    pub(super) fn whole(&self, key: &str, args: &[Vec<u8>], cluster: bool) -> Cmd {
        command("EVAL", &self.sent(cluster).source, key, args)
    }

    fn sent(&self, cluster: bool) -> &Sent {
        if cluster { &self.guarded } else { &self.plain }
    }
}

fn command(verb: &str, what: &str, key: &str, args: &[Vec<u8>]) -> Cmd {
    let mut cmd = redis::cmd(verb);
    cmd.arg(what).arg(1).arg(key);
    for a in args {
        cmd.arg(a.as_slice());
    }
    cmd
}

impl Sent {
    fn new(body: &str, guard: &str) -> Self {
        // The shebang must stay the first line; its flags decide what runs on a full server.
        let (shebang, rest) = body.split_once('\n').unwrap_or((body, ""));
        let source = format!(
            "{shebang}\n{COMMON}\n{guard}\nlocal function main()\n{rest}\nend\nlocal ok, answer = pcall(main)\nflush()\nif not ok then error(answer, 0) end\nreturn answer\n"
        );
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }
}

macro_rules! scripts {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(super) static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, include_str!(concat!("scripts/", $name, ".lua"))));)*
        /// All of them.
        static ALL: &[&LazyLock<Script>] = &[$(&$constant),*];
    };
}

scripts! {
    ANSWER = "answer";
    AUDIT = "audit";
    CLAIM = "claim";
    COMPLETE = "complete";
    DEAD_LETTERS = "dead_letters";
    DECIDE = "decide";
    EFFECTS = "effects";
    GOAL_KEYS = "goal_keys";
    MANAGE_CLAIM = "manage_claim";
    MANAGE_FINISH = "manage_finish";
    MEASURE = "measure";
    MEMORY = "memory";
    OUTCOME = "outcome";
    PATCH = "patch";
    PLAN_STORE = "plan_store";
    PROGRESS = "progress";
    QUOTA = "quota";
    RENEW = "renew";
    RESERVE = "reserve";
    REVIEWERS = "reviewers";
    STANDARDS = "standards";
    SEAL = "seal";
    SETTLE = "settle";
    STEER = "steer";
    STEPS = "steps";
    SUBMIT_GOAL = "submit_goal";
    SWEEP = "sweep";
    TENANTS = "tenants";
    TICKETS = "tickets";
    UNSERVED = "unserved";
    WEBHOOKS = "webhooks";
    WRITE_SETS = "write_sets";
}

/// Name of each script by the hash under which a single server knows it: what SLOWLOG and MONITOR show.
#[must_use]
pub fn script_names() -> BTreeMap<String, &'static str> {
    ALL.iter().map(|script| (script.plain.hash.clone(), script.name)).collect()
}
