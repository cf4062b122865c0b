//! `muster deliver`: a person's files in the place of a ticket that waits for one. They are reviewed like all others.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{items, number, text};
use super::types::{DeliverFiles, InputFile};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster deliver 0193f0a0/measure data/measure.csv\n  \
    muster deliver 0193f0a0/report outputs/report.md=draft3.md outputs/chart.svg=new/chart.svg")]
pub(crate) struct Args {
    /// The ticket: GOAL/KEY, or first digits of its id.
    ticket: String,
    /// Files; with PATH= the place in the workspace, otherwise the ticket's output of the same name.
    #[arg(required = true, value_name = "[PATH=]FILE")]
    files: Vec<String>,
    /// What they are, for the list of files.
    #[arg(long, default_value = "")]
    note: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let ticket = ids::ticket(&client, &args.ticket).await?;
    let outputs: Vec<&str> = items(&ticket, "outputs").iter().filter_map(Value::as_str).collect();
    let mut files = Vec::new();
    for word in &args.files {
        let (path, file) = place(word, &outputs)?;
        let meta = std::fs::metadata(&file).map_err(|e| {
            CliError::usage(format!("{}: {e}", file.display()), "check the path and its rights")
        })?;
        if !meta.is_file() {
            return Err(CliError::usage(
                format!("{} is no file", file.display()),
                "name its files one by one",
            ));
        }
        let uploaded = client.upload(&file, meta.len()).await?;
        files.push(InputFile { path, blob: text(&uploaded, "blob").to_owned() });
    }
    let body = DeliverFiles {
        files,
        text: args.note.clone(),
        request_id: super::request_id(),
        expected_epoch: number(&ticket, "epoch"),
    };
    let path = format!("/v1/tickets/{}/deliver", segment(text(&ticket, "task_id")));
    acknowledged(ctx, &client.post_once(&path, &body).await?)
}

/// Where a file goes: as said, or to the output of its name, or to the only output.
///
/// # Errors
/// Usage when none of these: a file that nobody asked for is not sent. Of a ticket that declares nothing the manager
/// knows which paths are free.
fn place(word: &str, outputs: &[&str]) -> Result<(String, PathBuf), CliError> {
    if let Some((path, file)) = word.split_once('=')
        && !Path::new(word).exists()
    {
        if !outputs.is_empty() && !outputs.contains(&path) {
            return Err(CliError::usage(
                format!("{path} is no output of the ticket, which declares {}", outputs.join(", ")),
                format!("say which it is: {}={file}", outputs[0]),
            ));
        }
        return Ok((path.to_owned(), PathBuf::from(file)));
    }
    let file = PathBuf::from(word);
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let same = outputs.iter().find(|o| Path::new(o).file_name().is_some_and(|n| n == name.as_str()));
    match (same, outputs) {
        (Some(output), _) | (None, [output]) => Ok(((*output).to_owned(), file)),
        (None, []) => Err(CliError::usage(
            format!("{word}: the ticket declares no outputs"),
            format!("say where it goes: outputs/{name}={word}"),
        )),
        (None, declared) => Err(CliError::usage(
            format!("{word}: the ticket declares no output of this name, but {}", declared.join(", ")),
            format!("say which it is: {}={word}", declared[0]),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_to_the_output_of_its_name() {
        let at = |word: &str, outputs: &[&str]| place(word, outputs).unwrap().0;
        assert_eq!(at("x/m.csv", &["data/a.csv", "data/m.csv"]), "data/m.csv");
        assert_eq!(at("draft.md", &["outputs/report.md"]), "outputs/report.md");
        assert_eq!(place("outputs/r.md=draft.md", &[]).unwrap(), ("outputs/r.md".into(), "draft.md".into()));
    }

    #[test]
    fn a_file_that_nobody_asked_for_is_not_sent_by_mistake() {
        let e = place("new.md", &["a/b", "c/d"]).unwrap_err();
        assert!(e.to_string().contains("a/b, c/d") && e.hint().contains("a/b=new.md"), "{e}");
        let e = place("x/y=new.md", &["a/b"]).unwrap_err();
        assert!(e.to_string().contains("x/y is no output") && e.hint().contains("a/b=new.md"), "{e}");
        assert!(place("new.md", &[]).is_err());
    }
}
