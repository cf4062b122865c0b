//! Texts that are too long for a prompt: the whole goes to a file below `temp/`, head and tail stay (A19, C8).

use super::ToolBox;

/// Share of the head in what stays.
const HEAD_PARTS: (usize, usize) = (2, 3);

/// The text as it is when it fits; else its head and tail, and where the whole is.
pub(super) async fn fit(tools: &mut ToolBox, tool: &str, text: String) -> String {
    let most = tools.limits.tool_output_bytes_max;
    if text.len() <= most {
        return text;
    }
    tools.spilled += 1;
    let path = format!("temp/{tool}-{}.txt", tools.spilled);
    let (head, tail) = ends(&text, most);
    let left_out = text.len() - head.len() - tail.len();
    let place = match tools.attempt.write(&path, text.clone().into_bytes()).await {
        Ok(()) => format!("the whole is in {path}, read it in parts"),
        Err(error) => format!("the whole could not be kept: {error}"),
    };
    format!("{head}\n[… {left_out} bytes left out; {place} …]\n{tail}")
}

/// Head and tail of together at most `most` bytes, cut between characters.
fn ends(text: &str, most: usize) -> (&str, &str) {
    let head = text.floor_char_boundary(most * HEAD_PARTS.0 / HEAD_PARTS.1);
    let tail = text.ceil_char_boundary(text.len() - (most - most * HEAD_PARTS.0 / HEAD_PARTS.1));
    (&text[..head], &text[tail.max(head)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_cut_between_characters() {
        let text = "漢".repeat(1000);
        let (head, tail) = ends(&text, 100);
        assert_eq!((head.len(), tail.len()), (66, 33));
        assert_eq!(ends("abcdef", 3), ("ab", "f"));
    }
}
