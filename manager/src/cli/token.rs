//! `muster token`: tokens of the API. The secret is shown once, when it is made.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{items, now_ms, number, span, table, text};
use super::types::NewToken;
use serde_json::Value;

/// What a token may be allowed.
const SCOPES: [&str; 4] = ["read", "submit", "decide", "admin"];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster token create --name ci --scope submit --scope read --expires-in-s 86400\n  \
    muster token list\n  muster token revoke 3f2a"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make one; the secret goes to stdout and is not kept.
    Create {
        /// Whose it is, for people.
        #[arg(long)]
        name: String,
        /// read, submit, decide or admin; may be given often.
        #[arg(long, required = true, value_parser = SCOPES)]
        scope: Vec<String>,
        /// Bind it to one tenant.
        #[arg(long, default_value = "")]
        tenant: String,
        /// Seconds until it expires; 0: never.
        #[arg(long, default_value_t = 0, value_name = "N")]
        expires_in_s: u64,
    },
    /// All of them, without their secrets.
    List,
    /// Take one away at once.
    Revoke {
        /// First characters of its id.
        id: String,
    },
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    match &args.what {
        What::Create { name, scope, tenant, expires_in_s } => {
            let body = NewToken {
                name: name.clone(),
                scopes: scope.clone(),
                tenant: tenant.clone(),
                expires_in_s: *expires_in_s,
            };
            let made = client.post("/v1/tokens", &body).await?;
            ctx.out.note("this is the only time that the token is shown");
            ctx.out.show(&made, || text(&made, "token").to_owned())?;
        }
        What::List => {
            let reply = client.get("/v1/tokens").await?;
            ctx.out.show(&reply, || drawn(items(&reply, "tokens"), now_ms()))?;
        }
        What::Revoke { id } => {
            let reply = client.get("/v1/tokens").await?;
            let fitting: Vec<&str> = items(&reply, "tokens")
                .iter()
                .map(|t| text(t, "id"))
                .filter(|t| t.starts_with(id.as_str()))
                .collect();
            let [one] = fitting.as_slice() else {
                return Err(CliError::usage(
                    format!("{} tokens begin with `{id}`", fitting.len()),
                    "`muster token list` shows them",
                ));
            };
            client.delete(&format!("/v1/tokens/{}", segment(one))).await?;
            ctx.out.note(&format!("revoked {one}"));
        }
    }
    Ok(Exit::Done)
}

fn drawn(tokens: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = tokens
        .iter()
        .map(|t| {
            let scopes: Vec<&str> = items(t, "scopes").iter().filter_map(Value::as_str).collect();
            let expires = match number(t, "expires_at_ms") {
                0 => "never".to_owned(),
                at if at <= now => "expired".to_owned(),
                at => format!("in {}", span(at - now)),
            };
            let tenant = match text(t, "tenant") {
                "" => "(all)",
                tenant => tenant,
            };
            vec![
                text(t, "id").to_owned(),
                text(t, "name").to_owned(),
                scopes.join(","),
                tenant.to_owned(),
                expires,
            ]
        })
        .collect();
    table(&["TOKEN", "NAME", "SCOPES", "TENANT", "EXPIRES"], &rows)
}
