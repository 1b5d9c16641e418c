//! The configuration file of `madctl up`: TOML, unknown keys are errors.
//!
//! ```toml
//! devices = ["umad:mlx5_0", "auto:mlx5_1,port=2"]
//!
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

use std::collections::BTreeMap;
use std::path::Path;

use madctl::nearest;
use madplane_shm::links::LinkSpec;
use madplane_shm::tuning::{TuningError, TuningPatch};
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, check_cpu_list, check_workers};

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct File {
    pub(super) tuning: TuningPatch,
    pub(super) cores: Option<String>,
    pub(super) workers: Option<u32>,
    pub(super) overprovisioned: bool,
    pub(super) links: Vec<LinkSpec>,
    pub(super) devices: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    moderation: BTreeMap<Spanned<String>, toml::Value>,
    #[serde(default)]
    lcore: Lcore,
    #[serde(default)]
    link: Vec<Link>,
    #[serde(default)]
    devices: Vec<String>,
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
    cores: Option<Spanned<String>>,
    workers: Option<Spanned<u32>>,
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
    let at = |start: usize, what: &dyn std::fmt::Display| {
        let line = text[..start.min(text.len())].matches('\n').count() + 1;
        format!("line {line}: {what}")
    };
    let RawFile { moderation, lcore, link, devices } = toml::from_str(text).map_err(|error| {
        let said = error.message().replace('\n', " ");
        at(error.span().map_or(0, |span| span.start), &format!("{said}{}", hint(&said)))
    })?;
    let mut tuning = TuningPatch::default();
    for (name, value) in &moderation {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let word = format!("{}={value}", name.get_ref());
        let wrong = |error: &TuningError| at(name.span().start, error);
        let patch = TuningPatch::parse([word.as_str()]).map_err(|error| wrong(&error))?;
        for (parameter, value) in patch.entries() {
            // two names of one parameter
            if tuning.get(parameter).is_some_and(|other| other != value) {
                return Err(wrong(&TuningError::Twice(parameter.label())));
            }
        }
        tuning = tuning.and(&patch);
    }
    let Lcore { cores, workers, overprovisioned } = lcore;
    if let Some(cores) = &cores {
        check_cpu_list(cores.get_ref()).map_err(|error| at(cores.span().start, &error))?;
    }
    if let Some(workers) = &workers {
        check_workers(*workers.get_ref()).map_err(|error| at(workers.span().start, &error))?;
    }
    let (cores, workers) = (cores.map(Spanned::into_inner), workers.map(Spanned::into_inner));
    let links = link
        .into_iter()
        .map(|Link { at, via, peer, credentials }| {
            let line = LinkSpec { at, via, peer, credentials }.to_string();
            LinkSpec::parse(&line).map_err(|error| error.to_string())
        })
        .collect::<Result<_, _>>()?;
    Ok(File { tuning, cores, workers, overprovisioned, links, devices })
}

/// The name that an unknown one was meant to be, out of a message that quotes it first and all others after it.
fn hint(said: &str) -> String {
    let mut quoted = said.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(wanted) if said.starts_with("unknown field") => nearest::hint(wanted, quoted),
        _ => String::new(),
    }
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
    fn a_file_names_devices() {
        let file = parse("devices = [\"umad:a\", \"b,gid=1\"]\n[lcore]\ncores = \"1\"\n").unwrap();
        assert_eq!(file.devices, ["umad:a", "b,gid=1"]);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, expected) in [
            (
                "[moderation]\nmode = \"pol\"",
                "line 2: mode is polling, interrupt or adaptive, not \"pol\"; did you mean poll?",
            ),
            (
                "[moderation]\n\nburst = -1",
                "line 3: burst is a whole number of MADs from 1 to 256, not \"-1\"",
            ),
            ("[moderation]\nburst = [1]", "line 2: burst is"),
            ("[moderation]\nburst = nan", "line 2: burst is"),
            ("[moderation]\nburst = \"\"", "line 2: burst is"),
            ("[moderation]\nrx-usec = 3", "line 2: no parameter \"rx-usec\"; did you mean rx-usecs?"),
            ("[moderation]\nrx-usecs = 3\ncq_period = 4", "moderator_timeout is given twice"),
            ("[moderation]\nburst = 99999999999999999999", "line 2: "),
            (
                "[moderaton]\n",
                "line 1: unknown field `moderaton`, expected one of `moderation`, `lcore`, `link`, `devices`; did you mean moderation?",
            ),
            ("[lcore]\ncorse = \"1\"", "did you mean cores?"),
            ("[lcore]\ncores = \"3-1\"", "line 2: \"3-1\" is no list of CPUs"),
            ("[lcore]\ncores = \"\"", "line 2: \"\" is no list of CPUs"),
            ("[lcore]\n\nworkers = 17", "line 3: a plane has 1 to 16 workers"),
            ("[lcore]\nworkers = -1", "line 2: "),
            ("[lcore]\nworkers = nan", "line 2: "),
            ("[[link]]\nat = \"a:1\"", "missing field `via`"),
            ("[lcore]\nworkers = 1\nworkers = 2", "line 3"),
            ("x", "line 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
