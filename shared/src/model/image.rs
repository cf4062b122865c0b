//! Images in a conversation: what is taken as one, how it stands in the two wire formats, and what a model that takes none
//! reads in its place.

use super::Message;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// Tokens that an image is reckoned with; providers take up to some 1,600 for one.
const TOKENS: usize = 2_000;

/// An image of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub path: String,
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub mime: String,
    pub bytes: u64,
    /// In base64.
    data: String,
}

impl Image {
    /// Reads the kind from the first bytes, whatever the name says. `None`: no image that models take.
    #[must_use]
    pub fn of(path: &str, bytes: &[u8]) -> Option<Self> {
        let mime = match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            _ => return None,
        };
        let data = BASE64_STANDARD.encode(bytes);
        Some(Self { path: path.into(), mime: mime.into(), bytes: bytes.len() as u64, data })
    }

    /// What stands before it, so that it can be named.
    pub(super) fn caption(&self) -> String {
        format!("[image `{}`]", self.path)
    }

    /// What is read in its place, and why.
    #[must_use]
    pub fn placeholder(&self, why: &str) -> String {
        format!("[image `{}`, {}, {} bytes: {why}]", self.path, self.mime, self.bytes)
    }

    pub(super) fn openai(&self) -> Value {
        let url = format!("data:{};base64,{}", self.mime, self.data);
        json!({"type": "image_url", "image_url": {"url": url}})
    }

    pub(super) fn anthropic(&self) -> Value {
        json!({"type": "image", "source": {"type": "base64", "media_type": self.mime, "data": self.data}})
    }
}

/// Images of a conversation.
#[must_use]
pub fn images(messages: &[Message]) -> usize {
    messages.iter().filter(|m| matches!(m, Message::Image(_))).count()
}

/// The conversation for a model that takes no images: each is named in words, together with what the user says beside it.
pub(super) fn in_words(messages: &[Message]) -> Cow<'_, [Message]> {
    if images(messages) == 0 {
        return Cow::Borrowed(messages);
    }
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match (message, out.last_mut()) {
            (Message::Image(image), Some(Message::User(text))) => {
                text.push_str("\n\n");
                text.push_str(&image.placeholder("this model takes no images"));
            }
            (Message::Image(image), _) => {
                out.push(Message::User(image.placeholder("this model takes no images")));
            }
            (other, _) => out.push(other.clone()),
        }
    }
    Cow::Owned(out)
}

/// Bytes of a request as they count in tokens: an image is not its base64.
pub(super) fn weight(body_bytes: usize, messages: &[Message]) -> usize {
    let data: usize = messages.iter().map(|m| if let Message::Image(i) = m { i.data.len() } else { 0 }).sum();
    body_bytes.saturating_sub(data) + images(messages) * TOKENS * 4
}

/// A request without its images' bytes: their digest stands there. For records and comparisons.
#[must_use]
pub fn without_images(value: &Value) -> Value {
    let digest = |data: &str| {
        let hash = Sha256::digest(data.as_bytes());
        let hex: String = hash.iter().map(|b| format!("{b:02x}")).collect();
        format!("sha256:{hex}")
    };
    match value {
        Value::String(text) => match text.split_once(";base64,") {
            Some((mime, data)) if mime.starts_with("data:image/") => {
                format!("{mime};{}", digest(data)).into()
            }
            Some(_) | None => value.clone(),
        },
        Value::Array(items) => items.iter().map(without_images).collect(),
        Value::Object(fields) => {
            let inline = fields.get("type").is_some_and(|t| t == "base64");
            let own = |(name, v): (&String, &Value)| match v.as_str() {
                // What is a digest already stays one.
                Some(data) if inline && name == "data" && !data.starts_with("sha256:") => {
                    (name.clone(), digest(data).into())
                }
                Some(_) | None => (name.clone(), without_images(v)),
            };
            Value::Object(fields.iter().map(own).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_say_what_it_is() {
        let png = Image::of("a.txt", b"\x89PNG\r\n\x1a\nrest").unwrap();
        assert_eq!((png.mime.as_str(), png.bytes), ("image/png", 12));
        assert_eq!(Image::of("a", b"\xff\xd8\xff\xe0").unwrap().mime, "image/jpeg");
        assert_eq!(Image::of("a", b"GIF89a..").unwrap().mime, "image/gif");
        assert_eq!(Image::of("a", b"RIFF0000WEBPVP8 ").unwrap().mime, "image/webp");
        for other in [&b"<svg/>"[..], b"\x89PNG", b"BM....", b""] {
            assert_eq!(Image::of("a.png", other), None);
        }
    }

    #[test]
    fn records_hold_a_digest_and_no_bytes() {
        let png = Image::of("a.png", b"\x89PNG\r\n\x1a\n").unwrap();
        for part in [png.openai(), png.anthropic()] {
            let kept = without_images(&json!({"messages": [{"content": [part.clone()]}]}));
            assert!(kept.to_string().contains("sha256:") && !kept.to_string().contains(&png.data), "{kept}");
            assert_eq!(without_images(&kept), kept);
        }
        let text = json!({"content": "data of type base64", "data": "x"});
        assert_eq!(without_images(&text), text);
    }
}
