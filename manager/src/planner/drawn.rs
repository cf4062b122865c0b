//! A plan in lines, for the person who approves it. Pure.

use super::estimate::estimate;
use shared::config;
use shared::ticket::TicketSpec;

/// Bytes that it may take: the store keeps 4 KiB of a question.
const BYTES_MAX: usize = 3_600;
/// Characters of a ticket's description: in short plans, and in those that would not fit with them.
const DESCRIPTION_CHARS: [usize; 3] = [300, 100, 40];

/// What it would take, and one line a ticket; as much of the descriptions as fits for all of them.
pub(crate) fn drawn(specs: &[TicketSpec], prices: &config::Model) -> String {
    let taken = estimate(specs, prices);
    let head = format!(
        "{} tickets, {} at once and {} in a row at most; about {} model calls and {} tokens",
        taken.tickets,
        taken.width,
        taken.critical_path,
        taken.model_calls,
        taken.input_tokens + taken.output_tokens
    );
    let mut text = String::new();
    for chars in DESCRIPTION_CHARS {
        let lines: Vec<String> = specs.iter().map(|spec| line(spec, chars)).collect();
        text = format!("{head}\n{}", lines.join("\n"));
        if text.len() <= BYTES_MAX {
            return text;
        }
    }
    let kept: String = text.char_indices().take_while(|(at, _)| *at < BYTES_MAX).map(|(_, c)| c).collect();
    let lines = kept.matches('\n').count();
    format!("{}\n… and {} more tickets", &kept[..kept.rfind('\n').unwrap_or(0)], specs.len() + 1 - lines)
}

fn line(spec: &TicketSpec, chars: usize) -> String {
    let by = match &spec.call {
        Some(call) => format!("tool {}", call.tool),
        None if spec.role.is_empty() => "persona of its own".to_owned(),
        None => spec.role.clone(),
    };
    let needs =
        if spec.needs.is_empty() { String::new() } else { format!(", after {}", spec.needs.join(", ")) };
    let words: Vec<&str> = spec.description.split_whitespace().collect();
    let words: String = words.join(" ").chars().take(chars).collect();
    format!("- {} ({by}{needs}): {words}", spec.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(key: &str, needs: &[&str], words: &str) -> TicketSpec {
        let mut spec = TicketSpec::new(key, words, "x");
        spec.role = "summarizer".into();
        spec.needs = needs.iter().map(|n| (*n).to_owned()).collect();
        spec
    }

    #[test]
    fn a_person_reads_who_does_what_after_whom_and_what_it_takes() {
        let drawn =
            drawn(&[spec("a", &[], "find\nit"), spec("b", &["a"], "write it")], &config::Model::default());
        assert!(drawn.starts_with("2 tickets, 1 at once and 2 in a row"), "{drawn}");
        assert!(drawn.ends_with("- a (summarizer): find it\n- b (summarizer, after a): write it"), "{drawn}");
    }

    #[test]
    fn a_long_plan_is_cut_and_says_so() {
        let long = "wörter ".repeat(60);
        let all: Vec<TicketSpec> = (0..200).map(|n| spec(&format!("t{n}"), &[], &long)).collect();
        let drawn = drawn(&all, &config::Model::default());
        assert!(drawn.len() < 4_096 && drawn.contains("- t0 ") && drawn.contains("more tickets"), "{drawn}");
        let shown = drawn.matches("\n- t").count();
        assert!(drawn.ends_with(&format!("and {} more tickets", 200 - shown)), "{drawn}");
    }
}
