//! The control channel: commands to the plane, events back, and what to do while the plane is away.
//!
//! Owned by the reactor's thread; nothing here blocks. States: away (the next attempt has a time), greeting (asked for
//! the channel, waiting for the answer), connected. A plane that dies closes the socket, which is noticed at once.
//!
//! | from | on | to |
//! |---|---|---|
//! | away | attempt due, or the plane's socket appears | greeting |
//! | greeting | reply with descriptors | connected |
//! | greeting | refusal, hang-up, no answer in time | away, waiting longer each time |
//! | connected | hang-up, anything else on the socket | away |

use std::io;
use std::time::{Duration, Instant};

use madplane_shm::command::{Command, Event};
use madplane_shm::doorbell::Doorbell;
use madplane_shm::handoff::{Connection, HandoffError, Request, op};
use madplane_shm::paths::PlanePaths;
use madplane_shm::session::{PairFds, SharedConsumer, SharedProducer, open_pair};

use crate::poller::{Interest, Poller};

/// Wait before the second attempt; doubled up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait between attempts. The socket's appearance ends it early.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Wait after a refusal: a killed predecessor still holds the channel until the plane notices.
const REFUSED_WAIT: Duration = Duration::from_millis(100);
/// Refusals in a row after which waiting gets longer.
const QUICK_REFUSALS: u32 = 20;
/// How long the plane may take to answer.
const GREETING_WITHIN: Duration = Duration::from_secs(5);

const NO_ANSWER: &str = "the plane does not answer; see its log";

/// Numbers of the link's sources in the poller.
#[derive(Debug, Clone, Copy)]
pub struct LinkSources {
    /// The connection.
    pub socket: u64,
    /// The doorbell that the plane rings for events.
    pub event_bell: u64,
}

/// Why a command could not be given to the plane; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The plane is away.
    #[error("{0}")]
    Away(String),
    /// The plane does not take commands fast enough.
    #[error("the plane has not taken the last commands yet; try again later")]
    Busy,
}

/// What became of a step of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// The channel is open.
    Connected,
    /// The channel was open and is not any more.
    Lost,
    /// An attempt failed.
    Failed,
}

#[derive(Debug)]
struct Channel {
    socket: Connection,
    commands: SharedProducer<Command>,
    events: SharedConsumer<Event>,
    command_bell: Doorbell,
    event_bell: Doorbell,
}

#[derive(Debug)]
enum State {
    Away { attempt_at: Instant, why: String },
    Greeting { socket: Connection, until: Instant },
    Connected(Box<Channel>),
}

/// The link to one plane.
#[derive(Debug)]
pub struct PlaneLink {
    paths: PlanePaths,
    sources: LinkSources,
    state: State,
    wait: Duration,
    refusals: u32,
}

impl PlaneLink {
    /// A link that attempts to connect as soon as it is asked to.
    pub fn new(paths: PlanePaths, sources: LinkSources, now: Instant) -> Self {
        let why = "madctld has not connected to the plane yet; try again".to_owned();
        Self { paths, sources, state: State::Away { attempt_at: now, why }, wait: FIRST_WAIT, refusals: 0 }
    }

    /// Whether commands can be given.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Whether an attempt waits for the plane's answer.
    pub fn is_greeting(&self) -> bool {
        matches!(self.state, State::Greeting { .. })
    }

    /// Whether the plane refused (and was there to do so) the last time.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// One line on why there is no channel; empty if there is.
    pub fn why_away(&self) -> String {
        match &self.state {
            State::Away { why, .. } => why.clone(),
            State::Greeting { .. } => "the plane has not answered yet; try again".to_owned(),
            State::Connected(_) => String::new(),
        }
    }

