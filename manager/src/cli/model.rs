//! Which model a fleet on this machine uses, decided and said before anything is spent.

use super::client::chain;
use super::env;
use super::error::CliError;
use serde_json::Value;
use shared::config::Config;
use std::time::Duration;

/// Servers that are looked for on this machine, in this order.
const USUAL: [(&str, &str); 3] = [
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
];
/// A server of this machine answers within this time or is not there.
const USUAL_TIMEOUT: Duration = Duration::from_millis(300);
/// A server that somebody named may be far away.
const NAMED_TIMEOUT: Duration = Duration::from_secs(10);
const OPENAI: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "gpt-4.1-mini";
const ANTHROPIC: &str = "https://api.anthropic.com/v1";
const ANTHROPIC_MODEL: &str = "claude-sonnet-4-5";

/// What `--model` may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wish {
    /// What is configured or found; with --demo the rehearsal model when nothing is.
    #[default]
    Auto,
    /// The built-in rehearsal model, whatever else is there.
    Rehearsal,
    /// None: plan files with direct tools only.
    None,
}

/// The model of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The configuration names it: nothing is handed on.
    Configured {
        url: String,
        name: String,
    },
    /// Found in the environment or on this machine.
    Found {
        url: String,
        name: String,
        key: String,
        origin: String,
    },
    /// Scripted replies; everything else is real.
    Rehearsal,
    None,
}

impl Choice {
    /// One sentence, said before anything is spent.
    pub(crate) fn say(&self) -> String {
        match self {
            Self::Configured { url, name } => format!("model: {name} at {url} (from the configuration)"),
            Self::Found { url, name, origin, .. } => format!("model: {name} at {url} ({origin})"),
            Self::Rehearsal => {
                "model: none was found, so the built-in rehearsal plays it: the words are scripted, \
                                nothing is spent; Python, checks, files and Redis are real"
                    .into()
            }
            Self::None => "model: none; plan files with direct tools only".into(),
        }
    }

    /// Settings for the services.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        match self {
            Self::Found { url, name, key, .. } => vec![
                ("MUSTER_MODEL__URL".into(), url.clone()),
                ("MUSTER_MODEL__STANDARD".into(), name.clone()),
                ("MUSTER_MODEL__API_KEY".into(), key.clone()),
                // The chain of the configuration stands behind the model of the configuration.
                ("MUSTER_MODEL__USE_FALLBACK".into(), "false".into()),
            ],
            Self::None => vec![("MUSTER_MODEL__URL".into(), String::new())],
            Self::Configured { .. } | Self::Rehearsal => vec![],
        }
    }
}

/// Looks for a model: configuration, environment, the usual ports of this machine.
///
/// # Errors
/// Usage, when a model was named and is not there.
pub(crate) async fn choose(config: &Config, wish: Wish, demo: bool) -> Result<Choice, CliError> {
    choose_from(config, wish, demo, env::get, &USUAL).await
}

async fn choose_from(
    config: &Config,
    wish: Wish,
    demo: bool,
    env: impl Fn(&str) -> Option<String>,
    usual: &[(&str, &str)],
) -> Result<Choice, CliError> {
    match wish {
        Wish::None => return Ok(Choice::None),
        Wish::Rehearsal => return Ok(Choice::Rehearsal),
        Wish::Auto => {}
    }
    if config.model.is_configured() {
        return Ok(Choice::Configured { url: config.model.url.clone(), name: config.model.standard.clone() });
    }
    let http = reqwest::Client::builder().no_proxy().build().map_err(|e| {
        CliError::failed(format!("HTTP client: {}", chain(&e)), "check the certificate settings")
    })?;
    if let Some(url) = env(env::MODEL_URL) {
        let key = env(env::MODEL_KEY).or_else(|| env(env::OPENAI_KEY)).unwrap_or_default();
        let url = base(&url);
        let name = match env(env::MODEL_NAME) {
            Some(name) => name,
            None => first_model(&http, &url, &key, NAMED_TIMEOUT).await.map_err(|why| {
                CliError::usage(
                    format!("{}: {url} does not say which models it has: {why}", env::MODEL_URL),
                    format!("is the server running? Otherwise name the model in {}", env::MODEL_NAME),
                )
            })?,
        };
        return Ok(Choice::Found { url, name, key, origin: format!("from {}", env::MODEL_URL) });
    }
    if let Some(key) = env(env::OPENAI_KEY) {
        let url = env(env::OPENAI_URL).map_or_else(|| OPENAI.to_owned(), |url| base(&url));
        let name = env(env::MODEL_NAME).unwrap_or_else(|| OPENAI_MODEL.to_owned());
        let origin = format!("from {}; {} chooses another model", env::OPENAI_KEY, env::MODEL_NAME);
        return Ok(Choice::Found { url, name, key, origin });
    }
    if let Some(key) = env(env::ANTHROPIC_KEY) {
        let name = env(env::MODEL_NAME).unwrap_or_else(|| ANTHROPIC_MODEL.to_owned());
        let origin = format!("from {}; {} chooses another model", env::ANTHROPIC_KEY, env::MODEL_NAME);
        return Ok(Choice::Found { url: ANTHROPIC.to_owned(), name, key, origin });
    }
    let asked = usual.iter().map(|(_, url)| first_model(&http, url, "", USUAL_TIMEOUT));
    for ((server, url), found) in usual.iter().zip(futures::future::join_all(asked).await) {
        if let Ok(first) = found {
            let name = env(env::MODEL_NAME).unwrap_or(first);
            let origin = format!("{server} on this machine; {} chooses another model", env::MODEL_NAME);
            return Ok(Choice::Found { url: (*url).to_owned(), name, key: String::new(), origin });
        }
    }
    Ok(if demo { Choice::Rehearsal } else { Choice::None })
}

