//! A role: the template of an agent, in Markdown with front matter, as people have them for coding agents.
//!
//! What a file says in another program's words (its tools, its models) is understood in [`foreign`]; what it says
//! beyond that is passed over. Files are read in [`folder`].

pub mod folder;
mod foreign;
pub mod front_matter;

pub use folder::{Library, RoleError, Roles};

use crate::ticket::Tier;
use crate::ticket::limits::is_word;
use front_matter::Front;

/// Longest description that a planner reads, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// A template of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    /// By it the planner chooses.
    pub description: String,
    /// Tool bundles.
    pub tools: Vec<String>,
    pub tier: Tier,
    /// Steps of an attempt; `None`: as configured.
    pub max_steps: Option<u32>,
    pub reads_todo: bool,
    pub persona: String,
}

impl Role {
    /// Reads one file; `stem` is its name without the ending, for files that say no name. `None`: it has no front
    /// matter and is no role, such as a README beside the roles.
    ///
    /// # Errors
    /// In words, the field and what is wrong with it.
    pub fn of(stem: &str, text: &str) -> Result<Option<Self>, String> {
        let Some((front, body)) = front_matter::split(text)? else { return Ok(None) };
        let front = Front::read(&front);
        let persona = body.trim();
        if persona.is_empty() {
            return Err("the persona below the front matter is empty".into());
        }
        let flag = |key: &str| match front.text(key).unwrap_or_default().as_str() {
            "" | "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            other => Err(format!("{key} must be true or false, not {other:?}")),
        };
        let steps = ["max_steps", "maxTurns", "max_turns", "steps"].into_iter().find_map(|key| {
            let said = front.text(key)?;
            Some(said.parse().map_err(|_| format!("{key} must be a number, not {said:?}")))
        });
        let description = front.text("description").unwrap_or_default();
        Ok(Some(Self {
            name: name(front.text("name").as_deref(), stem)?,
            description: description.chars().take(DESCRIPTION_CHARS_MAX).collect(),
            tools: foreign::bundles(front.get("tools"), front.get("disallowedTools")),
            tier: foreign::tier(&front.text("model").unwrap_or_default()),
            max_steps: steps.transpose()?,
            reads_todo: flag("auto_read_todo")?,
            persona: persona.into(),
        }))
    }
}

/// A word that a plan can name: `Code Reviewer` is `code-reviewer`.
fn name(said: Option<&str>, stem: &str) -> Result<String, String> {
    for text in [said.unwrap_or_default().trim(), stem] {
        if is_word(text) {
            return Ok(text.into());
        }
        let lower = text.to_lowercase();
        let parts = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|p| !p.is_empty());
        let word = parts.collect::<Vec<_>>().join("-");
        if is_word(&word) {
            return Ok(word);
        }
    }
    Err(format!(
        "name: {said:?} is no word of letters, digits, - and _, and the file's own name is none either"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(text: &str) -> Role {
        Role::of("file-name", text).unwrap().unwrap()
    }

    #[test]
    fn an_agent_file_of_another_tool_is_a_role_as_it_stands() {
        // As they are found: colons in a value, which is no YAML; another program's tools, models and fields.
        let text = "---\nname: Code Reviewer\ndescription: Reviews code. Use it proactively: after each change, e.g. <example>user: done</example>\n\
                    tools: Read, Grep, Glob, Bash(git diff:*, git log:*), WebFetch, mcp__tracker__find, TodoWrite\nmodel: opus\ncolor: cyan\n\
                    permissionMode: plan\n---\n\nYou review code.\n";
        let role = role(text);
        assert_eq!((role.name.as_str(), role.tier, role.max_steps), ("code-reviewer", Tier::Strong, None));
        assert_eq!(role.tools, ["files", "code", "web", "tracker"]);
        assert!(
            role.description.starts_with("Reviews code. Use it proactively: after"),
            "{}",
            role.description
        );
        assert_eq!(role.persona, "You review code.");
    }

    #[test]
    fn lists_maps_and_texts_over_several_lines_are_read() {
        let list = role(
            "---\r\ndescription: >\r\n  Writes\r\n  tests.\r\ntools:\r\n  - edit\r\n  - 'web_search'\r\nmaxTurns: 12\r\nmodel: inherit\r\n---\r\nYou test.",
        );
        assert_eq!((list.name.as_str(), list.description.as_str()), ("file-name", "Writes tests."));
        assert_eq!(
            (list.tools.as_slice(), list.max_steps),
            (&["files".to_owned(), "web".into()][..], Some(12))
        );
        let map = role(
            "---\nmode: subagent\nmodel: anthropic/claude-haiku-4\ntools:\n  write: true\n  bash: false\n---\nx",
        );
        assert_eq!((map.tools.as_slice(), map.tier), (&["files".to_owned()][..], Tier::Cheap));
        // Without a word about tools an agent has all of them there; here those that need no configuration.
        let all = role("---\ndescription: does it\ndisallowedTools: Bash\n---\nx");
        assert_eq!(all.tools, ["files", "web"]);
    }

    #[test]
    fn what_cannot_be_a_role_says_which_field_it_is() {
        assert_eq!(Role::of("readme", "# Our agents\n").unwrap(), None);
        for (text, field) in [
            ("---\nname: a\n", "---"),
            ("---\nname: a\n---\n", "persona"),
            ("---\nname: a\nmax_steps: many\n---\nx", "max_steps"),
            ("---\nname: a\nauto_read_todo: maybe\n---\nx", "auto_read_todo"),
        ] {
            let problem = Role::of("b", text).unwrap_err();
            assert!(problem.contains(field), "{problem}");
        }
        assert!(Role::of("审查", "---\nname: 审查\n---\nx").unwrap_err().contains("name"));
    }
}
