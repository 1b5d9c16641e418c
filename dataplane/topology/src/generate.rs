//! Fabrics made to measure: fat trees, tori, hypercubes, dragonflies, rings, random graphs.
//!
//! Pure and deterministic: equal parameters give equal fabrics, GUIDs included. Switches come first, then hosts; hosts are
//! one-port adapters. Every kind is a struct with public parameters and a `build`; [`generate`] and [`from_spec`] make
//! them from text. No kind exceeds 49,151 nodes or 254 ports a switch: that is refused, never cut.

mod build;
mod dragonfly;
mod fat_tree;
mod grid;
mod params;
mod random;

use std::fmt;

use crate::graph::{LinkSpeed, LinkWidth, MAX_NODES, Topology};
use crate::suggest::nearest;
use params::Params;

pub use dragonfly::DragonflyPlus;
pub use fat_tree::FatTree;
pub use grid::{Hypercube, Ring, Torus};
pub use random::Random;

/// Kinds that [`generate`] knows, with the parameters of each.
pub const KINDS: [(&str, &[&str]); 6] = [
    ("fat-tree", &["radix", "levels", "hosts", "rate"]),
    ("torus", &["dims", "hosts", "rate"]),
    ("hypercube", &["dim", "hosts", "rate"]),
    ("dragonfly+", &["groups", "leaf", "spine", "hosts", "global", "rate"]),
    ("ring", &["switches", "hosts", "rate"]),
    ("random", &["switches", "hosts", "links", "seed", "rate"]),
];

/// Rate of all links of a generated fabric unless said otherwise.
pub const DEFAULT_RATE: (LinkWidth, LinkSpeed) = (LinkWidth::X4, LinkSpeed::Qdr);

/// Why no fabric was made; prints as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerateError {
    /// No such kind.
    UnknownKind {
        /// What was asked for.
        kind: String,
    },
    /// The kind has no such parameter.
    UnknownParameter {
        /// Kind of fabric.
        kind: &'static str,
        /// The parameter that was given.
        name: String,
    },
    /// A parameter was given twice.
    RepeatedParameter {
        /// The parameter.
        name: String,
    },
    /// A part of a specification that is not `name=value`.
    NotAnAssignment {
        /// The part.
        part: String,
    },
    /// A value that the parameter does not take.
    BadValue {
        /// Parameter.
        name: &'static str,
        /// Value as given.
        value: String,
        /// What it takes.
        wanted: String,
    },
    /// More nodes than there are LIDs.
    TooManyNodes {
        /// Nodes that the parameters ask for.
        nodes: u64,
    },
    /// A switch would need more ports than it can have.
    TooManyPorts {
        /// Ports that the parameters ask for.
        ports: u64,
    },
}

impl fmt::Display for GenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind { kind } => {
                write!(f, "unknown kind of fabric {kind:?}")?;
                let names = KINDS.map(|(name, _)| name);
                did_you_mean(f, kind, &names)
            }
            Self::UnknownParameter { kind, name } => {
                write!(f, "{kind} has no parameter {name:?}")?;
                let accepted = KINDS.iter().find(|(k, _)| k == kind).map_or(&[][..], |(_, names)| names);
                did_you_mean(f, name, accepted)
            }
            Self::RepeatedParameter { name } => write!(f, "parameter {name} is given twice"),
            Self::NotAnAssignment { part } => write!(f, "{part:?} is not of the form name=value"),
            Self::BadValue { name, value, wanted } => {
                write!(f, "{name}={value} is not valid, wanted is {wanted}")
            }
            Self::TooManyNodes { nodes } => {
                write!(f, "{nodes} nodes are more than the {MAX_NODES} that unicast lids suffice for")
            }
            Self::TooManyPorts { ports } => write!(f, "a switch would need {ports} ports, 254 are possible"),
        }
    }
}

fn did_you_mean(f: &mut fmt::Formatter<'_>, word: &str, accepted: &[&str]) -> fmt::Result {
    if let Some(name) = nearest(word, accepted.iter().copied()) {
        write!(f, ", did you mean {name:?}?")?;
    }
    write!(f, " (accepted: {})", accepted.join(", "))
}

impl std::error::Error for GenerateError {}

/// Makes a fabric of one of the [`KINDS`] from parameters as text; what is left out has a default.
///
/// # Errors
/// [`GenerateError`] names the kind, parameter or value and what is accepted instead.
///
/// # Examples
/// ```
/// use madplane_topology::generate;
/// let params = [("radix".to_string(), "8".to_string())];
/// assert_eq!(generate("fat-tree", &params)?.nodes.len(), 32 + 12);
/// # Ok::<(), madplane_topology::GenerateError>(())
/// ```
pub fn generate(kind: &str, params: &[(String, String)]) -> Result<Topology, GenerateError> {
    let Some((kind, accepted)) = KINDS.into_iter().find(|(name, _)| *name == kind) else {
        return Err(GenerateError::UnknownKind { kind: kind.to_string() });
    };
    let params = Params::new(kind, accepted, params)?;
    match kind {
        "fat-tree" => FatTree::from_params(&params)?.build(),
        "torus" => Torus::from_params(&params)?.build(),
        "hypercube" => Hypercube::from_params(&params)?.build(),
        "dragonfly+" => DragonflyPlus::from_params(&params)?.build(),
        "ring" => Ring::from_params(&params)?.build(),
        _ => Random::from_params(&params)?.build(),
    }
}

/// Makes a fabric from a specification such as `builtin:fat-tree,radix=36,levels=2`; the `builtin:` may be left out.
///
/// # Errors
/// As [`generate`], and for a part that is not `name=value`.
pub fn from_spec(spec: &str) -> Result<Topology, GenerateError> {
    let spec = spec.strip_prefix("builtin:").unwrap_or(spec);
    let mut parts = spec.split(',');
    let kind = parts.next().unwrap_or("").trim();
    let mut params = Vec::new();
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            return Err(GenerateError::NotAnAssignment { part: part.to_string() });
        };
        params.push((name.trim().to_string(), value.trim().to_string()));
    }
    generate(kind, &params)
}

#[cfg(test)]
mod tests;
