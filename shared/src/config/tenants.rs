//! The section `tenants`: how much of the fleet's models each tenant may use, and for how much money.

use super::is_word;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits of every tenant, and of those that have their own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenants {
    /// Requests a minute to all models together; 0: no limit.
    pub requests_per_minute: u32,
    pub input_tokens_per_minute: u64,
    pub output_tokens_per_minute: u64,
    /// Calls under way; 0: no cap.
    pub in_flight_max: u32,
    /// When a budget begins anew.
    pub budget_period: Period,
    /// Tokens a period; 0: no budget.
    pub budget_tokens: u64,
    /// Millionths of a dollar a period; 0: no budget.
    pub budget_microusd: u64,
    /// Tenants with limits of their own; what is not named there is as above.
    pub of: BTreeMap<String, Tenant>,
}

/// What is other for one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenant {
    pub requests_per_minute: Option<u32>,
    pub input_tokens_per_minute: Option<u64>,
    pub output_tokens_per_minute: Option<u64>,
    pub in_flight_max: Option<u32>,
    pub budget_period: Option<Period>,
    pub budget_tokens: Option<u64>,
    pub budget_microusd: Option<u64>,
}

/// How long a tenant's budget is for, by UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Day,
    #[default]
    Month,
}

impl Period {
    /// The word in Redis.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// What holds for one tenant; 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    pub requests_per_minute: u32,
    pub input_tokens_per_minute: u64,
    pub output_tokens_per_minute: u64,
    pub in_flight_max: u32,
    pub period: Period,
    pub budget_tokens: u64,
    pub budget_microusd: u64,
}

impl Tenants {
    /// The limits of a tenant; of the empty name: of those without their own.
    #[must_use]
    pub fn limits(&self, tenant: &str) -> TenantLimits {
        let own = self.of.get(tenant).cloned().unwrap_or_default();
        TenantLimits {
            requests_per_minute: own.requests_per_minute.unwrap_or(self.requests_per_minute),
            input_tokens_per_minute: own.input_tokens_per_minute.unwrap_or(self.input_tokens_per_minute),
            output_tokens_per_minute: own.output_tokens_per_minute.unwrap_or(self.output_tokens_per_minute),
            in_flight_max: own.in_flight_max.unwrap_or(self.in_flight_max),
            period: own.budget_period.unwrap_or(self.budget_period),
            budget_tokens: own.budget_tokens.unwrap_or(self.budget_tokens),
            budget_microusd: own.budget_microusd.unwrap_or(self.budget_microusd),
        }
    }

    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<String> {
        let name = self.of.keys().find(|name| !is_word(name))?;
        Some(format!("names `{name}`: a tenant is a word of letters, digits, - and _, at most 64 of them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_what_it_names_and_else_what_all_have() {
        let text =
            "in_flight_max = 4\nbudget_tokens = 100\n[of.acme]\nbudget_tokens = 7\nbudget_period = \"day\"";
        let tenants: Tenants = toml::from_str(text).unwrap();
        let acme = tenants.limits("acme");
        assert_eq!((acme.in_flight_max, acme.budget_tokens, acme.period), (4, 7, Period::Day));
        let other = tenants.limits("other");
        assert_eq!((other.in_flight_max, other.budget_tokens, other.period), (4, 100, Period::Month));
        assert_eq!(tenants.problem(), None);
        let wrong: Tenants = toml::from_str("[of.\"a b\"]").unwrap();
        assert!(wrong.problem().is_some_and(|p| p.contains("`a b`")));
        assert!(toml::from_str::<Tenants>("[of.acme]\nbudget = 1").is_err(), "an unknown key");
    }
}
