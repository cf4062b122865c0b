//! `muster fleet lift | tenants | budget`: what keeps calls of models back, and the ways to let them go.

use super::answer::acknowledged;
use super::client::{Client, segment};
use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{dollars, items, number, span, table, text};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Budget {
    tenant: String,
    /// Tokens until the period turns; 0: no limit.
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Money until the period turns, such as 12.50; 0: no limit.
    #[arg(long, value_name = "X", value_parser = microusd)]
    dollars: Option<u64>,
}

/// An amount of dollars, in millionths.
pub(super) fn microusd(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no amount such as 12.50");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
    whole.checked_mul(1_000_000).and_then(|n| n.checked_add(part)).ok_or_else(wrong)
}

pub(super) async fn lift(ctx: &Context, client: &Client, endpoint: &str) -> Result<Exit, CliError> {
    let stats = client.get("/v1/stats").await?;
    let fitting: Vec<&str> = items(&stats, "endpoints")
        .iter()
        .filter(|e| text(e, "name").starts_with(endpoint) || text(e, "word").starts_with(endpoint))
        .map(|e| text(e, "word"))
        .collect();
    let [one] = fitting.as_slice() else {
        return Err(CliError::usage(
            format!("{} endpoints begin with `{endpoint}`", fitting.len()),
            "`muster stats` shows them; `muster stats --json` with their words",
        ));
    };
    acknowledged(ctx, &client.post(&format!("/v1/endpoints/{}/lift", segment(one)), &json!({})).await?)
}

pub(super) async fn tenants(ctx: &Context, client: &Client) -> Result<Exit, CliError> {
    let reply = client.get("/v1/tenants").await?;
    ctx.out.show(&reply, || drawn(items(&reply, "tenants")))?;
    Ok(Exit::Done)
}

pub(super) async fn budget(ctx: &Context, client: &Client, wanted: &Budget) -> Result<Exit, CliError> {
    let body = json!({"tokens": wanted.tokens, "microusd": wanted.dollars});
    let reply = client.post(&format!("/v1/tenants/{}/budget", segment(&wanted.tenant)), &body).await?;
    let book = reply.get("book").cloned().unwrap_or_default();
    ctx.out.show(&reply, || drawn(&[book]))?;
    ctx.out.note(&format!("{} goals waited for it", number(&reply, "goals")));
    Ok(Exit::Done)
}

fn drawn(books: &[Value]) -> String {
    let of = |max: u64, shown: String| if max == 0 { "-".to_owned() } else { shown };
    let rows: Vec<Vec<String>> = books
        .iter()
        .map(|b| {
            let rate = |name: &str| of(number(b, name), number(b, name).to_string());
            let (tokens, money) = (number(b, "budget_tokens"), number(b, "budget_microusd"));
            vec![
                text(b, "tenant").to_owned(),
                format!("{} of {}", number(b, "spent_tokens"), of(tokens, tokens.to_string())),
                format!("{} of {}", dollars(number(b, "spent_microusd")), of(money, dollars(money))),
                number(b, "reserved_tokens").to_string(),
                format!("{}, {} left", text(b, "period"), span(number(b, "ends_in_ms"))),
                rate("requests_per_minute"),
                rate("input_tokens_per_minute"),
                rate("output_tokens_per_minute"),
                rate("in_flight_max"),
            ]
        })
        .collect();
    table(
        &["TENANT", "TOKENS", "DOLLARS", "RESERVED", "PERIOD", "REQ/MIN", "IN/MIN", "OUT/MIN", "IN FLIGHT"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_to_the_millionth() {
        for (said, is) in [("0", 0), ("12.5", 12_500_000), ("0.000001", 1), ("3", 3_000_000)] {
            assert_eq!(microusd(said), Ok(is), "{said}");
        }
        for said in ["", "-1", "1.0000001", "1,5", "1.5x", "99999999999999999999"] {
            assert!(microusd(said).is_err(), "{said}");
        }
    }

    #[test]
    fn a_tenant_without_limits_and_one_with_all() {
        let books = [
            json!({"tenant": "acme", "period": "day", "ends_in_ms": 3_600_000, "spent_tokens": 70, "spent_microusd": 1_500_000,
                "reserved_tokens": 5, "budget_tokens": 100, "budget_microusd": 2_000_000, "requests_per_minute": 60,
                "in_flight_max": 3}),
            json!({"tenant": "default", "period": "month", "ends_in_ms": 86_400_000, "spent_tokens": 9}),
        ];
        insta::assert_snapshot!(drawn(&books), @r"
        TENANT   TOKENS     DOLLARS           RESERVED  PERIOD             REQ/MIN  IN/MIN  OUT/MIN  IN FLIGHT
        acme     70 of 100  1.5000 of 2.0000  5         day, 1h 0m left    60       -       -        3
        default  9 of -     0.0000 of -       0         month, 1d 0h left  -        -       -        -
        ");
    }
}
