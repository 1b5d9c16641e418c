//! Finding the route table and handing it to the workers.
//!
//! The table is control's file; it may appear, be replaced by another or go away at any time. Housekeeping looks at the name
//! every time it comes by, which is at least twice a second and whenever control attaches.

use std::sync::Arc;

use madplane_shm::route_counters::RouteCounters;
use madplane_shm::table::TableError;
use madplane_shm::table::snapshot::TableReader;

use super::Housekeeping;
use crate::orders::{Order, Report};
use crate::route_view::RouteView;

impl Housekeeping {
    /// Hands the table to the workers if there is one that they do not read yet. What cannot be used is said once, and
    /// the workers keep what they have.
    pub(crate) fn look_for_table(&mut self) {
        let path = self.config.paths().table_segment();
        if self.table.as_ref().is_some_and(|(reader, _)| reader.is_at(&path)) || !path.exists() {
            return;
        }
        match self.take_table() {
            Ok(()) => self.table_complaint.clear(),
            Err(error) => {
                let text = error.to_string();
                if text != self.table_complaint {
                    self.error(&text);
                    self.table_complaint = text;
                }
            }
        }
    }

    fn take_table(&mut self) -> Result<(), TableError> {
        let paths = self.config.paths().clone();
        let reader = TableReader::open(&paths.table_segment())?;
        let counters = Arc::new(RouteCounters::create(&paths.routes_segment(), reader.capacity(), self.me)?);
        for worker in 0..self.desks.len() {
            let own = TableReader::open(&paths.table_segment())?;
            let view = RouteView::new(own, counters.clone(), worker == 0);
            match self.ask(worker, Order::Routes(Box::new(view))) {
                // the former view is freed here
                Some(Report::Replaced(_)) => {}
                _ => self.error("a worker did not take the route table"),
            }
        }
        tracing::info!(routes = reader.capacity(), "route table taken over");
        self.table = Some((reader, counters));
        Ok(())
    }
}
