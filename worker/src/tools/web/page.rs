//! A page as it came: bounded bytes, their charset, and the text in them.

use super::markdown;
use crate::tools::ToolError;
use encoding_rs::{Encoding, UTF_8};
use reqwest::{Response, Url};

/// Where a page may name its charset itself.
const CHARSET_BYTES: usize = 1024;
/// Kinds that are text beside `text/*`, by a part of their name.
const TEXT_KINDS: &[&str] = &["json", "xml", "yaml", "javascript", "csv", "toml", "x-www-form-urlencoded"];

pub(super) struct Page {
    /// Lower case, without parameters; empty when the server does not say.
    kind: String,
    charset: Option<String>,
    bytes: Vec<u8>,
    /// There was more.
    pub(super) cut: bool,
}

impl Page {
    /// Reads the answer up to `bytes_max`.
    pub(super) async fn read(mut answer: Response, bytes_max: usize) -> reqwest::Result<Self> {
        let header = answer.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (kind, parameters) = header.split_once(';').unwrap_or((header, ""));
        let (kind, charset) = (kind.trim().to_ascii_lowercase(), charset(parameters));
        let (mut bytes, mut cut) = (vec![], false);
        while let Some(piece) = answer.chunk().await? {
            let room = bytes_max - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                cut = true;
                break;
            }
        }
        Ok(Self { kind, charset, bytes, cut })
    }

    /// What a model reads of it.
    pub(super) fn text(&self, url: &Url) -> Result<String, ToolError> {
        let is_html = self.kind.contains("html") || (self.kind.is_empty() && looks_like_html(&self.bytes));
        let is_text = self.kind.is_empty()
            || self.kind.starts_with("text/")
            || TEXT_KINDS.iter().any(|k| self.kind.contains(k));
        if !is_html && (!is_text || self.bytes.contains(&0) && self.charset.is_none()) {
            return Err(ToolError::Tell(format!(
                "{url} is no text ({}, {} bytes{}); it cannot be read here",
                if self.kind.is_empty() { "of an unknown kind" } else { &self.kind },
                self.bytes.len(),
                if self.cut { " and more" } else { "" },
            )));
        }
        let text = self.decoded(is_html);
        Ok(if is_html { markdown::of(&text, url) } else { text })
    }

    /// By byte order mark, header, the page's own word, or as UTF-8; in this order.
    fn decoded(&self, is_html: bool) -> String {
        let head = &self.bytes[..self.bytes.len().min(CHARSET_BYTES)];
        let own = || {
            let head = String::from_utf8_lossy(head).to_ascii_lowercase();
            is_html.then(|| charset(head.split_once("charset").map(|_| head.as_str())?)).flatten()
        };
        let label = self.charset.clone().or_else(own).unwrap_or_default();
        let encoding = Encoding::for_label(label.as_bytes()).unwrap_or(UTF_8);
        encoding.decode(&self.bytes).0.into_owned()
    }
}

/// The word behind `charset=`.
fn charset(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (_, rest) = text.split_once("charset")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let word: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_:".contains(*c)).collect();
    (!word.is_empty()).then_some(word)
}

fn looks_like_html(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(CHARSET_BYTES)]).to_ascii_lowercase();
    head.contains("<html") || head.contains("<!doctype html") || head.contains("<body")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: &str, bytes: &[u8]) -> Result<String, String> {
        let (kind, parameters) = kind.split_once(';').unwrap_or((kind, ""));
        let page = Page { kind: kind.into(), charset: charset(parameters), bytes: bytes.into(), cut: false };
        page.text(&Url::parse("http://h/p").unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn charsets_come_from_the_header_the_page_or_are_utf8() {
        let (gbk, _, _) = encoding_rs::GBK.encode("<p>你好，世界</p>");
        assert_eq!(text("text/html; charset=GBK", &gbk).unwrap(), "你好，世界");
        let own = [b"<html><meta charset=\"gb2312\">".as_slice(), &gbk].concat();
        assert_eq!(text("text/html", &own).unwrap(), "你好，世界");
        let long =
            [b"<meta http-equiv='Content-Type' content='text/html; charset=GBK'>".as_slice(), &gbk].concat();
        assert_eq!(text("", &[b"<html>".as_slice(), &long].concat()).unwrap(), "你好，世界");
        assert_eq!(text("text/plain", "größer".as_bytes()).unwrap(), "größer");
        assert_eq!(text("text/plain;charset=latin1", b"gr\xf6\xdfer").unwrap(), "größer");
        assert_eq!(
            text("text/plain", b"\xff\xfeh\0i\0").unwrap_err(),
            "http://h/p is no text (text/plain, 6 bytes); it cannot be read here"
        );
    }

    #[test]
    fn what_is_no_text_is_said() {
        for kind in ["application/pdf", "image/png", "application/octet-stream"] {
            assert!(text(kind, b"x").unwrap_err().contains(kind));
        }
        assert_eq!(text("application/json", b"{\"a\":1}").unwrap(), "{\"a\":1}");
        assert!(text("", b"\0\x01").unwrap_err().contains("unknown kind"));
    }
}
