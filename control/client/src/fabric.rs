//! The fabric of a plane as a client sees it: nodes and cables, LIDs, paths over it.
//!
//! [`view::FabricView`] ties the parts together: [`path`] finds and follows paths over cables, [`lids`] asks the running
//! plane which port has which LID, [`trace`] holds published routes against it all. Blocks the calling thread for bounded times. Not here: the state of nodes, which belongs
//! to the fabric and changes in-band only.

pub mod lids;
pub mod path;
pub mod trace;
pub mod view;
