//! The stages of the pipeline that a MAD passes through, by the names under which operators see them.
//!
//! A counter or a drop reason belongs to the stage that moves it. Stages are for people: no number of theirs travels.

/// A stage of the pipeline, in the order in which a MAD meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Is this a MAD that this session may hand in at all?
    Classify,
    /// What the sender's tenant may send.
    Acl,
    /// Forwarding by destination LID.
    Dlid,
    /// Service level to virtual lane.
    Sl2Vl,
    /// Partitions.
    PKey,
    /// Pinned routes.
    DrTable,
    /// Hop by hop along a directed route.
    Smi,
    /// The node that answers: M_Key, Q_Key, agents, traps.
    Agent,
    /// Towards the receiver: its ring, another worker.
    Egress,
}

impl Stage {
    /// All stages in the order of the pipeline.
    pub const ALL: &'static [Self] = &[
        Self::Classify,
        Self::Acl,
        Self::Dlid,
        Self::Sl2Vl,
        Self::PKey,
        Self::DrTable,
        Self::Smi,
        Self::Agent,
        Self::Egress,
    ];

    /// The name under which the stage is shown.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Classify => "classify",
            Self::Acl => "acl",
            Self::Dlid => "dlid",
            Self::Sl2Vl => "sl2vl",
            Self::PKey => "pkey",
            Self::DrTable => "dr_table",
            Self::Smi => "smi",
            Self::Agent => "agent",
            Self::Egress => "egress",
        }
    }
}
