//! The configuration file of `madctl up`: TOML, unknown keys are errors.
//!
//! ```toml
//! [moderation]
//! mode = "adaptive"
//! rx-usecs = 16
//!
//! [lcore]
//! cores = "1"
//!
//! [[link]]
//! at = "leaf-1:5"
//! via = "quic:192.0.2.1:7471"
//! peer = "192.0.2.2:7471"
//! credentials = "/etc/madplane/part-0"
//! ```
//! `[moderation]` holds the parameters of [`madplane_shm::tuning`] by any of their names.

use std::path::Path;

use madplane_shm::links::LinkSpec;
use madplane_shm::tuning::TuningPatch;
use serde::Deserialize;

use super::ConfigError;

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct File {
    pub(super) tuning: TuningPatch,
    pub(super) cores: Option<String>,
    pub(super) workers: Option<u32>,
    pub(super) overprovisioned: bool,
    pub(super) links: Vec<LinkSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    moderation: toml::Table,
    #[serde(default)]
    lcore: Lcore,
    #[serde(default)]
    link: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    at: String,
    via: String,
    peer: String,
    #[serde(default)]
    credentials: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lcore {
    cores: Option<String>,
    workers: Option<u32>,
    #[serde(default)]
    overprovisioned: bool,
}

/// Reads the file at `path`.
///
/// # Errors
/// [`ConfigError::File`], one line that names the file.
pub(super) fn read(path: &Path) -> Result<File, ConfigError> {
    let fail = |reason: String| ConfigError::File { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    parse(&text).map_err(fail)
}

fn parse(text: &str) -> Result<File, String> {
    let RawFile { moderation, lcore, link } = toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    let words: Vec<String> = moderation
        .iter()
        .map(|(name, value)| match value {
            toml::Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        })
        .collect();
    let tuning = TuningPatch::parse(words.iter().map(String::as_str)).map_err(|error| error.to_string())?;
    let Lcore { cores, workers, overprovisioned } = lcore;
    let links = link
        .into_iter()
        .map(|Link { at, via, peer, credentials }| {
            let line = LinkSpec { at, via, peer, credentials }.to_string();
            LinkSpec::parse(&line).map_err(|error| error.to_string())
        })
        .collect::<Result<_, _>>()?;
    Ok(File { tuning, cores, workers, overprovisioned, links })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_how_workers_wait_and_where() {
        let text = "[moderation]\nmode = \"adaptive\"\nrx-usecs = 7\n[lcore]\ncores = \"1\"\nworkers = 1\n";
        let file = parse(text).unwrap();
        assert_eq!(file.tuning.to_string(), "mode=adaptive moderator_timeout=7");
        assert_eq!((file.cores.as_deref(), file.workers, file.overprovisioned), (Some("1"), Some(1), false));
        assert_eq!(parse("").unwrap(), File::default());
    }

    #[test]
    fn a_file_names_links_to_other_planes() {
        let text = "[[link]]\nat = \"a b:1\"\nvia = \"quic:h:1\"\npeer = \"i:2\"\n[[link]]\nat = \"c:2\"\nvia = \"q\"\n\
                    peer = \"p\"\ncredentials = \"/d\"\n";
        let links = parse(text).unwrap().links;
        let lines: Vec<String> = links.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["a b:1 via=quic:h:1 peer=i:2", "c:2 via=q peer=p credentials=/d"]);
        let error = parse("[[link]]\nat = \"a:1\"\nvia = \"\"\npeer = \"p\"").unwrap_err();
        assert!(error.contains("via= is missing"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, expected) in [
            ("[moderation]\nmode = \"pol\"", "did you mean poll?"),
            ("[moderation]\nburst = -1", "from 1 to 256"),
            ("[moderation]\nburst = [1]", "from 1 to 256"),
            ("[[link]]\nat = \"a:1\"", "missing field `via`"),
            ("[moderaton]\n", "line 1: unknown field"),
            ("[lcore]\ncorse = \"1\"", "line 2: unknown field"),
            ("[lcore]\nworkers = 1\nworkers = 2", "line 3"),
            ("x", "line 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
