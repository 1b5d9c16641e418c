//! Why a measurement was not made.

/// Why a measurement was not made; `Display` is one line.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The machine lacks something that the scenario compares with.
    #[error("{0}")]
    Missing(String),
    /// A program did not start, or stopped early.
    #[error("{program}: {reason}")]
    Program {
        /// The program.
        program: String,
        /// What it said or did.
        reason: String,
    },
    /// An answer was wrong, so there is nothing to time.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// No answer came.
    #[error("no answer within {0} s")]
    Silence(u64),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Attaching or registering failed.
    #[error("{0}")]
    Attach(String),
    /// Not something that can be run or read.
    #[error("{0}")]
    Usage(String),
}

impl BenchError {
    /// An error of a system call; `what` says what was tried.
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }

    /// An error of a program.
    pub fn program(program: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Program { program: program.into(), reason: reason.into() }
    }
}
