//! The admin command about how workers wait: arguments, checks, result.
//!
//! Part of the protocol of [`crate::admin`]; text and checks only.
//!
//! | command | arguments | result | who |
//! |---|---|---|---|
//! | `tuning.set` | `values`: NAME=VALUE each, `worker`: all if none, `reset`, `sync` | [`TuningDone`] | root, or the user of madctld |
//!
//! What is asked of a worker stays in the table until it is asked for something else; with `reset` it goes back to what it was
//! started with first. Names and bounds are those of [`madplane_shm::tuning`]; what a worker makes of it is in the status segment.

use madplane_shm::status::MAX_WORKERS;
use madplane_shm::tuning::TuningPatch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admin::arguments;

/// Names of the commands.
pub(crate) const COMMANDS: [&str; 1] = ["tuning.set"];

/// A request about tuning, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningAction {
    /// What is asked for.
    pub patch: TuningPatch,
    /// Of which worker; of all if none is named.
    pub worker: Option<usize>,
    /// Forget what was asked for before.
    pub reset: bool,
    /// Answer when the workers have it.
    pub sync: bool,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TuningDone {
    /// Generation of the table in shared memory.
    pub generation: u64,
    /// What is asked for now, of the worker or of the first.
    pub asked: String,
    /// Whether every worker has it.
    pub synced: bool,
    /// How many workers that are.
    pub workers: usize,
    /// From publication until they had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hw_sync_latency_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetArgs {
    #[serde(default)]
    values: Vec<String>,
    #[serde(default)]
    worker: Option<usize>,
    #[serde(default)]
    reset: bool,
    #[serde(default)]
    sync: bool,
}

/// Reads the arguments of a command; `None` if it is none of these.
pub(crate) fn understand(cmd: &str, args: Value) -> Option<Result<TuningAction, String>> {
    COMMANDS.contains(&cmd).then(|| set(cmd, args))
}

fn set(cmd: &str, args: Value) -> Result<TuningAction, String> {
    let SetArgs { values, worker, reset, sync } = arguments(cmd, args)?;
    let patch = TuningPatch::parse(values.iter().map(String::as_str)).map_err(|error| error.to_string())?;
    if patch.is_empty() && !reset {
        return Err("nothing to tune: give NAME=VALUE".to_owned());
    }
    if let Some(worker) = worker.filter(|worker| *worker >= MAX_WORKERS) {
        return Err(format!("there is no worker {worker}; a plane has at most {MAX_WORKERS}"));
    }
    Ok(TuningAction { patch, worker, reset, sync })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_names_what_to_tune_and_of_whom() {
        let args = json!({"values": ["rx-usecs=7", "mode=poll"], "worker": 3, "sync": true});
        let action = understand("tuning.set", args).unwrap().unwrap();
        assert_eq!(action.patch.to_string(), "mode=polling moderator_timeout=7");
        assert_eq!((action.worker, action.reset, action.sync), (Some(3), false, true));
        assert!(understand("tuning.get", json!({})).is_none());
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for (args, expected) in [
            (json!({}), "nothing to tune"),
            (json!({"values": ["burst=-1"]}), "from 1 to 256"),
            (json!({"values": ["brst=1"]}), "did you mean burst?"),
            (json!({"values": ["burst=1"], "worker": 16}), "there is no worker 16"),
            (json!({"values": ["burst=1"], "worker": -1}), "arguments of tuning.set"),
            (json!({"valus": []}), "unknown field"),
        ] {
            let error = understand("tuning.set", args).unwrap().unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
