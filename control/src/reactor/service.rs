//! The reactor's side of signals and of the service manager.
//!
//! Part of [`Reactor`], same thread: what a manager is told at the end of a turn, and what a reload does. Not here: when a manager
//! is told something (`manager.rs`).

use std::ffi::c_int;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use signal_hook::SigId;
use tracing::info;

use super::{DIRECTORY, Reactor, watch};
use crate::manager::Manager;
use crate::poller::Interest;

impl Reactor {
    /// Tells a service manager, if there is one, that madctld is ready, and from now on that it is well.
    pub fn begin_service(&mut self, manager: Manager) {
        self.manager = manager;
        self.manager.ready(&self.summary());
    }

    /// Tells the manager, if there is one, that this turn has ended.
    pub(super) fn tell_manager(&mut self) {
        if self.manager.is_heard() {
            let summary = self.summary();
            self.manager.come_by(&summary, Instant::now());
        }
    }

    /// What it does, as a service manager shows it.
    fn summary(&self) -> String {
        let clients = self.peers.len();
        if self.link.is_connected() {
            format!("connected to the plane, {clients} clients")
        } else {
            format!("waits for the plane, {clients} clients")
        }
    }

    /// Looks for the plane at once, and for its directory anew: it may have been removed and made again.
    pub(super) fn reload(&mut self, now: Instant) {
        let mut bytes = [0u8; 64];
        // one reload for as many signals as there were
        let _ = rustix::io::read(&self.reloads, &mut bytes);
        self.manager.reloading();
        if let Some(former) = self.directory.take() {
            self.poller.remove(&former);
        }
        self.directory =
            watch(&self.paths).filter(|fd| self.poller.add(fd, DIRECTORY, Interest::READ).is_ok());
        let change = self.link.attempt(&self.poller, now);
        self.on_link(change);
        info!("looked for the plane again");
        let summary = self.summary();
        self.manager.ready(&summary);
    }
}

/// Becomes readable when one of `signals` comes.
pub(super) fn pipe_of(signals: &[c_int], ids: &mut Vec<SigId>) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        ids.push(signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?);
    }
    Ok(reader)
}
