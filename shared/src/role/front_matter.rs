//! The fields between two `---` at the top of a Markdown file. YAML, and where it is none, `key: value` lines: people write
//! colons into their descriptions, and the programs that the files were made for take them.

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// The fields of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Front(Map<String, Value>);

/// Front matter and what stands below it; `None`: the file begins with none.
///
/// # Errors
/// In words: it has no end.
pub fn split(text: &str) -> Result<Option<(String, String)>, String> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Some(rest) = text.strip_prefix("---\n") else { return Ok(None) };
    // A fence is a line of its own.
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok(Some((rest[..at].into(), rest[at + line.len()..].into())));
        }
        at += line.len();
    }
    Err("the --- below the front matter is missing".into())
}

impl Front {
    /// Reads the text between the fences.
    #[must_use]
    pub fn read(front: &str) -> Self {
        match YamlLoader::load_from_str(front).ok().and_then(|all| all.into_iter().next()) {
            Some(Yaml::Hash(fields)) => Self(
                fields
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.into_string()?, json(value))))
                    .collect(),
            ),
            Some(_) | None => Self(lines(front)),
        }
    }

    /// A field as it stands.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A field as one line of text; `None`: it is not there, or a list.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        let text = match self.get(key)? {
            Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
            other @ (Value::Bool(_) | Value::Number(_)) => other.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

fn json(value: Yaml) -> Value {
    match value {
        Yaml::Real(text) | Yaml::String(text) => text.into(),
        Yaml::Integer(n) => n.into(),
        Yaml::Boolean(flag) => flag.into(),
        Yaml::Array(items) => items.into_iter().map(json).collect(),
        Yaml::Hash(fields) => {
            let field = |(key, value): (Yaml, Yaml)| Some((key.into_string()?, json(value)));
            Value::Object(fields.into_iter().filter_map(field).collect())
        }
        Yaml::Alias(_) | Yaml::Null | Yaml::BadValue => Value::Null,
    }
}

fn lines(front: &str) -> Map<String, Value> {
    let field = |line: &str| {
        // What is indented belongs to something above that is not understood.
        if line.starts_with([' ', '\t', '#', '-']) {
            return None;
        }
        let (key, value) = line.split_once(':')?;
        Some((key.trim().to_owned(), Value::from(value.trim().trim_matches(['"', '\'']))))
    };
    front.lines().filter_map(field).collect()
}
