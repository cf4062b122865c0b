//! Why a ticket left the normal way, and whose fault a failure is.

use serde::{Deserialize, Serialize};

/// Why a ticket left the normal way; kept in its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Faults,
    Losses,
    Waits,
    Releases,
    Conflicts,
    Asks,
    NotRetryable,
    ReviewFaults,
    ReviewLosses,
    ReviewReleases,
    NoReviewer,
    HandedOver,
}

impl Cause {
    pub const ALL: [Cause; 12] = [
        Cause::Faults,
        Cause::Losses,
        Cause::Waits,
        Cause::Releases,
        Cause::Conflicts,
        Cause::Asks,
        Cause::NotRetryable,
        Cause::ReviewFaults,
        Cause::ReviewLosses,
        Cause::ReviewReleases,
        Cause::NoReviewer,
        Cause::HandedOver,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::Losses => "losses",
            Self::Waits => "waits",
            Self::Releases => "releases",
            Self::Conflicts => "conflicts",
            Self::Asks => "asks",
            Self::NotRetryable => "not_retryable",
            Self::ReviewFaults => "review_faults",
            Self::ReviewLosses => "review_losses",
            Self::ReviewReleases => "review_releases",
            Self::NoReviewer => "no_reviewer",
            Self::HandedOver => "handed_over",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == word)
    }

    /// The work itself is finished and only its review failed.
    #[must_use]
    pub fn is_review(self) -> bool {
        matches!(self, Self::ReviewFaults | Self::ReviewLosses | Self::ReviewReleases | Self::NoReviewer)
    }
}

/// Whose fault a failure is decides the counter (I8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailClass {
    /// The work failed and may be tried again.
    Fault,
    /// Rate limit, overload, an open breaker: nobody's fault.
    Wait,
    /// Trying again unchanged makes no sense.
    NotRetryable,
}

impl FailClass {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Wait => "wait",
            Self::NotRetryable => "not_retryable",
        }
    }
}
