//! Reading what scripts answer.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum grows; what is not expected is an error"
)]

use super::{Result, StoreError, Written};
use redis::Value;

fn broken(what: &str, value: &Value) -> StoreError {
    let mut shown = format!("{value:?}");
    shown.truncate(200);
    StoreError::Broken(format!("expected {what}, got {shown}"))
}

pub(super) fn text(value: Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(s) => Ok(s),
        Value::Okay => Ok("OK".into()),
        Value::Int(i) => Ok(i.to_string()),
        Value::Nil => Ok(String::new()),
        other => Err(broken("a text", &other)),
    }
}

pub(super) fn bytes(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(s) => Ok(s.into_bytes()),
        Value::Nil => Ok(vec![]),
        other => Err(broken("bytes", &other)),
    }
}

pub(super) fn array(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) | Value::Set(items) => Ok(items),
        Value::Nil => Ok(vec![]),
        other => Err(broken("an array", &other)),
    }
}

pub(super) fn texts(value: Value) -> Result<Vec<String>> {
    array(value)?.into_iter().map(text).collect()
}

pub(super) fn number(value: Value) -> Result<u64> {
    match value {
        Value::Int(i) => Ok(u64::try_from(i).unwrap_or(0)),
        Value::Nil => Ok(0),
        other => {
            let word = text(other)?;
            word.split('.')
                .next()
                .unwrap_or_default()
                .parse()
                .map_err(|_| StoreError::Broken(format!("expected a number, got {word:?}")))
        }
    }
}

pub(super) fn written(word: &str) -> Result<Written> {
    Ok(match word {
        "OK" => Written::Ok,
        "DUP" => Written::Dup,
        "FENCED" => Written::Fenced,
        "MOVED" => Written::Moved,
        "GONE" => Written::Gone,
        "ESCALATED" => Written::Escalated,
        "CANCELLED" => Written::Cancelled,
        other => return Err(StoreError::Broken(format!("answer {other:?} is not known"))),
    })
}
