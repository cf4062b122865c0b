//! What each tenant may, as the managers publish it, and its book of what it spent in its period.

use super::args::arg;
use super::{Result, Store, reply, scripts};
use crate::config::{TenantLimits, Tenants};
use redis::Value;
use serde::{Deserialize, Serialize};

/// The field for tenants without one of their own; no tenant is called so.
const OTHERS: &str = "*";

/// How a tenant stands, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantBook {
    pub tenant: String,
    /// `day` or `month`, by UTC.
    pub period: String,
    /// Until the period turns.
    pub ends_in_ms: u64,
    pub spent_tokens: u64,
    /// Millionths of a dollar.
    pub spent_microusd: u64,
    pub reserved_tokens: u64,
    pub reserved_microusd: u64,
    /// What it may spend in this period, raises included; 0: no limit.
    pub budget_tokens: u64,
    pub budget_microusd: u64,
    /// Its calls under way, while it has limits of calls.
    pub in_flight: u64,
    pub requests_per_minute: u64,
    pub input_tokens_per_minute: u64,
    pub output_tokens_per_minute: u64,
    pub in_flight_max: u64,
}

impl Store {
    /// Publishes the limits of all tenants in place of what was published before. Goals that wait for a tenant's budget
    /// are looked at anew when anything changed. `true`: something did.
    ///
    /// # Errors
    /// [`super::StoreError`]; repeatable.
    pub async fn publish_tenants(&self, tenants: &Tenants) -> Result<bool> {
        let mut args = vec![arg("publish"), arg(OTHERS), arg(word(&tenants.limits("")))];
        for tenant in tenants.of.keys() {
            args.extend([arg(tenant), arg(word(&tenants.limits(tenant)))]);
        }
        let parts = reply::array(self.call(&scripts::TENANTS, &args).await?)?;
        Ok(reply::number(parts.into_iter().next().unwrap_or(Value::Nil))? == 1)
    }

    /// Sets a tenant's budget for the rest of its period; 0: no limit. Its goals that wait for it go on with the next
    /// sweep; their number.
    ///
    /// # Errors
    /// [`super::StoreError`]; repeatable.
    pub async fn raise_tenant(
        &self,
        tenant: &str,
        tokens: Option<u64>,
        microusd: Option<u64>,
    ) -> Result<u64> {
        let text = |n: Option<u64>| arg(n.map(|n| n.to_string()).unwrap_or_default());
        let args = [arg("raise"), arg(tenant), text(tokens), text(microusd)];
        let parts = reply::array(self.call(&scripts::TENANTS, &args).await?)?;
        reply::number(parts.into_iter().next().unwrap_or(Value::Nil))
    }

    /// How each tenant stands that ever called a model, by name.
    ///
    /// # Errors
    /// [`super::StoreError`]; changes nothing but periods that are over.
    pub async fn tenant_books(&self) -> Result<Vec<TenantBook>> {
        let mut books = vec![];
        for tenant in reply::texts(self.command("SMEMBERS", &[&self.keys.at("tbs")]).await?)? {
            books.push(self.tenant_book(&tenant).await?);
        }
        books.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        Ok(books)
    }

    /// How one tenant stands.
    ///
    /// # Errors
    /// As [`Store::tenant_books`].
    pub async fn tenant_book(&self, tenant: &str) -> Result<TenantBook> {
        let parts = reply::texts(self.call(&scripts::TENANTS, &[arg("look"), arg(tenant)]).await?)?;
        let field = |name: &str| {
            let pair = parts.chunks(2).find(|pair| pair.first().is_some_and(|f| f == name));
            pair.and_then(|pair| pair.get(1)).map_or("", String::as_str)
        };
        let number = |name: &str| field(name).parse().unwrap_or(0);
        Ok(TenantBook {
            tenant: field("tenant").into(),
            period: field("period").into(),
            ends_in_ms: number("ends_in_ms"),
            spent_tokens: number("spent_tokens"),
            spent_microusd: number("spent_microusd"),
            reserved_tokens: number("reserved_tokens"),
            reserved_microusd: number("reserved_microusd"),
            budget_tokens: number("budget_tokens"),
            budget_microusd: number("budget_microusd"),
            in_flight: number("in_flight"),
            requests_per_minute: number("requests_max"),
            input_tokens_per_minute: number("input_max"),
            output_tokens_per_minute: number("output_max"),
            in_flight_max: number("in_flight_max"),
        })
    }
}

/// As the scripts read it.
fn word(limits: &TenantLimits) -> String {
    format!(
        "{}|{}|{}|{}|{}|{}|{}",
        limits.requests_per_minute,
        limits.input_tokens_per_minute,
        limits.output_tokens_per_minute,
        limits.in_flight_max,
        limits.budget_tokens,
        limits.budget_microusd,
        limits.period.as_str(),
    )
}
