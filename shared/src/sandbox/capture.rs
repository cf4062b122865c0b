//! The first and last bytes of an output of any length: the beginning says what ran, the end how it ended.

use std::collections::VecDeque;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Collects an output up to a cap; what is over is read and dropped, so that the writer never blocks.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    dropped: u64,
}

impl Capture {
    /// Keeps at most `bytes_max`, half from the beginning, half from the end.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: (bytes_max / 2).max(1), dropped: 0 }
    }

    /// Takes bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }

    /// Reads to the end of a pipe.
    ///
    /// # Errors
    /// What the pipe says; what was read until then is kept.
    pub async fn read_from(&mut self, mut pipe: impl AsyncRead + Unpin) -> std::io::Result<()> {
        let mut piece = vec![0; 16 * 1024];
        loop {
            match pipe.read(&mut piece).await? {
                0 => return Ok(()),
                read => self.add(&piece[..read]),
            }
        }
    }

    /// Whether something was dropped.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.dropped > 0
    }

    /// What was kept, with a line where something is missing. Bytes that are no UTF-8 become U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if !self.is_cut() {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[… {} bytes left out …]\n{tail}", self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_outputs_are_kept_whole_and_long_ones_keep_both_ends() {
        let mut capture = Capture::new(8);
        for piece in ["ab", "cde", "fgh"] {
            capture.add(piece.as_bytes());
        }
        assert_eq!((capture.text().as_str(), capture.is_cut()), ("abcdefgh", false));
        capture.add(b"ijkl");
        assert_eq!(capture.text(), "abcd\n[… 4 bytes left out …]\nijkl");
        assert!(capture.is_cut());
    }

    #[tokio::test]
    async fn a_flood_takes_no_memory() {
        let flood = tokio::io::AsyncReadExt::take(tokio::io::repeat(b'x'), 50_000_000);
        let mut capture = Capture::new(1000);
        capture.read_from(flood).await.unwrap();
        assert_eq!(capture.dropped, 50_000_000 - 1000);
        assert!(capture.head.capacity() + capture.tail.capacity() < 100_000);
    }
}
