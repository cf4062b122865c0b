//! Who reviews, as one word: nobody reviews work that the same actor did (DESIGN.md 8). The store compares the words.

use crate::judge::TEMPLATES;
use shared::config::Config;
use shared::prompt;

/// What stands for the model where none is configured: such a reviewer checks by code alone.
const CODE: &str = "code";

/// The reviewer's identity: model and prompt; or the model alone when the fleet demands that reviewer and
/// worker use different ones.
pub(crate) fn actor(config: &Config) -> String {
    if !config.model.is_configured() {
        return CODE.into();
    }
    let model = config.model.name(config.reviewer.tier);
    if config.reviewer.other_model {
        return model.into();
    }
    let parts: Vec<&str> = std::iter::once(model).chain(TEMPLATES.map(prompt::source)).collect();
    format!("judge:{}", prompt::hash(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::ticket::Tier;

    #[test]
    fn an_actor_is_its_model_and_its_prompt() {
        let mut config = Config::default();
        assert_eq!(actor(&config), CODE);
        config.model.url = "http://127.0.0.1:1/v1".into();
        config.model.standard = "a".into();
        let first = actor(&config);
        assert_eq!(first.len(), "judge:".len() + 16);
        config.model.strong = "b".into();
        config.reviewer.tier = Tier::Strong;
        assert_ne!(actor(&config), first);
        config.reviewer.other_model = true;
        assert_eq!(actor(&config), "b");
        assert!(TEMPLATES.iter().all(|name| !prompt::source(name).is_empty()));
    }
}
