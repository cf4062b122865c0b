//! JSON files held against a JSON schema.

use super::{CheckError, Found, head};
use jsonschema::Validator;
use serde_json::Value;
use shared::ticket::graph::params;

/// Most errors told at once.
const ERRORS_MAX: usize = 5;

pub(super) fn compile(schema: &Value) -> Result<Validator, CheckError> {
    params::schema(schema).map_err(CheckError::Parameter)
}

pub(super) fn check(schema: &Validator, bytes: &[u8]) -> Found {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Found::Fails(format!("it is not JSON: {error}")),
    };
    let errors: Vec<String> = schema
        .iter_errors(&value)
        .take(ERRORS_MAX)
        .map(|e| {
            let at = e.instance_path().to_string();
            let at = if at.is_empty() { "the whole".to_owned() } else { at };
            format!("{at}: {}", head(&e.to_string(), 200))
        })
        .collect();
    if errors.is_empty() { Found::Holds("it is valid".into()) } else { Found::Fails(errors.join("; ")) }
}
