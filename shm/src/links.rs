//! The list of links to other planes that a plane is to have: a file in its runtime directory, one link a line.
//!
//! madctld writes it, as a whole and by renaming; madplaned reads it when it starts and when control says that it has changed, so a
//! plane that is started again alone has its links again. A line is what an operator writes:
//! `NODE:PORT via=quic:LOCAL peer=ADDRESS [credentials=DIRECTORY]`, or `via=verbs:DEVICE peer=GID[,link=NAME]`. Blank lines and lines that begin with `#` are skipped. Not here:
//! whether the node exists, and what a transport makes of its words.

use std::fmt;
use std::path::Path;

use crate::status::MAX_LINKS;

/// Longest line, bytes: what the status segment shows of it.
pub const MAX_LINE: usize = 320;

/// One link as an operator asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSpec {
    /// `NODE:PORT` of this plane's fabric.
    pub at: String,
    /// Transport and its local part, such as `quic:192.0.2.1:7471`.
    pub via: String,
    /// The other end, as the transport names it.
    pub peer: String,
    /// Directory with this plane's certificate and key, and the authority's certificate; empty for none.
    pub credentials: String,
}

/// Why a line is no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkSpecError {
    /// A word is missing.
    #[error("a link is NODE:PORT via=TRANSPORT:LOCAL peer=ADDRESS [credentials=DIRECTORY]; {0} is missing")]
    Missing(&'static str),
    /// Words in another order, or twice.
    #[error("{0}= is given twice, or not in its place (via, peer, credentials)")]
    Order(&'static str),
    /// The line is too long.
    #[error("a link is described by at most {MAX_LINE} bytes, not {0}")]
    Long(usize),
    /// A control character.
    #[error("a link's words hold no control characters")]
    Control,
    /// More links than a plane takes.
    #[error("a plane has at most {MAX_LINKS} links to others")]
    Many,
    /// Two links at one port.
    #[error("{0} has two links")]
    Twice(String),
}

impl LinkSpec {
    /// Reads a line.
    ///
    /// # Errors
    /// [`LinkSpecError`] names what is wrong.
    pub fn parse(line: &str) -> Result<Self, LinkSpecError> {
        let line = line.trim();
        if line.len() > MAX_LINE {
            return Err(LinkSpecError::Long(line.len()));
        }
        if line.chars().any(char::is_control) {
            return Err(LinkSpecError::Control);
        }
        let (at, rest) = line.split_once(" via=").ok_or(LinkSpecError::Missing("via="))?;
        let (via, rest) = rest.split_once(" peer=").ok_or(LinkSpecError::Missing("peer="))?;
        let (peer, credentials) = rest.split_once(" credentials=").unwrap_or((rest, ""));
        let spec = Self {
            at: at.trim().to_owned(),
            via: via.trim().to_owned(),
            peer: peer.trim().to_owned(),
            credentials: credentials.trim().to_owned(),
        };
        for (word, name) in [(&spec.at, "NODE:PORT"), (&spec.via, "via="), (&spec.peer, "peer=")] {
            if word.is_empty() {
                return Err(LinkSpecError::Missing(name));
            }
        }
        for (word, name) in [(" via=", "via"), (" peer=", "peer"), (" credentials=", "credentials")] {
            if line.matches(word).count() > 1 {
                return Err(LinkSpecError::Order(name));
            }
        }
        Ok(spec)
    }

    /// Reads a whole list.
    ///
    /// # Errors
    /// The number of the line, from 1, and what is wrong with it.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, (usize, LinkSpecError)> {
        let mut list: Vec<Self> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let spec = Self::parse(line).map_err(|error| (number, error))?;
            if list.iter().any(|other| other.at == spec.at) {
                return Err((number, LinkSpecError::Twice(spec.at)));
            }
            list.push(spec);
            if list.len() > MAX_LINKS {
                return Err((number, LinkSpecError::Many));
            }
        }
        Ok(list)
    }

    /// Reads the list of a plane; a file that is not there is an empty list.
    ///
    /// # Errors
    /// One line that names the file and what is wrong with it.
    pub fn load(path: &Path) -> Result<Vec<Self>, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse_list(&text)
                .map_err(|(line, error)| format!("{}, line {line}: {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Writes the list of a plane, as a whole or not at all.
    ///
    /// # Errors
    /// What the system says.
    pub fn store(path: &Path, list: &[Self]) -> std::io::Result<()> {
        let text: String = list.iter().map(|spec| format!("{spec}\n")).collect();
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, path)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via={} peer={}", self.at, self.via, self.peer)?;
        if !self.credentials.is_empty() {
            write!(f, " credentials={}", self.credentials)?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_shown() {
        for line in [
            "leaf-1:5 via=quic:127.0.0.1:7471 peer=127.0.0.1:7472",
            "MT25408 ConnectX:1 via=verbs:rxe0,gid=0 peer=x credentials=/etc/mad plane/a",
            "0x2c90300a1b2c3:36 via=quic:[::1]:1 peer=[::1]:2",
        ] {
            assert_eq!(LinkSpec::parse(line).unwrap().to_string(), line);
        }
        let spec = LinkSpec::parse("  a b:1 via=q:1  peer=h:2 credentials=d ").unwrap();
        assert_eq!([spec.at, spec.via, spec.peer, spec.credentials], ["a b:1", "q:1", "h:2", "d"]);
    }

    #[test]
    fn what_is_no_link_is_refused_by_what_is_wrong() {
        let wrong = |line: &str| LinkSpec::parse(line).unwrap_err();
        assert_eq!(wrong("a:1"), LinkSpecError::Missing("via="));
        assert_eq!(wrong("a:1 via=q"), LinkSpecError::Missing("peer="));
        assert_eq!(wrong(" via=q peer=p"), LinkSpecError::Missing("via="));
        assert_eq!(wrong("a:1 via= peer=p"), LinkSpecError::Missing("via="));
        assert_eq!(wrong("a:1 peer=p via=q"), LinkSpecError::Missing("peer="));
        assert_eq!(wrong("a:1 via=q peer=p peer=p"), LinkSpecError::Order("peer"));
        assert_eq!(wrong("a:1 via=q peer=p\u{7}"), LinkSpecError::Control);
        assert_eq!(wrong(&format!("{} via=q peer=p", "x".repeat(320))), LinkSpecError::Long(333));
    }

    #[test]
    fn a_list_is_stored_and_loaded_and_names_the_wrong_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("links");
        assert_eq!(LinkSpec::load(&path), Ok(vec![]));
        let list =
            LinkSpec::parse_list("# two\n\na:1 via=q peer=p\nb:1 via=q peer=r credentials=c\n").unwrap();
        LinkSpec::store(&path, &list).unwrap();
        assert_eq!(LinkSpec::load(&path), Ok(list));
        let (line, error) = LinkSpec::parse_list("a:1 via=q peer=p\na:1 via=q peer=r").unwrap_err();
        assert_eq!((line, error), (2, LinkSpecError::Twice("a:1".to_owned())));
        std::fs::write(&path, "a:1 via=q peer=p\nnonsense\n").unwrap();
        assert!(LinkSpec::load(&path).unwrap_err().contains("links, line 2: "));
        let many: String = (0..=MAX_LINKS).map(|n| format!("a:{n} via=q peer=p\n")).collect();
        assert_eq!(LinkSpec::parse_list(&many), Err((MAX_LINKS + 1, LinkSpecError::Many)));
    }
}
