//! Text to graph: ibnetdiscover output in all its forms and ibsim netfiles, which are one language.
//!
//! Pure function of the text and the options; any thread. What comes back has been checked: ports exist, both ends of a
//! link agree, GUIDs are unique. Everything doubtful is a [`Diagnostic`] with a line number, and an error under
//! [`ParseOptions::strict`]. Opens no files: `include` lines are served by the caller's loader. Foreign formats are not
//! guessed at but refused by name.

mod names;
mod records;
mod resolve;
mod sniff;

use std::fmt;

use crate::graph::Topology;

/// Gives the text of an included file, or one line saying why not.
pub type Loader<'a> = dyn Fn(&str) -> Result<Vec<u8>, String> + 'a;

/// How to treat what is wrong with a text. The default is lenient, makes no stubs, and knows no includes.
#[derive(Clone, Copy, Default)]
pub struct ParseOptions<'a> {
    /// Refuse at the first fault: one-sided or contradictory links, islands, duplicate GUIDs, broken records.
    ///
    /// Lines that are not of the language at all (error messages, a shell prompt) only ever warn.
    pub strict: bool,
    /// Make up a node for every peer that is named but never defined; without it such a text is refused.
    ///
    /// Wanted stubs only warn, under `strict` too.
    pub stub_undefined: bool,
    /// Serves `include "name"`; without it an include is an error.
    pub loader: Option<&'a Loader<'a>>,
}

impl fmt::Debug for ParseOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParseOptions")
            .field("strict", &self.strict)
            .field("stub_undefined", &self.stub_undefined)
            .field("loader", &self.loader.is_some())
            .finish()
    }
}

/// A remark about one place of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// What is the matter, lower case, no full stop; names the included file if it is not the main text.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// Why a text is refused; prints as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// Reason, lower case, no full stop.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// What a text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The fabric.
    pub topology: Topology,
    /// Remarks in the order of the lines (of includes: in the order of reading).
    pub warnings: Vec<Diagnostic>,
}

/// Remarks kept of one text; the rest is only counted.
const MAX_WARNINGS: usize = 1000;

/// Collects remarks, and turns faults into errors when strict.
#[derive(Debug)]
struct Log {
    strict: bool,
    warnings: Vec<Diagnostic>,
    omitted: usize,
    /// Included files; number n of [`Log::file`] is entry n - 1.
    files: Vec<String>,
    /// What remarks are about: 0 for the main text, else an included file.
    file: u16,
}

impl Log {
    fn new(strict: bool) -> Self {
        Self { strict, warnings: Vec::new(), omitted: 0, files: Vec::new(), file: 0 }
    }

    fn error(&self, line: u32, column: u32, message: impl Into<String>) -> ParseError {
        ParseError { line, column, message: self.located(message.into()) }
    }

    /// Something odd that never refuses a text.
    fn warn(&mut self, line: u32, column: u32, message: impl Into<String>) {
        if self.warnings.len() < MAX_WARNINGS {
            let message = self.located(message.into());
            self.warnings.push(Diagnostic { line, column, message });
        } else {
            self.omitted += 1;
        }
    }

    /// Something wrong: refuses a text when strict, else a warning.
    fn fault(&mut self, line: u32, column: u32, message: impl Into<String>) -> Result<(), ParseError> {
        if self.strict {
            return Err(self.error(line, column, message));
        }
        self.warn(line, column, message);
        Ok(())
    }

    fn located(&self, message: String) -> String {
        match usize::from(self.file).checked_sub(1).and_then(|at| self.files.get(at)) {
            Some(file) => format!("{message} (in {file:?})"),
            None => message,
        }
    }

    fn finish(mut self) -> Vec<Diagnostic> {
        if self.files.is_empty() {
            self.warnings.sort_by_key(|d| (d.line, d.column));
        }
        if self.omitted > 0 {
            let line = self.warnings.last().map_or(1, |d| d.line);
            let message = format!("{} further warnings are not listed", self.omitted);
            self.warnings.push(Diagnostic { line, column: 1, message });
        }
        self.warnings
    }
}

/// Reads a fabric from text.
///
/// Accepts the output of `ibnetdiscover` (plain or grouped, any age, also ibdiagnet's spelling of it) and netfiles of
/// ibsim. Names without GUIDs get GUIDs as ibsim invents them: adapters from 0x100000, switches from 0x200000. Cost:
/// linear in the text.
///
/// # Errors
/// One line with the place and the reason: the text is of another format, holds no node, names peers it never defines
/// (unless stubs are asked for), or, if strict, has any fault at all.
///
/// # Examples
/// ```
/// use madplane_topology::{ParseOptions, parse};
/// let text = "Switch 8 \"leaf\"\n[1] \"host\"[1]\n\nHca 1 \"host\"\n[1] \"leaf\"[1]\n";
/// let parsed = parse(text, &ParseOptions::default())?;
/// assert_eq!(parsed.topology.nodes.len(), 2);
/// assert_eq!(parsed.topology.link_count(), 1);
/// assert!(parsed.warnings.is_empty());
/// # Ok::<(), madplane_topology::ParseError>(())
/// ```
pub fn parse(text: impl AsRef<[u8]>, options: &ParseOptions<'_>) -> Result<Parsed, ParseError> {
    let text = text.as_ref();
    sniff::refuse_unreadable(text)?;
    let mut reader = records::Reader::new(options);
    reader.read(text)?;
    if reader.is_empty() {
        return Err(sniff::explain_no_nodes(text));
    }
    let (topology, log) = resolve::resolve(reader)?;
    Ok(Parsed { topology, warnings: log.finish() })
}

#[cfg(test)]
mod tests;
