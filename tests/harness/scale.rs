//! How large a fault test is: short by default, full under `tests/soak.sh`.

use std::time::Duration;

/// The sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// What every run of the tests does: leases of one or two seconds.
    Short,
    /// What `tests/soak.sh` does: the periods of a real fleet.
    Full,
}

/// Which one this run is.
#[must_use]
pub fn scale() -> Scale {
    match std::env::var("MUSTER_TEST_SCALE").as_deref() {
        Ok("full") => Scale::Full,
        _ => Scale::Short,
    }
}

impl Scale {
    /// The one or the other.
    #[must_use]
    pub fn pick<T>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }

    /// The periods of the two clocks, the sweeper and the retries.
    #[must_use]
    pub fn lease(self) -> shared::config::Lease {
        let full = shared::config::Lease::default();
        match self {
            Self::Full => full,
            Self::Short => shared::config::Lease {
                lease_ms: 1_500,
                renew_ms: 300,
                sweep_ms: 200,
                outage_ms: 1_500,
                retry_delay_ms: 50,
                cancel_grace_ms: 1_000,
                audit_ms: 1_000,
                reviewer_wait_ms: 60_000,
                progress_limit_ms: 60_000,
                run_limit_ms: 120_000,
                ..full
            },
        }
    }

    /// A deadline for something that takes no time by itself: generous, because two cores run all of it.
    #[must_use]
    pub fn patience(self) -> Duration {
        self.pick(Duration::from_secs(30), Duration::from_secs(300))
    }
}
