//! The admin protocol: JSON lines over a Unix stream socket.
//!
//! A request is one line `{"v":1,"id":...,"cmd":"links.down","args":{...}}`, answered by exactly one line
//! `{"v":1,"id":...,"ok":true,"result":{...}}` or `{"v":1,"id":...,"ok":false,"error":"one line"}`. Replies carry the
//! request's `id` (a number, a text, or null) and may come in another order than the requests.
//!
//! | command | arguments | result | who |
//! |---|---|---|---|
//! | `control.status` | none | [`ControlStatus`] | anyone |
//! | `control.ping` | none | `{}`: nothing is done | anyone |
//! | `plane.ping` | none | [`Done`] | anyone |
//! | `links.down`, `links.up` | `port`: NODE:PORT | [`Done`] | root, or the user of madctld |
//! | `links.add` | `link`: as in [`madplane_shm::links`] | [`Done`] | root, or the user of madctld |
//! | `links.del` | `port`: NODE:PORT as it was added | [`Done`] | root, or the user of madctld |
//! | `nodes.reboot` | `node`: NODE | [`Done`] | root, or the user of madctld |
//! | `sessions.bind` | `session`: number, `path`: ports or none, `on_broken` | [`Done`] | root, or the user of madctld |
//! | `routes...` | see [`crate::admin_routes`] | | |
//! | `tenants...` | see [`crate::admin_tenants`] | | |
//! | `tuning...` | see [`crate::admin_tuning`] | | |
//!
//! This module is text and checks only; sockets are the reactor's ([`crate::reactor`]) and the caller's
//! ([`crate::admin_client`]).

pub use madctl::protocol::{ControlStatus, Done, MAX_LINE_BYTES, PROTOCOL_VERSION, Reply, Request};
use madplane_shm::command::ask as op;
use serde::Deserialize;
use serde_json::Value;

use crate::admin_routes::{self, RouteAction};
use crate::admin_tenants::{self, TenantAction};
use crate::admin_tuning::{self, TuningAction};
use crate::link_list::{self, LinkAction};
use crate::nearest;
use crate::routes::OnBroken;
use crate::routes::spec::check_path;

const COMMANDS: [&str; 7] = [
    "control.ping",
    "control.status",
    "plane.ping",
    "links.down",
    "links.up",
    "nodes.reboot",
    "sessions.bind",
];

/// A request understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answer.
    Ping,
    /// Say how madctld does.
    Status,
    /// Give a command to the plane.
    Plane {
        /// One of [`madplane_shm::command::ask`].
        kind: u32,
        /// Its argument.
        value: u32,
        /// The node or port it is about.
        selector: String,
        /// Whether it changes anything.
        changes: bool,
    },
    /// Bind a session to a path, or to none.
    Bind {
        /// Number of the session, from 1.
        session: u32,
        /// Ports, none to unbind.
        path: Vec<u8>,
        /// Drop what a broken path cannot carry.
        drop_broken: bool,
    },
    /// Change the list of links to other planes.
    Links(LinkAction),
    /// Look at or change the route table.
    Routes(RouteAction),
    /// Look at or change the tenants.
    Tenants(TenantAction),
    /// Change how workers wait.
    Tuning(TuningAction),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortArgs {
    port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeArgs {
    node: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BindArgs {
    session: u32,
    #[serde(default)]
    path: Vec<u64>,
    #[serde(default)]
    on_broken: OnBroken,
}

/// Reads one line.
///
/// # Errors
/// The reply to give when it is not a request.
pub fn parse(line: &[u8]) -> Result<(Value, Action), Box<Reply>> {
    if let Some(understood) = parse_at_once(line) {
        return Ok(understood);
    }
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| Box::new(Reply::failed(Value::Null, format!("not a JSON request: {error}"))))?;
    let id = match value.get("id") {
        Some(id @ (Value::Number(_) | Value::String(_))) => id.clone(),
        None | Some(Value::Null) => Value::Null,
        Some(_) => {
            return Err(Box::new(Reply::failed(Value::Null, "id has to be a number, a text or null")));
        }
    };
    let fail = |text: String| Box::new(Reply::failed(id.clone(), text));
    match value.get("v").map(Value::as_u64) {
        Some(Some(PROTOCOL_VERSION)) => {}
        Some(Some(theirs)) => {
            return Err(fail(format!(
                "request of protocol version {theirs}, madctld speaks {PROTOCOL_VERSION}"
            )));
        }
        _ => return Err(fail(format!("request without a version; madctld speaks \"v\":{PROTOCOL_VERSION}"))),
    }
    let request: Request =
        serde_json::from_value(value).map_err(|error| fail(format!("not a request: {error}")))?;
    let action = understand(&request.cmd, request.args).map_err(fail)?;
    Ok((id, action))
}

/// A request that need not be looked at piece by piece: the one that has to be quick.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddRequest<'a> {
    v: u64,
    #[serde(default)]
    id: Value,
    cmd: &'a str,
    args: admin_routes::AddArgs,
}