fn base(url: &str) -> String {
    url.trim_end_matches('/').trim_end_matches("/chat/completions").to_owned()
}

/// The first model that a server lists and that can talk.
async fn first_model(
    http: &reqwest::Client,
    url: &str,
    key: &str,
    timeout: Duration,
) -> Result<String, String> {
    let names = models(http, url, key, false, timeout).await?;
    let talks = |name: &&String| !["embed", "rerank", "whisper"].iter().any(|no| name.contains(no));
    names.iter().find(talks).cloned().ok_or_else(|| "it lists none".into())
}

/// The models that a server lists, whichever protocol it speaks.
pub(crate) async fn models(
    http: &reqwest::Client,
    url: &str,
    key: &str,
    anthropic: bool,
    timeout: Duration,
) -> Result<Vec<String>, String> {
    let mut request = http.get(format!("{}/models", url.trim_end_matches('/'))).timeout(timeout);
    if anthropic {
        request = request.header("x-api-key", key).header("anthropic-version", "2023-06-01");
    } else if !key.is_empty() {
        request = request.bearer_auth(key);
    }
    let reply = request.send().await.map_err(|e| chain(&e))?;
    if !reply.status().is_success() {
        return Err(format!("it answered {}", reply.status()));
    }
    let body: Value = reply.json().await.map_err(|e| chain(&e))?;
    let list = body.get("data").and_then(Value::as_array).ok_or("its answer is no list of models")?;
    Ok(list.iter().filter_map(|m| m.get("id").and_then(Value::as_str)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that lists these models.
    async fn server(models: &'static [&'static str]) -> String {
        let list: Vec<Value> = models.iter().map(|id| serde_json::json!({"id": id})).collect();
        let app = axum::Router::new().route(
            "/v1/models",
            axum::routing::get(move || async move { axum::Json(serde_json::json!({"data": list})) }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    async fn chosen(
        config: &Config,
        demo: bool,
        env: &[(&str, &str)],
        usual: &[(&str, &str)],
    ) -> Result<Choice, CliError> {
        let get = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        choose_from(config, Wish::Auto, demo, get, usual).await
    }

    #[tokio::test]
    async fn a_local_server_is_found_and_its_first_talking_model_taken() {
        let url = server(&["nomic-embed-text", "qwen"]).await;
        let choice = chosen(&Config::default(), true, &[], &[("Ollama", &url)]).await.unwrap();
        let Choice::Found { name, origin, .. } = &choice else { panic!("{choice:?}") };
        assert_eq!(name, "qwen");
        assert!(origin.starts_with("Ollama"));
        assert!(choice.settings().contains(&("MUSTER_MODEL__STANDARD".into(), "qwen".into())));
    }

    #[tokio::test]
    async fn the_environment_wins_over_the_machine_and_the_configuration_over_both() {
        let url = server(&["qwen"]).await;
        let usual = [("Ollama", url.as_str())];
        let choice = chosen(&Config::default(), true, &[(env::OPENAI_KEY, "sk-1")], &usual).await.unwrap();
        assert!(matches!(&choice, Choice::Found { url, .. } if url == OPENAI), "{choice:?}");
        let mut config = Config::default();
        config.model.url = "http://h/v1".into();
        config.model.standard = "m".into();
        let choice = chosen(&config, true, &[(env::OPENAI_KEY, "sk-1")], &usual).await.unwrap();
        assert_eq!(choice, Choice::Configured { url: "http://h/v1".into(), name: "m".into() });
        assert!(!choice.say().contains("sk-1"));
    }

    #[tokio::test]
    async fn an_anthropic_key_alone_chooses_anthropic() {
        let choice =
            chosen(&Config::default(), true, &[(env::ANTHROPIC_KEY, "sk-ant-1")], &[]).await.unwrap();
        let Choice::Found { url, .. } = &choice else { panic!("{choice:?}") };
        assert_eq!(url, ANTHROPIC);
        assert!(!choice.say().contains("sk-ant-1"));
        let mut config = Config::default();
        config.model.url.clone_from(url);
        assert!(config.model.speaks_anthropic());
        config.model.url = "https://anthropic.com.example/v1".into();
        assert!(!config.model.speaks_anthropic());
    }

    #[tokio::test]
    async fn without_any_the_demo_is_rehearsed_and_everything_else_has_none() {
        assert_eq!(chosen(&Config::default(), true, &[], &[]).await.unwrap(), Choice::Rehearsal);
        assert_eq!(chosen(&Config::default(), false, &[], &[]).await.unwrap(), Choice::None);
    }

    #[tokio::test]
    async fn a_named_server_that_is_down_is_an_error_and_no_rehearsal() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}/v1");
        let e = chosen(&Config::default(), true, &[(env::MODEL_URL, &url)], &[]).await.unwrap_err();
        assert_eq!(e.exit().code(), 64);
        assert!(e.to_string().contains(&url) && e.hint().contains(env::MODEL_NAME));
    }
}
