//! Files that come in parts: routes and tenants, a line each.
//!
//! Used by the admin commands, which read a part ([`crate::admin_routes`], [`crate::admin_tenants`]), and owned by the
//! route desk, which keeps the parts of each client until the last one. Invariant: a client that goes away leaves nothing.
//!
//! What it does not do: know what a line means (the caller's parser does), apply anything.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// A part of a file, its lines understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart<T> {
    /// Entries with the numbers of their lines.
    pub lines: Vec<(u32, T)>,
    /// Whether another part follows.
    pub more: bool,
    /// Also over entries with the same keys.
    pub replace: bool,
    /// Answer when every worker has them.
    pub sync: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadArgs {
    lines: Vec<(u32, String)>,
    #[serde(default)]
    more: bool,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    sync: bool,
}

impl<T> FilePart<T> {
    /// Reads the arguments of a command that loads; `parse` understands one line, which may hold nothing.
    pub(crate) fn read(
        cmd: &str,
        args: Value,
        mut parse: impl FnMut(&str) -> Result<Option<T>, String>,
    ) -> Result<Self, String> {
        let LoadArgs { lines: written, more, replace, sync } = crate::admin::arguments(cmd, args)?;
        let mut lines = Vec::with_capacity(written.len());
        for (line, text) in written {
            let entry = parse(&text).map_err(|error| of_line(line, &error))?;
            lines.extend(entry.map(|entry| (line, entry)));
        }
        Ok(Self { lines, more, replace, sync })
    }
}

/// What is wrong with a line.
fn of_line(line: u32, error: &str) -> String {
    format!("line {line}: {error}")
}

/// A file with all its parts.
#[derive(Debug)]
pub(crate) struct WholeFile<T> {
    /// What its lines say.
    pub(crate) entries: Vec<T>,
    /// The lines where that stands.
    pub(crate) numbers: LineNumbers,
}

/// Line numbers of the entries of a file.
#[derive(Debug)]
pub(crate) struct LineNumbers(Vec<u32>);

impl LineNumbers {
    /// A refusal of the entry at a position, by its line.
    pub(crate) fn name(&self, (position, error): (usize, String)) -> String {
        of_line(self.0.get(position).copied().unwrap_or(0), &error)
    }
}

/// Parts of files, by client.
#[derive(Debug)]
pub(crate) struct StagedFiles<T>(HashMap<u64, Vec<(u32, T)>>);

impl<T> StagedFiles<T> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Keeps a part of a client's file; the file, if that was the last part or the table has not the places for so much.
    pub(crate) fn take(
        &mut self,
        peer: u64,
        lines: Vec<(u32, T)>,
        more: bool,
        capacity: u32,
    ) -> Option<WholeFile<T>> {
        let staged = self.0.entry(peer).or_default();
        staged.extend(lines);
        // a file with more lines than there are places cannot be applied whatever follows
        if more && staged.len() <= capacity as usize {
            return None;
        }
        let (numbers, entries) = self.0.remove(&peer).unwrap_or_default().into_iter().unzip();
        Some(WholeFile { entries, numbers: LineNumbers(numbers) })
    }

    /// Drops what a client has not finished.
    pub(crate) fn forget(&mut self, peer: u64) {
        self.0.remove(&peer);
    }
}