/// Reads a faultless `routes.add`; what is anything else is read the long way, which says what is wrong.
fn parse_at_once(line: &[u8]) -> Option<(Value, Action)> {
    const NAME: &[u8] = b"\"routes.add\"";
    if !line.windows(NAME.len()).any(|piece| piece == NAME) {
        return None;
    }
    let AddRequest { v, id, cmd, args } = serde_json::from_slice(line).ok()?;
    let understood = v == PROTOCOL_VERSION && cmd == "routes.add";
    let answerable = matches!(id, Value::Number(_) | Value::String(_) | Value::Null);
    let action = admin_routes::add(args).ok().filter(|_| understood && answerable)?;
    Some((id, Action::Routes(action)))
}

fn understand(cmd: &str, args: Value) -> Result<Action, String> {
    let plane = |kind, value, selector, changes| Ok(Action::Plane { kind, value, selector, changes });
    match cmd {
        "control.status" | "control.ping" | "plane.ping" => {
            no_arguments(cmd, &args)?;
            match cmd {
                "plane.ping" => plane(op::PING, 0, String::new(), false),
                "control.ping" => Ok(Action::Ping),
                _ => Ok(Action::Status),
            }
        }
        "links.down" | "links.up" => {
            let PortArgs { port } = arguments(cmd, args)?;
            check_selector(&port)?;
            let number = port.rsplit_once(':').and_then(|(_, number)| number.parse::<u8>().ok());
            if number.is_none() {
                return Err(format!("{port:?} names no port: write NODE:PORT"));
            }
            plane(op::SET_LINK, u32::from(cmd == "links.up"), port, true)
        }
        "links.add" | "links.del" => match link_list::understand(cmd, &args) {
            Some(action) => action.map(Action::Links),
            None => Err(unknown(cmd)),
        },
        "nodes.reboot" => {
            let NodeArgs { node } = arguments(cmd, args)?;
            check_selector(&node)?;
            plane(op::REBOOT_NODE, 0, node, true)
        }
        "sessions.bind" => {
            let BindArgs { session, path, on_broken } = arguments(cmd, args)?;
            if session == 0 {
                return Err("sessions are numbered from 1".to_owned());
            }
            let path =
                if path.is_empty() { Vec::new() } else { check_path(&path).map_err(|e| e.to_string())? };
            Ok(Action::Bind { session, path, drop_broken: on_broken == OnBroken::Drop })
        }
        _ if cmd.starts_with("tuning.") => match admin_tuning::understand(cmd, args) {
            Some(action) => action.map(Action::Tuning),
            None => Err(unknown(cmd)),
        },
        _ if cmd.starts_with("tenants.") => match admin_tenants::understand(cmd, args) {
            Some(action) => action.map(Action::Tenants),
            None => Err(unknown(cmd)),
        },
        _ => match admin_routes::understand(cmd, args) {
            Some(action) => action.map(Action::Routes),
            None => Err(unknown(cmd)),
        },
    }
}

fn unknown(cmd: &str) -> String {
    let known = COMMANDS
        .into_iter()
        .chain(link_list::COMMANDS)
        .chain(admin_routes::COMMANDS)
        .chain(admin_tenants::COMMANDS)
        .chain(admin_tuning::COMMANDS);
    format!("unknown command {cmd:?}{}", nearest::hint(cmd, known))
}

pub(crate) fn no_arguments(cmd: &str, args: &Value) -> Result<(), String> {
    if args.is_null() || args.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    Err(format!("{cmd} takes no arguments"))
}

pub(crate) fn arguments<T: serde::de::DeserializeOwned>(cmd: &str, args: Value) -> Result<T, String> {
    serde_json::from_value(args).map_err(|error| format!("arguments of {cmd}: {error}"))
}

fn check_selector(selector: &str) -> Result<(), String> {
    match selector.len() {
        0 => Err("the name of a node is empty".to_owned()),
        1..=192 if selector.contains('\0') => Err("the name of a node has a zero byte in it".to_owned()),
        1..=192 => Ok(()),
        _ => Err("the name of a node is longer than 192 bytes".to_owned()),
    }
}

/// Bytes of one client, cut into lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    searched: usize,
}

/// A line is longer than [`MAX_LINE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request longer than {MAX_LINE_BYTES} bytes")]
pub struct LineTooLong;

