//! The client's own words to a model; the longer ones are templates in `prompt/model_*.j2`.

use minijinja::{Environment, context};
use serde_json::Value;

/// Told to the model under the id of a call that a length limit cut.
pub(super) const CUT: &str = "Nothing was executed: the reply was cut off before this call was complete. \
     Make it shorter: write long content in several parts, one call each.";

/// Told to the model under the id of a call whose arguments are unreadable.
pub(super) fn bad_arguments(problem: &str) -> String {
    format!(
        "Nothing was executed: the arguments could not be read: {problem}. Send the call again with one JSON object."
    )
}

/// Put behind the last user message where the server itself does not enforce the schema.
pub(super) fn format(schema: &Value) -> String {
    render(include_str!("../prompt/model_format.j2"), &context! { schema => schema.to_string() })
}

/// Asks again after an answer that was not valid.
pub(super) fn invalid(problems: &[String], cut: bool) -> String {
    render(include_str!("../prompt/model_invalid.j2"), &context! { problems => from(problems), cut })
}

/// Asks again after tool markup that could not be read.
pub(super) fn stray(problem: &str, tools: &[&str]) -> String {
    render(include_str!("../prompt/model_stray.j2"), &context! { problem, tools => from(tools) })
}

/// Describes the tools to a model that has no native calls, for the dialect `json`.
pub(super) fn tools_json(catalogue: &[String]) -> String {
    render(include_str!("../prompt/model_tools_json.j2"), &context! { catalogue => from(catalogue) })
}

/// The same for the dialect `xml`.
pub(super) fn tools_xml(catalogue: &[String]) -> String {
    render(include_str!("../prompt/model_tools_xml.j2"), &context! { catalogue => from(catalogue) })
}

/// The same for the dialect `text`.
pub(super) fn tools_text(catalogue: &[String]) -> String {
    render(include_str!("../prompt/model_tools_text.j2"), &context! { catalogue => from(catalogue) })
}

fn render(template: &str, context: &minijinja::Value) -> String {
    match Environment::new().render_str(template, context) {
        Ok(text) => text,
        Err(e) => {
            // The templates are compiled in and a test renders each: this is a broken build, not an input.
            tracing::error!(error = %e, "a built-in template does not render");
            String::new()
        }
    }
}

fn from<T: AsRef<str>>(list: &[T]) -> minijinja::Value {
    list.iter().map(AsRef::as_ref).collect()
}
