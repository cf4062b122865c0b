//! Submits that replicas confirm: the script and a WAIT behind it, on a connection of their own.
//!
//! WAIT speaks for the writes of its own connection and stops that connection while it waits, so neither the shared one
//! nor one that a repeat finds idle will do. What is confirmed outlives the master; what is not may be lost with it, and
//! the submitter is told.

use super::{Result, Store, StoreError, Submitted, reply};
use crate::goal::NewGoal;
use std::time::Duration;

/// How late the answer of a WAIT may be beyond its own time-out.
const SLACK: Duration = Duration::from_secs(2);

/// How many replicas have to confirm a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirming {
    /// 0: nobody is asked.
    pub replicas: u32,
    /// How long they have.
    pub timeout: Duration,
}

/// What the replicas said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// Nobody was asked.
    NotAsked,
    /// As many as were asked for have it: the goal outlives its master.
    Confirmed,
    /// Only so many have it for sure: the goal is there, and a failover may lose it. The same submit under the same id
    /// asks again.
    Missing { have: u32, want: u32 },
}

impl Store {
    /// As [`Store::submit_goal`], confirmed by replicas. A goal that was there already is confirmed as well.
    ///
    /// # Errors
    /// As [`Store::submit_goal`]. That replicas do not answer is no error: the goal is submitted, see [`Confirmation`].
    pub async fn submit_goal_confirmed(
        &self,
        goal: &NewGoal,
        ready_max: usize,
        confirming: Confirming,
    ) -> Result<(Submitted, Confirmation)> {
        let submitted = self.submit_goal(goal, ready_max).await?;
        let confirmation = match submitted {
            Submitted::Busy => Confirmation::NotAsked,
            Submitted::New | Submitted::Duplicate => self.confirm_goal(&goal.id, confirming).await,
        };
        Ok((submitted, confirmation))
    }

    /// Asks about a goal that is there. Whatever goes wrong here, the answer is "not confirmed", never "not submitted".
    pub async fn confirm_goal(&self, goal: &str, confirming: Confirming) -> Confirmation {
        let want = confirming.replicas;
        if want == 0 {
            return Confirmation::NotAsked;
        }
        match self.confirm(goal, confirming).await {
            Ok(have) if have >= want => Confirmation::Confirmed,
            Ok(have) => Confirmation::Missing { have, want },
            Err(error) => {
                tracing::warn!(goal, %error, "no replica could be asked");
                Confirmation::Missing { have: 0, want }
            }
        }
    }

    /// How many replicas have this goal for sure; 0 when the master itself does not.
    async fn confirm(&self, goal: &str, confirming: Confirming) -> Result<u32> {
        let unavailable = |e: redis::RedisError| StoreError::Unavailable(e.to_string());
        let mut conn = self.link.dialer.dial(confirming.timeout + SLACK).await.map_err(unavailable)?;
        // On this very connection: another master may have taken over since the submit, and not have it.
        let mut there = redis::cmd("HEXISTS");
        there.arg(self.keys.goal(goal)).arg("state");
        if reply::number(conn.run(&there).await.map_err(unavailable)?)? == 0 {
            return Ok(0);
        }
        // A write of this connection marks the place in the stream: replicas that have it have all before it.
        let mut mark = redis::cmd("HINCRBY");
        mark.arg(self.keys.ctl()).arg("confirms").arg(1);
        conn.run(&mark).await.map_err(unavailable)?;
        let mut wait = redis::cmd("WAIT");
        // 0 would be without end.
        let timeout_ms = u64::try_from(confirming.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        wait.arg(confirming.replicas).arg(timeout_ms);
        let have = reply::number(conn.run(&wait).await.map_err(unavailable)?)?;
        Ok(u32::try_from(have).unwrap_or(u32::MAX))
    }
}
