//! Files of routes: one route a line, read whole or not at all.
//!
//! Runs on the caller's thread. Lines whose path is not given by ports are compiled against the plane's fabric, which is
//! looked at once. Putting the routes in is [`crate::admin::AdminClient::routes_load`].

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use crate::Plane;
use crate::fabric::view::FabricView;
use crate::route::{Key, Route, Written, show_key};

/// Why a file was not read; one line each.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system does not give it.
    #[error("cannot read {file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{file}:{line}: {reason}; nothing was applied")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u32,
        /// What is wrong.
        reason: String,
    },
}

pub(crate) fn read(plane: &Plane, file: &Path) -> Result<Vec<(u32, Route)>, FileError> {
    let shown = || file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| FileError::Io { file: shown(), source })?;
    let mut fabric: Option<FabricView> = None;
    let mut lines: HashMap<Key, u32> = HashMap::new();
    let mut routes = Vec::new();
    for (line, text) in (1u32..).zip(text.lines()) {
        let fail = |reason: &dyn Display| FileError::Line { file: shown(), line, reason: reason.to_string() };
        let Some(written) = Written::parse_line(text).map_err(|error| fail(&error))? else { continue };
        let route = match written.by_ports().map_err(|error| fail(&error))? {
            Some(route) => route,
            None => {
                let view = match fabric.take() {
                    Some(view) => view,
                    None => plane.fabric().map_err(|error| fail(&error))?,
                };
                fabric.insert(view).compile(&written).map_err(|error| fail(&error))?
            }
        };
        if let Some(before) = lines.insert(route.key(), line) {
            let key = show_key(route.key());
            return Err(fail(&format!("route {key} is given twice, in line {before} already")));
        }
        routes.push((line, route));
    }
    Ok(routes)
}
