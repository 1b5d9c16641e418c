//! The links to other planes that this plane is to have: madctld keeps the list, the plane reads it.
//!
//! The list is a file in the runtime directory ([`madplane_shm::links`]), so it outlives both daemons and a plane that is started
//! again alone has its links. It is written as a whole, before the plane is told. A link that the plane then refuses is taken out
//! again; with no plane there it is kept for the next one. Owned by madctld's thread. Not here: whether a link is up, which the
//! plane shows itself.

use std::path::PathBuf;

use madplane_shm::links::LinkSpec;
use madplane_shm::paths::PlanePaths;
use madplane_shm::status::MAX_LINKS;
use serde::Deserialize;
use serde_json::Value;

use crate::admin::arguments;

/// Commands about links to other planes.
pub const COMMANDS: [&str; 2] = ["links.add", "links.del"];

/// What is asked of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkAction {
    /// Have this link.
    Add(LinkSpec),
    /// Have the link at this port, `NODE:PORT` as it was added, no longer.
    Del(String),
}

impl LinkAction {
    /// The port that it is about.
    pub fn at(&self) -> &str {
        match self {
            Self::Add(spec) => &spec.at,
            Self::Del(at) => at,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddArgs {
    link: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelArgs {
    port: String,
}

/// Reads a command of [`COMMANDS`]; `None` if it is another.
pub fn understand(cmd: &str, args: &Value) -> Option<Result<LinkAction, String>> {
    let action = match cmd {
        "links.add" => arguments::<AddArgs>(cmd, args.clone()).and_then(|args| {
            LinkSpec::parse(&args.link).map(LinkAction::Add).map_err(|error| error.to_string())
        }),
        "links.del" => arguments::<DelArgs>(cmd, args.clone()).map(|args| LinkAction::Del(args.port)),
        _ => return None,
    };
    Some(action.and_then(|action| match action.at().len() {
        0 => Err("the name of a port is empty".to_owned()),
        1..=192 => Ok(action),
        _ => Err("the name of a port is longer than 192 bytes".to_owned()),
    }))
}

/// The list.
#[derive(Debug)]
pub struct LinkList {
    path: PathBuf,
}

impl LinkList {
    /// Of the plane with these paths.
    pub fn new(paths: &PlanePaths) -> Self {
        Self { path: paths.links_file() }
    }

    /// Changes the list; the list before.
    ///
    /// # Errors
    /// One line; nothing is changed then.
    pub fn change(&self, action: &LinkAction) -> Result<Vec<LinkSpec>, String> {
        let former = LinkSpec::load(&self.path)?;
        let mut list = former.clone();
        match action {
            LinkAction::Add(spec) => match list.iter().find(|other| other.at == spec.at) {
                Some(other) => return Err(format!("{} has a link already: {other}", spec.at)),
                None if list.len() >= MAX_LINKS => {
                    return Err(format!("a plane has at most {MAX_LINKS} links to others"));
                }
                None => list.push(spec.clone()),
            },
            LinkAction::Del(at) => {
                list.retain(|spec| spec.at != *at);
                if list.len() == former.len() {
                    return Err(format!("{at:?} has no link; see madctl links show"));
                }
            }
        }
        self.store(&list)?;
        Ok(former)
    }

    /// Goes back to a former list.
    ///
    /// # Errors
    /// One line.
    pub fn store(&self, list: &[LinkSpec]) -> Result<(), String> {
        LinkSpec::store(&self.path, list).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LINK: &str = "leaf 1:5 via=quic:127.0.0.1:1 peer=127.0.0.1:2 credentials=/c";

    #[test]
    fn good_commands_are_understood_and_bad_ones_named() {
        let add = understand("links.add", &json!({ "link": LINK })).unwrap().unwrap();
        assert_eq!(add, LinkAction::Add(LinkSpec::parse(LINK).unwrap()));
        let del = understand("links.del", &json!({ "port": "a:1" })).unwrap().unwrap();
        assert_eq!((del.at(), &del), ("a:1", &LinkAction::Del("a:1".to_owned())));
        assert!(understand("links.down", &json!({})).is_none());
        for (cmd, args, word) in [
            ("links.add", json!({}), "missing field `link`"),
            ("links.add", json!({ "link": "a:1" }), "via= is missing"),
            ("links.add", json!({ "link": format!("{}:1 via=q peer=p", "x".repeat(200)) }), "192 bytes"),
            ("links.del", json!({ "port": "" }), "is empty"),
            ("links.del", json!({ "port": "a:1", "x": 1 }), "unknown field `x`"),
        ] {
            let error = understand(cmd, &args).unwrap().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_list_is_changed_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let list = LinkList { path: directory.path().join("links") };
        let add = LinkAction::Add(LinkSpec::parse(LINK).unwrap());
        assert_eq!(list.change(&add), Ok(vec![]));
        assert!(list.change(&add).unwrap_err().contains("has a link already"));
        let other = LinkAction::Add(LinkSpec::parse("b:1 via=q peer=p").unwrap());
        let former = list.change(&other).unwrap();
        assert_eq!(former.len(), 1);
        list.store(&former).unwrap();
        assert!(list.change(&LinkAction::Del("b:1".to_owned())).unwrap_err().contains("has no link"));
        assert_eq!(list.change(&LinkAction::Del("leaf 1:5".to_owned())), Ok(former));
        assert_eq!(LinkSpec::load(&list.path), Ok(vec![]));
    }
}
