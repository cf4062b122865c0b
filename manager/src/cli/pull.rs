//! `muster pull`: the accepted files of a goal into a folder. Also how `run` delivers.

use super::client::{Client, segment, segments};
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{items, number, short, size, text};
use futures::StreamExt;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Component, Path, PathBuf};

/// Drawn by the manager, so not part of the list of files.
const DRAWN: [&str; 2] = ["TODO.md", "FILE_INDEX.json"];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster pull last\n  muster pull 0193f0a0 report/")]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
    /// Where to; made if it is not there. [default: .muster/out/<goal>]
    dir: Option<PathBuf>,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let goal = ids::goal(&client, &args.goal).await?;
    let dir = args.dir.clone().unwrap_or_else(|| default_dir(ctx, &goal));
    let pulled = files(&client, &goal, &dir).await?;
    let document =
        json!({"goal": goal, "folder": dir, "files": pulled.iter().map(File::to_json).collect::<Vec<_>>()});
    if ctx.out.json {
        ctx.out.document(&document)?;
    } else {
        for file in &pulled {
            ctx.out.line(&file.here.display().to_string())?;
        }
        ctx.out.note(&format!("{} files, {}", pulled.len(), size(pulled.iter().map(|f| f.size_bytes).sum())));
    }
    Ok(Exit::Done)
}

/// Where the files of a goal go when nobody says where.
pub(crate) fn default_dir(ctx: &Context, goal: &str) -> PathBuf {
    let dir = ctx.home.path("out").join(short(goal));
    // As short as it can be written: people click on it.
    match std::env::current_dir() {
        Ok(here) => dir.strip_prefix(&here).map(Path::to_path_buf).unwrap_or(dir),
        Err(_) => dir,
    }
}

/// A file that was pulled.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// In the workspace.
    pub(crate) path: String,
    pub(crate) here: PathBuf,
    pub(crate) size_bytes: u64,
    /// Key of the ticket that made it, `input`, or empty.
    pub(crate) creator: String,
}

impl File {
    pub(crate) fn to_json(&self) -> serde_json::Value {
        json!({"path": self.path, "file": self.here, "size_bytes": self.size_bytes, "creator": self.creator})
    }

    /// Made by the goal, not given to it.
    pub(crate) fn is_deliverable(&self) -> bool {
        self.creator != "input" && !DRAWN.contains(&self.path.as_str())
    }
}

/// Pulls every accepted file, and the drawn ones. Files that are there already with the same content stay.
///
/// # Errors
/// A path that would leave the folder, content that does not fit its hash, or no manager.
pub(crate) async fn files(client: &Client, goal: &str, dir: &Path) -> Result<Vec<File>, CliError> {
    let list = client.get(&format!("/v1/goals/{}/files", segment(goal))).await?;
    std::fs::create_dir_all(dir).map_err(|e| super::home::trouble(dir, &e))?;
    let mut pulled = Vec::new();
    for entry in items(&list, "files") {
        let path = text(entry, "path");
        let here = below(dir, path)?;
        let hash = text(entry, "hash");
        if !hash.is_empty() && !same(&here, hash) {
            fetch(client, goal, path, &here, hash).await?;
        }
        pulled.push(File {
            path: path.to_owned(),
            here,
            size_bytes: number(entry, "size_bytes"),
            creator: text(entry, "creator").to_owned(),
        });
    }
    for name in DRAWN {
        let here = dir.join(name);
        match fetch(client, goal, name, &here, "").await {
            Ok(size_bytes) => {
                pulled.push(File { path: name.into(), here, size_bytes, creator: String::new() })
            }
            // A goal that never had a plan has no picture either.
            Err(CliError::Refused { status: 404, .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(pulled)
}

/// The place of a workspace path below `dir`; paths are the fleet's word, and not trusted.
fn below(dir: &Path, path: &str) -> Result<PathBuf, CliError> {
    let plain = !path.is_empty() && Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
    if plain && !path.contains('\0') {
        let here = dir.join(path);
        let folders = here.ancestors().skip(1).take_while(|folder| *folder != dir);
        for folder in folders {
            if folder.is_symlink() {
                return Err(CliError::failed(
                    format!("{} is a link; files would land elsewhere", folder.display()),
                    "remove the link, or pull into another folder",
                ));
            }
        }
        return Ok(here);
    }
    Err(CliError::failed(
        format!("the manager lists the file `{}`, which would leave the folder", path.escape_debug()),
        "nothing was written there; look at the goal with `muster show`",
    ))
}

fn same(file: &Path, hash: &str) -> bool {
    // A link is replaced by the file itself.
    !file.is_symlink() && std::fs::read(file).is_ok_and(|bytes| hex(&Sha256::digest(&bytes)) == hash)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        text.push_str(&format!("{b:02x}"));
        text
    })
}

/// Downloads beside the target and renames, so that a file is whole or not there.
async fn fetch(client: &Client, goal: &str, path: &str, here: &Path, hash: &str) -> Result<u64, CliError> {
    let url = format!("/v1/goals/{}/files/{}", segment(goal), segments(path));
    let reply = client.open(&url, "*/*").await?;
    let folder = here.parent().unwrap_or(Path::new("."));
    let trouble = |e: std::io::Error| super::home::trouble(here, &e);
    std::fs::create_dir_all(folder).map_err(trouble)?;
    let mut part = tempfile::NamedTempFile::new_in(folder).map_err(trouble)?;
    let mut digest = Sha256::new();
    let mut size_bytes = 0;
    let mut bytes = reply.bytes_stream();
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(|e| client.unreachable(&e))?;
        digest.update(&chunk);
        size_bytes += chunk.len() as u64;
        part.write_all(&chunk).map_err(trouble)?;
    }
    let got = hex(&digest.finalize());
    if !hash.is_empty() && got != hash {
        return Err(CliError::failed(
            format!("{path}: the content does not fit its hash ({got}, {hash} was listed)"),
            "try again; if it stays so, the blob folder is damaged: `muster doctor`",
        ));
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(part.path(), std::fs::Permissions::from_mode(0o644)).map_err(trouble)?;
    part.persist(here).map_err(|e| trouble(e.error))?;
    Ok(size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_paths_cannot_leave_the_folder() {
        let dir = Path::new("/d");
        assert_eq!(below(dir, "outputs/a.md").unwrap(), Path::new("/d/outputs/a.md"));
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "a\0b"] {
            assert!(below(dir, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn links_in_the_folder_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (dir, outside) = (root.path().join("pulled"), root.path().join("outside"));
        for folder in [&dir, &outside] {
            std::fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::symlink(&outside, dir.join("outputs")).unwrap();
        let e = below(&dir, "outputs/deep/a.md").unwrap_err();
        assert!(e.to_string().contains("is a link"), "{e}");
        assert!(below(&dir, "data/a.md").is_ok());
        // The folder itself may be reached through one: that is its user's own choice.
        std::os::unix::fs::symlink(&dir, root.path().join("to")).unwrap();
        assert!(below(&root.path().join("to"), "data/a.md").is_ok());
        std::fs::write(outside.join("a"), "x").unwrap();
        std::os::unix::fs::symlink(outside.join("a"), dir.join("a")).unwrap();
        let hash = hex(&Sha256::digest(b"x"));
        assert!(same(&outside.join("a"), &hash) && !same(&dir.join("a"), &hash));
    }
}
