//! Every environment variable that the command line itself reads, in one place. Settings of the services
//! (`MUSTER_<SECTION>__<KEY>`) are not here: they are documented in `deploy/config/muster.toml`.

/// A variable and what it is for.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

pub(crate) const URL: &str = "MUSTER_URL";
pub(crate) const TOKEN: &str = "MUSTER_TOKEN";
pub(crate) const HOME: &str = "MUSTER_HOME";
pub(crate) const MODEL_URL: &str = "MUSTER_MODEL_URL";
pub(crate) const MODEL_NAME: &str = "MUSTER_MODEL_NAME";
pub(crate) const MODEL_KEY: &str = "MUSTER_MODEL_KEY";
pub(crate) const OPENAI_KEY: &str = "OPENAI_API_KEY";
pub(crate) const OPENAI_URL: &str = "OPENAI_BASE_URL";
pub(crate) const ANTHROPIC_KEY: &str = "ANTHROPIC_API_KEY";
pub(crate) const NO_COLOR: &str = "NO_COLOR";
pub(crate) const TRACEPARENT: &str = "TRACEPARENT";

/// The table that `muster --help` prints; a test holds README.md against it.
pub(crate) const ALL: &[Variable] = &[
    Variable { name: URL, about: "address of a manager, such as http://127.0.0.1:7700" },
    Variable { name: TOKEN, about: "token for it" },
    Variable { name: HOME, about: "folder of the fleet on this machine (default .muster)" },
    Variable {
        name: MODEL_URL,
        about: "`up` and `run`: an OpenAI-compatible server, such as http://127.0.0.1:11434/v1",
    },
    Variable {
        name: MODEL_NAME,
        about: "`up` and `run`: the model to ask there (default: the first it lists)",
    },
    Variable { name: MODEL_KEY, about: "`up` and `run`: the key for it" },
    Variable {
        name: OPENAI_KEY,
        about: "`up` and `run`: use api.openai.com (or OPENAI_BASE_URL) with this key",
    },
    Variable { name: OPENAI_URL, about: "`up` and `run`: base URL that OPENAI_API_KEY belongs to" },
    Variable { name: ANTHROPIC_KEY, about: "`up` and `run`: the key of Anthropic's API" },
    Variable { name: NO_COLOR, about: "set: no colours" },
    Variable { name: TRACEPARENT, about: "a W3C trace that goals submitted from here belong to" },
];

/// A variable's value; empty counts as not set.
pub(crate) fn get(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The table as text for the long help.
pub(crate) fn help() -> String {
    let mut text = String::from("Environment:\n");
    for v in ALL {
        text.push_str(&format!("  {:<19} {}\n", v.name, v.about));
    }
    text.push_str("  MUSTER_<SECTION>__<KEY>  settings of the services, see deploy/config/muster.toml\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_names_every_variable() {
        let readme = include_str!("../../../README.md");
        let missing: Vec<&str> = ALL.iter().map(|v| v.name).filter(|n| !readme.contains(n)).collect();
        assert_eq!(missing, Vec::<&str>::new());
    }
}
