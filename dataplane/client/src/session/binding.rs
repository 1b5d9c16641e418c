//! Giving a session a path of its own.

use madplane_shm::sync::Ordering;

use super::{Session, lock};
use crate::attach::call_bind;
use crate::error::BindError;

impl Session {
    /// Sends everything that is not a directed route along these ports from now on: the session's own port, then an output
    /// port of each switch on the way; empty to send as everybody does.
    ///
    /// A MAD whose destination is not where the path ends, or whose path is broken, goes on by LID from there, or is dropped
    /// if `drop_broken`. Waits for the plane; what was sent before may go either way.
    ///
    /// # Errors
    /// More than 63 ports, ports that no cable connects, plane gone.
    pub fn bind_path(&self, ports: &[u8], drop_broken: bool) -> Result<(), BindError> {
        let _one_at_a_time = lock(&self.calls);
        if self.gone.load(Ordering::Relaxed) {
            return Err(BindError::Gone);
        }
        let result = call_bind(&self.connection, ports, drop_broken);
        if matches!(result, Err(BindError::Gone)) {
            self.gone.store(true, Ordering::Relaxed);
        }
        result
    }
}
