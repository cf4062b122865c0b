//! read_file, write_file, append_file, list_files: text files of the attempt.

use super::ToolError;
use shared::model::Image;
use shared::sandbox::WORKSPACE;
use shared::workspace::{Attempt, FileError, mime_of};

/// Files shown in one listing.
const LISTED_MAX: usize = 500;
/// Enough of a file to see that it is an image.
const HEAD_BYTES: usize = 64;
/// Files named when a path does not exist.
const NAMED_MAX: usize = 20;

/// Code sees the folder as `/workspace`, and models carry that path over to the other tools.
pub(super) fn relative(path: &str) -> &str {
    path.strip_prefix(WORKSPACE).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path)
}

/// A part of a text file; says where the next part begins.
pub(super) async fn read(
    attempt: &Attempt,
    path: &str,
    offset: u64,
    limit: usize,
) -> Result<String, ToolError> {
    let path = relative(path);
    let (bytes, length) = match attempt.read_part(path, offset, limit.max(4)).await {
        Ok(part) => part,
        Err(FileError::NotThere(_)) => return Err(not_there(attempt, path).await),
        Err(error) => return Err(error.into()),
    };
    if offset >= length && length > 0 {
        return Err(ToolError::Tell(format!("`{path}` has {length} bytes, offset_bytes must be below that")));
    }
    let Some((text, from, to)) = text_of(&bytes, offset) else {
        let kind = mime_of(path);
        return Err(ToolError::Tell(format!(
            "`{path}` is not a text file ({kind}, {length} bytes); look at it with code"
        )));
    };
    if from == 0 && to == length {
        return Ok(if text.is_empty() { format!("[`{path}` is empty]") } else { text });
    }
    let next = if to < length { format!("; go on with offset_bytes {to}") } else { String::new() };
    Ok(format!("{text}\n[bytes {from} to {to} of {length}{next}]"))
}

/// The image at that path, or its bytes when they are more than `bytes_max`; with the path as the workspace has it. `None`:
/// no image.
pub(super) async fn image(
    attempt: &Attempt,
    path: &str,
    bytes_max: u64,
) -> Option<(String, Result<Image, u64>)> {
    let path = relative(path);
    if bytes_max == 0 || !mime_of(path).starts_with("image/") {
        return None;
    }
    let (head, length) = attempt.read_part(path, 0, HEAD_BYTES).await.ok()?;
    Image::of(path, &head)?;
    if length > bytes_max {
        return Some((path.into(), Err(length)));
    }
    let bytes = attempt.read(path, bytes_max).await.ok()?;
    Some((path.into(), Ok(Image::of(path, &bytes)?)))
}

/// The text of a part, without half characters at its ends; where it begins and ends. `None`: not text.
fn text_of(bytes: &[u8], offset: u64) -> Option<(String, u64, u64)> {
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let begin = if offset == 0 { 0 } else { bytes.iter().take(3).take_while(|b| is_inside(b)).count() };
    let bytes = &bytes[begin..];
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // Only a character that the end cuts is no fault of the file.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    if whole.contains('\0') {
        return None;
    }
    let from = offset + begin as u64;
    Some((whole.into(), from, from + whole.len() as u64))
}

async fn not_there(attempt: &Attempt, path: &str) -> ToolError {
    let files = attempt.list().await.unwrap_or_default();
    let names: Vec<&str> = files.iter().take(NAMED_MAX).map(|(path, _)| path.as_str()).collect();
    let more = if files.len() > NAMED_MAX { ", …" } else { "" };
    let there = if names.is_empty() {
        "the workspace is empty".into()
    } else {
        format!("there are {}{more}", names.join(", "))
    };
    ToolError::Tell(format!("`{path}` does not exist; {there}"))
}

/// Writes the file as a whole.
pub(super) async fn write(attempt: &Attempt, path: &str, content: &str) -> Result<String, ToolError> {
    let path = relative(path);
    attempt.write(path, content.into()).await?;
    Ok(format!("wrote {} bytes to {path}", content.len()))
}

/// Appends to the file.
pub(super) async fn append(attempt: &Attempt, path: &str, content: &str) -> Result<String, ToolError> {
    let path = relative(path);
    let length = attempt.append(path, content.into()).await?;
    Ok(format!("appended {} bytes to {path}, which has {length} now", content.len()))
}

/// Paths and sizes of what begins with the prefix.
pub(super) async fn list(attempt: &Attempt, prefix: &str) -> Result<String, ToolError> {
    let prefix = relative(prefix).trim_start_matches("./");
    let files = attempt.list().await?;
    let found: Vec<String> = files
        .iter()
        .filter(|(path, _)| path.starts_with(prefix))
        .map(|(path, bytes)| format!("{path} ({bytes} bytes)"))
        .collect();
    if found.is_empty() {
        return Ok(format!("no files{}", if prefix.is_empty() { "" } else { " below that" }));
    }
    let mut lines = found[..found.len().min(LISTED_MAX)].join("\n");
    if found.len() > LISTED_MAX {
        lines.push_str(&format!("\n[{} more: give a prefix]", found.len() - LISTED_MAX));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_hold_half_a_character() {
        let bytes = "aé漢😀z".as_bytes();
        for offset in 0..bytes.len() {
            for end in offset..=bytes.len() {
                let (text, from, to) = text_of(&bytes[offset..end], offset as u64).unwrap();
                assert_eq!(text.as_bytes(), &bytes[from as usize..to as usize], "{offset}..{end}");
            }
        }
        let parts = [text_of(&bytes[..5], 0).unwrap(), text_of(&bytes[3..], 3).unwrap()];
        assert_eq!((parts[0].0.as_str(), parts[0].2, parts[1].0.as_str()), ("aé", 3, "漢😀z"));
        assert!(text_of(b"PNG\x89\xff", 0).is_none() && text_of(b"a\0b", 0).is_none());
    }

    #[test]
    fn paths_as_code_sees_them_are_taken() {
        assert_eq!(relative("/workspace/outputs/a"), "outputs/a");
        assert_eq!(relative("/workspaces/a"), "/workspaces/a");
    }
}
