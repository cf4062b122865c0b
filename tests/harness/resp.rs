//! Redis' wire format, as far as one must read it to stand between a client and its server: where a command ends, where a
//! reply ends.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// A command as it came: its words, and the bytes to pass on.
#[derive(Clone, Debug, Default)]
pub struct Command {
    pub words: Vec<Vec<u8>>,
    pub raw: Vec<u8>,
}

/// The next command; `None` at the end of the stream.
///
/// # Errors
/// When it is no array of bulk strings, or the stream ends in its middle.
pub async fn command(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Command>> {
    let mut command = Command::default();
    if line(from, &mut command.raw).await?.is_none() {
        return Ok(None);
    }
    let count = number(&command.raw, b'*')?;
    for _ in 0..count {
        let start = command.raw.len();
        line(from, &mut command.raw).await?.context("a command is cut")?;
        let length = number(command.raw.get(start..).unwrap_or_default(), b'$')?;
        let word = bulk(from, &mut command.raw, length).await?;
        command.words.push(word);
    }
    Ok(Some(command))
}

/// The next reply, whole, as bytes; `None` at the end of the stream.
///
/// # Errors
/// When it is of a kind that is not known, or the stream ends in its middle.
pub async fn reply(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>> {
    let mut raw = vec![];
    // Parts that are still to come: an array brings as many as it says.
    let mut open = 1_usize;
    while open > 0 {
        let start = raw.len();
        if line(from, &mut raw).await?.is_none() {
            if start == 0 {
                return Ok(None);
            }
            bail!("a reply is cut");
        }
        open -= 1;
        let head = raw.get(start..).unwrap_or_default().to_vec();
        match head.first() {
            Some(b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(') => {}
            Some(kind @ (b'$' | b'=' | b'!')) if !head.starts_with(b"$-1") => {
                let length = number(&head, *kind)?;
                bulk(from, &mut raw, length).await?;
            }
            Some(kind @ (b'*' | b'~' | b'>')) if !head.starts_with(b"*-1") => open += number(&head, *kind)?,
            Some(b'%') => open += 2 * number(&head, b'%')?,
            Some(b'$' | b'*') => {}
            other => bail!("a reply of kind {other:?}"),
        }
    }
    Ok(Some(raw))
}

/// One line with its end, appended; `None` at the end of the stream.
async fn line(from: &mut (impl AsyncBufRead + Unpin), to: &mut Vec<u8>) -> Result<Option<()>> {
    let read = from.read_until(b'\n', to).await?;
    Ok((read > 0).then_some(()))
}

fn number(head: &[u8], kind: u8) -> Result<usize> {
    let text = std::str::from_utf8(head)?.trim_end();
    let digits =
        text.strip_prefix(char::from(kind)).with_context(|| format!("{text:?} is not what was due"))?;
    digits.parse().with_context(|| format!("{text:?} has no length"))
}

async fn bulk(from: &mut (impl AsyncBufRead + Unpin), to: &mut Vec<u8>, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes).await?;
    to.extend_from_slice(&bytes);
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_and_replies_end_where_they_end() {
        let mut two: &[u8] = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nTIME\r\n";
        let first = command(&mut two).await.unwrap().unwrap();
        assert_eq!(first.words, [b"GET".to_vec(), b"a\r\nb".to_vec()]);
        assert_eq!(command(&mut two).await.unwrap().unwrap().words, [b"TIME".to_vec()]);
        assert!(command(&mut two).await.unwrap().is_none());
        let nested: &[u8] = b"*3\r\n:1\r\n*2\r\n$-1\r\n$2\r\nhi\r\n+OK\r\n";
        let mut from: &[u8] = &[nested, b"-ERR no\r\n"].concat();
        assert_eq!(reply(&mut from).await.unwrap().unwrap(), nested);
        assert_eq!(reply(&mut from).await.unwrap().unwrap(), b"-ERR no\r\n");
        assert!(reply(&mut from).await.unwrap().is_none());
        let mut cut: &[u8] = b"*2\r\n:1\r\n";
        assert!(reply(&mut cut).await.is_err());
    }
}