    /// When [`PlaneLink::on_time`] wants to be called next.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Away { attempt_at, .. } => Some(*attempt_at),
            State::Greeting { until, .. } => Some(*until),
            State::Connected(_) => None,
        }
    }

    /// Does what has become due: an attempt, or giving one up.
    pub fn on_time(&mut self, poller: &Poller, now: Instant) -> Change {
        match &self.state {
            State::Away { attempt_at, .. } if *attempt_at <= now => self.attempt(poller, now),
            State::Greeting { until, .. } if *until <= now => self.leave(poller, now, NO_ANSWER.to_owned()),
            _ => Change::None,
        }
    }

    /// Attempts to connect now unless there is a connection already.
    pub fn attempt(&mut self, poller: &Poller, now: Instant) -> Change {
        if !matches!(self.state, State::Away { .. }) {
            return Change::None;
        }
        let opened =
            Connection::try_open(&self.paths.attach_socket(), self.paths.name()).and_then(|socket| {
                socket.send(&Request { op: op::CONTROL, ..Request::default() })?;
                poller.add(&socket, self.sources.socket, Interest::READ).map_err(HandoffError::Gone)?;
                Ok(socket)
            });
        match opened {
            Ok(socket) => {
                self.state = State::Greeting { socket, until: now + GREETING_WITHIN };
                Change::None
            }
            Err(HandoffError::Gone(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.leave(poller, now, NO_ANSWER.to_owned())
            }
            Err(error) => self.leave(poller, now, error.to_string()),
        }
    }

    /// The connection is readable: the answer to the greeting, or the plane's end.
    pub fn on_socket(&mut self, poller: &Poller, now: Instant) -> Change {
        let why = match &self.state {
            State::Away { .. } => return Change::None,
            State::Connected(_) => {
                let name = self.paths.name();
                return self.leave(
                    poller,
                    now,
                    format!("plane {name} is gone; start it with: madctl up --name {name}"),
                );
            }
            State::Greeting { .. } => "the connection ended".to_owned(),
        };
        let State::Greeting { socket, .. } =
            std::mem::replace(&mut self.state, State::Away { attempt_at: now, why })
        else {
            return Change::None;
        };
        match open_channel(socket) {
            Ok(channel) => {
                let added = poller.add(&channel.event_bell, self.sources.event_bell, Interest::READ);
                self.state = State::Connected(Box::new(channel));
                if let Err(error) = added {
                    return self.leave(poller, now, format!("cannot wait for the plane: {error}"));
                }
                self.wait = FIRST_WAIT;
                self.refusals = 0;
                Change::Connected
            }
            Err((socket, error)) => {
                poller.remove(&socket);
                if matches!(error, HandoffError::Refused { .. }) {
                    self.refusals += 1;
                }
                self.leave(poller, now, error.to_string())
            }
        }
    }

    /// Gives up what there is and sets the time of the next attempt.
    fn leave(&mut self, poller: &Poller, now: Instant, why: String) -> Change {
        let change = match &self.state {
            State::Connected(channel) => {
                // the plane may live on with its copy of the doorbell
                poller.remove(&channel.event_bell);
                poller.remove(&channel.socket);
                Change::Lost
            }
            State::Greeting { socket, .. } => {
                poller.remove(socket);
                Change::Failed
            }
            State::Away { .. } => Change::Failed,
        };
        let wait = if (1..QUICK_REFUSALS).contains(&self.refusals) {
            REFUSED_WAIT
        } else {
            let wait = self.wait;
            self.wait = (wait * 2).min(LONGEST_WAIT);
            wait
        };
        self.state = State::Away { attempt_at: now + wait, why };
        change
    }

    /// Gives a command to the plane and rings if it sleeps.
    ///
    /// # Errors
    /// [`LinkError`], at once; the command was not given then.
    pub fn send(&mut self, command: &Command) -> Result<(), LinkError> {
        let State::Connected(channel) = &mut self.state else { return Err(LinkError::Away(self.why_away())) };
        channel.commands.push(command).map_err(|_| LinkError::Busy)?;
        if channel.commands.wake_due() {
            channel.command_bell.ring();
        }
        Ok(())
    }

    /// Takes the events that are there, at most `most`.
    pub fn take_events(&mut self, most: usize) -> Vec<Event> {
        let State::Connected(channel) = &mut self.state else { return Vec::new() };
        channel.event_bell.take();
        let mut taken = Vec::new();
        let mut event = Event::default();
        while taken.len() < most && channel.events.pop(&mut event) {
            taken.push(event);
        }
        channel.events.commit();
        taken
    }

    /// Says that this side is about to sleep; false if events are there.
    pub fn arm(&mut self) -> bool {
        match &mut self.state {
            State::Connected(channel) => channel.events.arm(),
            _ => true,
        }
    }

    /// Says that this side is awake.
    pub fn disarm(&mut self) {
        if let State::Connected(channel) = &mut self.state {
            channel.events.disarm();
        }
    }
}

fn open_channel(socket: Connection) -> Result<Channel, (Connection, HandoffError)> {
    let (_, fds) = match socket.receive() {
        Ok(answer) => answer,
        Err(error) => return Err((socket, error)),
    };
    let bad = |text: String| HandoffError::Gone(io::Error::other(text));
    let Ok([up, down, command_bell, event_bell]) = <[_; 4]>::try_from(fds) else {
        return Err((socket, bad("the plane's answer has not four descriptors".to_owned())));
    };
    match open_pair::<Command, Event>(&PairFds { up, down }) {
        Ok(ends) => Ok(Channel {
            socket,
            commands: ends.up,
            events: ends.down,
            command_bell: Doorbell::from_fd(command_bell),
            event_bell: Doorbell::from_fd(event_bell),
        }),
        Err(error) => Err((socket, bad(error.to_string()))),
    }
}
