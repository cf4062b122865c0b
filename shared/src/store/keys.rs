//! Names of keys. All of one shard carry its hash tag, so that a script's keys are in one Cluster slot.

/// Key names of one shard.
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, shard: u16) -> Self {
        Self { prefix: format!("{prefix}:{{s{shard}}}:") }
    }

    /// The key that every script is given; it derives the others from it.
    pub(super) fn ctl(&self) -> String {
        self.at("ctl")
    }

    pub(super) fn at(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    pub(super) fn ticket(&self, id: &str) -> String {
        self.at(&format!("t:{id}"))
    }

    pub(super) fn goal(&self, id: &str) -> String {
        self.at(&format!("g:{id}"))
    }

    /// A list, set or stream that belongs to the goal.
    pub(super) fn of_goal(&self, id: &str, what: &str) -> String {
        self.at(&format!("g:{id}:{what}"))
    }

    pub(super) fn consumer(&self, id: &str) -> String {
        self.at(&format!("c:{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q46_every_key_carries_the_tag_of_its_shard() {
        let k = Keys::new("muster", 3);
        for key in [k.ctl(), k.ticket("a"), k.goal("b"), k.of_goal("b", "ev"), k.consumer("c"), k.at("lease")]
        {
            assert!(key.starts_with("muster:{s3}:"), "{key}");
        }
    }
}
