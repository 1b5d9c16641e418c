//! The line that answers a request, as madctld sends it.
//!
//! What [`Reply`] is to the reader, without the way over a tree of values: an answer is written once, straight into the bytes
//! that go out. Plain value; the reactor's thread.

use serde::Serialize;
use serde_json::Value;

use crate::admin::{PROTOCOL_VERSION, Reply};

/// An answer, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    line: Vec<u8>,
}

/// A success as it is written; the fields are [`Reply`]'s.
#[derive(Serialize)]
struct Success<'a, T> {
    v: u64,
    id: &'a Value,
    ok: bool,
    result: &'a T,
}

impl Answer {
    /// A success.
    #[expect(clippy::missing_panics_doc, reason = "results can always be written as JSON")]
    pub fn done(id: &Value, result: &impl Serialize) -> Self {
        let mut line = Vec::with_capacity(320);
        serde_json::to_writer(&mut line, &Success { v: PROTOCOL_VERSION, id, ok: true, result })
            .expect("results are texts, numbers and maps with text keys");
        line.push(b'\n');
        Self { line }
    }

    /// A failure, in one line.
    pub fn failed(id: Value, error: impl Into<String>) -> Self {
        Self::from(Reply::failed(id, error))
    }

    /// The bytes, with their end.
    pub fn line(&self) -> &[u8] {
        &self.line
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { line: reply.to_line() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_routes::RoutesDone;

    #[test]
    fn an_answer_is_read_as_the_reply_that_it_stands_for() {
        let done = RoutesDone { version: 7, routes: 3, synced: true, ..RoutesDone::default() };
        for id in [Value::Null, Value::from(5), Value::from("a \"b\"")] {
            let read: Reply = serde_json::from_slice(Answer::done(&id, &done).line()).unwrap();
            assert_eq!(read, Reply::done(id.clone(), &done));
            let read: Reply = serde_json::from_slice(Answer::failed(id.clone(), "a\nb").line()).unwrap();
            assert_eq!(read, Reply::failed(id, "a b"));
        }
        let lines =
            Answer::done(&Value::from("a\nb"), &"c\nd").line().iter().filter(|b| **b == b'\n').count();
        assert_eq!(lines, 1);
    }
}