impl LineBuffer {
    /// Adds what was read.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole line, without its end.
    ///
    /// # Errors
    /// [`LineTooLong`]; the buffer is of no use any more.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        let Some(offset) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return if self.bytes.len() > MAX_LINE_BYTES { Err(LineTooLong) } else { Ok(None) };
        };
        let end = self.searched + offset;
        if end + 1 == self.bytes.len() && end <= MAX_LINE_BYTES {
            // as a client does that waits for its answers
            self.searched = 0;
            self.bytes.pop();
            return Ok(Some(std::mem::take(&mut self.bytes)));
        }
        let rest = self.bytes.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        self.searched = 0;
        line.pop();
        if line.len() > MAX_LINE_BYTES { Err(LineTooLong) } else { Ok(Some(line)) }
    }

    /// Takes what is left when the client has said that no more comes.
    pub fn take_rest(&mut self) -> Option<Vec<u8>> {
        self.searched = 0;
        Some(std::mem::take(&mut self.bytes)).filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_requests_are_understood() {
        let table = [
            (r#"{"v":1,"id":7,"cmd":"control.status"}"#, Action::Status),
            (r#"{"v":1,"id":7,"cmd":"control.ping"}"#, Action::Ping),
            (
                r#"{"v":1,"id":7,"cmd":"links.down","args":{"port":"leaf 1:3"}}"#,
                Action::Plane { kind: op::SET_LINK, value: 0, selector: "leaf 1:3".into(), changes: true },
            ),
            (
                r#"{"v":1,"id":7,"cmd":"links.up","args":{"port":"0x10:3"}}"#,
                Action::Plane { kind: op::SET_LINK, value: 1, selector: "0x10:3".into(), changes: true },
            ),
            (
                r#"{"v":1,"id":7,"cmd":"nodes.reboot","args":{"node":"h"}}"#,
                Action::Plane { kind: op::REBOOT_NODE, value: 0, selector: "h".into(), changes: true },
            ),
            (
                r#"{"v":1,"id":7,"cmd":"plane.ping","args":{}}"#,
                Action::Plane { kind: op::PING, value: 0, selector: String::new(), changes: false },
            ),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line.as_bytes()).unwrap(), (Value::from(7), expected), "{line}");
        }
    }

    #[test]
    fn every_bad_request_gets_one_line_that_says_why() {
        let long = format!(r#"{{"v":1,"cmd":"nodes.reboot","args":{{"node":"{}"}}}}"#, "x".repeat(193));
        let table: [(&str, &str); 15] = [
            ("", "not a JSON request"),
            ("{", "not a JSON request"),
            ("\u{0}\u{1}", "not a JSON request"),
            ("[1,2]", "without a version"),
            (r#"{"id":1,"cmd":"plane.ping"}"#, "without a version"),
            (r#"{"v":2,"cmd":"plane.ping"}"#, "version 2, madctld speaks 1"),
            (r#"{"v":1,"id":[1],"cmd":"plane.ping"}"#, "id has to be"),
            (r#"{"v":1}"#, "missing field `cmd`"),
            (r#"{"v":1,"cmd":"plane.ping","extra":1}"#, "unknown field `extra`"),
            (r#"{"v":1,"cmd":"link.down"}"#, "did you mean links.down?"),
            (r#"{"v":1,"cmd":"links.down"}"#, "arguments of links.down"),
            (r#"{"v":1,"cmd":"links.down","args":{"port":"leaf"}}"#, "write NODE:PORT"),
            (r#"{"v":1,"cmd":"links.down","args":{"port":"leaf:1","x":2}}"#, "unknown field `x`"),
            (r#"{"v":1,"cmd":"nodes.reboot","args":{"node":""}}"#, "is empty"),
            (&long, "longer than 192 bytes"),
        ];
        for (line, expected) in table {
            let reply = *parse(line.as_bytes()).unwrap_err();
            let text = reply.error.clone().unwrap();
            assert!(!reply.ok && text.contains(expected) && !text.contains('\n'), "{line}: {text}");
            assert_eq!(reply.to_line().iter().filter(|byte| **byte == b'\n').count(), 1);
        }
    }

    #[test]
    fn lines_come_out_whole_however_they_came_in() {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for byte in b"one\n\ntwo\nthr" {
            buffer.extend(&[*byte]);
            while let Some(line) = buffer.next_line().unwrap() {
                lines.push(String::from_utf8(line).unwrap());
            }
        }
        assert_eq!(lines, ["one", "", "two"]);
        assert_eq!(buffer.take_rest().unwrap(), b"thr");
        assert_eq!(buffer.take_rest(), None);
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_bound_and_not_before() {
        let mut buffer = LineBuffer::default();
        buffer.extend(&vec![b'x'; MAX_LINE_BYTES]);
        assert_eq!(buffer.next_line(), Ok(None));
        buffer.extend(b"\n");
        assert_eq!(buffer.next_line().unwrap().unwrap().len(), MAX_LINE_BYTES);
        buffer.extend(&vec![b'x'; MAX_LINE_BYTES + 1]);
        assert_eq!(buffer.next_line(), Err(LineTooLong));
    }
}
