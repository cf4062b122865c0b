//! Role files: Markdown with front matter. Seven are built in; an operator's folder adds to or replaces them.

use shared::config::is_word;
use shared::ticket::Tier;
use std::collections::BTreeMap;
use std::path::Path;

const BUILT_IN: [&str; 7] = [
    include_str!("../../roles/code_developer.md"),
    include_str!("../../roles/data_analyst.md"),
    include_str!("../../roles/deep_researcher.md"),
    include_str!("../../roles/fact_checker.md"),
    include_str!("../../roles/general_assistant.md"),
    include_str!("../../roles/planner.md"),
    include_str!("../../roles/summarizer.md"),
];
/// Largest role file.
const BYTES_MAX: u64 = 64 * 1024;
/// Who does a ticket whose plan names no role.
const FALLBACK: &str = "general_assistant";

/// A template of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Tool bundles.
    pub(crate) tools: Vec<String>,
    pub(crate) tier: Tier,
    /// Steps of an attempt; `None`: as configured.
    pub(crate) max_steps: Option<u32>,
    pub(crate) reads_todo: bool,
    pub(crate) persona: String,
}

/// All roles by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles(BTreeMap<String, Role>);

/// A role file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoleError {
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
    #[error("{file}, front matter: {problem}")]
    FrontMatter { file: String, problem: String },
}

impl Roles {
    /// The built-in ones, and those of the folder (empty: none) over them.
    ///
    /// # Errors
    /// [`RoleError`] names the file and what is wrong with it.
    pub(crate) fn load(folder: &Path) -> Result<Self, RoleError> {
        let mut roles = Self::default();
        for text in BUILT_IN {
            roles.add(parse("built-in role", text)?);
        }
        if folder.as_os_str().is_empty() {
            return Ok(roles);
        }
        let wrong = |file: &Path, e: std::io::Error| RoleError::File {
            file: file.display().to_string(),
            problem: e.to_string(),
        };
        let entries = std::fs::read_dir(folder).map_err(|e| wrong(folder, e))?;
        let mut files: Vec<_> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
        files.retain(|path| path.extension().is_some_and(|ext| ext == "md"));
        files.sort();
        for file in files {
            let size = std::fs::metadata(&file).map_err(|e| wrong(&file, e))?.len();
            if size > BYTES_MAX {
                let problem = format!("{size} bytes, {BYTES_MAX} are allowed");
                return Err(RoleError::File { file: file.display().to_string(), problem });
            }
            let text = std::fs::read_to_string(&file).map_err(|e| wrong(&file, e))?;
            roles.add(parse(&file.display().to_string(), &text)?);
        }
        Ok(roles)
    }

    fn add(&mut self, role: Role) {
        self.0.insert(role.name.clone(), role);
    }

    /// The role of that name; an unknown or empty name has the general assistant's, since the manager
    /// validated what it could and a worker may be older than a role.
    pub(crate) fn find(&self, name: &str) -> Option<&Role> {
        self.0.get(name).or_else(|| self.0.get(FALLBACK))
    }
}

/// Front matter is `key: value` lines between two `---`; a list is comma-separated, brackets or not. Keys that
/// are not known here belong to other programs' agent files and are passed over.
fn parse(file: &str, text: &str) -> Result<Role, RoleError> {
    let wrong = |problem: String| RoleError::FrontMatter { file: file.into(), problem };
    let rest = text
        .trim_start_matches('\u{feff}')
        .strip_prefix("---")
        .ok_or_else(|| wrong("the file does not begin with ---".into()))?;
    let (front, body) = rest.split_once("\n---").ok_or_else(|| wrong("the closing --- is missing".into()))?;
    let mut keys = BTreeMap::new();
    for line in front.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#')) {
        let (key, value) = line.split_once(':').ok_or_else(|| wrong(format!("{line:?} is no key: value")))?;
        keys.insert(key.trim(), value.trim().trim_matches(['"', '\'']));
    }
    let name = keys.get("name").copied().unwrap_or_default();
    if !is_word(name) {
        return Err(wrong("name must be a word of letters, digits, - and _".into()));
    }
    let tools = keys.get("tools").copied().unwrap_or_default();
    let persona = body.trim_start_matches('-').trim();
    if persona.is_empty() {
        return Err(wrong("the persona below it is empty".into()));
    }
    let flag = |key: &str| match keys.get(key).copied() {
        None | Some("true" | "yes") => Ok(true),
        Some("false" | "no") => Ok(false),
        Some(other) => Err(wrong(format!("{key} must be true or false, not {other:?}"))),
    };
    Ok(Role {
        name: name.into(),
        description: keys.get("description").copied().unwrap_or_default().into(),
        tools: tools
            .trim_matches(['[', ']'])
            .split(',')
            .map(|t| t.trim().trim_matches(['"', '\'']).to_owned())
            .filter(|t| !t.is_empty())
            .collect(),
        // Other programs name models here (`inherit`, a model's name): those have the standard tier.
        tier: match keys.get("model").copied() {
            Some("cheap") => Tier::Cheap,
            Some("strong") => Tier::Strong,
            _ => Tier::Standard,
        },
        max_steps: match keys.get("max_steps") {
            None => None,
            Some(n) => Some(n.parse().map_err(|_| wrong(format!("max_steps must be a number, not {n:?}")))?),
        },
        reads_todo: flag("auto_read_todo")?,
        persona: persona.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seven_roles_of_the_seed_are_built_in() {
        let roles = Roles::load(Path::new("")).unwrap();
        let names: Vec<_> = roles.0.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "code_developer",
                "data_analyst",
                "deep_researcher",
                "fact_checker",
                "general_assistant",
                "planner",
                "summarizer"
            ]
        );
        assert!(roles.0.values().all(|r| !r.description.is_empty() && !r.tools.is_empty()));
        assert_eq!(roles.find("").unwrap().name, FALLBACK);
        assert_eq!(roles.find("nobody").unwrap().name, FALLBACK);
    }

    #[test]
    fn an_operators_file_replaces_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("summarizer.md");
        let own = "---\nname: summarizer\ndescription: ours\ntools: [files, web]\nmodel: sonnet\ncolor: red\n---\nBe brief.\n";
        std::fs::write(&file, own).unwrap();
        let roles = Roles::load(folder.path()).unwrap();
        let role = roles.find("summarizer").unwrap();
        assert_eq!((role.persona.as_str(), role.max_steps), ("Be brief.", None));
        assert_eq!(role.tools, ["files", "web"]);
        for bad in ["Be brief.", "---\nname: a b\n---\nx", "---\nname: a\n", "---\nname: a\n---\n"] {
            std::fs::write(&file, bad).unwrap();
            let wrong = Roles::load(folder.path()).unwrap_err().to_string();
            assert!(wrong.contains("summarizer.md"), "{wrong}");
        }
    }
}
