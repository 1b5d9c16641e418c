//! Counters of a worker: past events, each with an id that only ever grows and a label.
//!
//! A worker counts in private words and commits them once per duty cycle to its block in the status segment; readers
//! see values that only grow within one incarnation of the plane. Drops are counted by [`crate::drop_reason`]. A counter of a
//! stage of the pipeline names it.

use crate::stage::Stage;

macro_rules! counters {
    (@stage) => { None };
    (@stage $stage:ident) => { Some(Stage::$stage) };
    ($( $(#[doc = $doc:expr])* $name:ident = $id:literal, $label:literal $(, $stage:ident)?; )*) => {
        /// What a worker counts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Counter {
            $( $(#[doc = $doc])* $name = $id, )*
        }

        impl Counter {
            /// All counters in id order.
            pub const ALL: &'static [Counter] = &[ $( Counter::$name, )* ];

            /// The name under which the counter is shown.
            pub const fn label(self) -> &'static str {
                match self { $( Counter::$name => $label, )* }
            }

            /// The stage of the pipeline that moves it, if it belongs to one.
            pub const fn stage(self) -> Option<Stage> {
                match self { $( Counter::$name => counters!(@stage $($stage)?), )* }
            }
        }
    };
}

counters! {
    /// MADs taken from sessions.
    SessionReceived = 0, "session_mads_received";
    /// MADs given to sessions.
    SessionSent = 1, "session_mads_sent";
    /// MADs taken from other workers.
    ShardReceived = 2, "shard_mads_received";
    /// MADs given to other workers.
    ShardSent = 3, "shard_mads_sent";
    /// Link-state messages taken from other workers.
    ShardEvents = 4, "shard_link_events";
    /// Doorbells rung for sleeping sessions.
    DoorbellsRung = 5, "doorbells_rung";
    /// MADs carried by a pinned route that was resolved before.
    DrCacheHit = 6, "dr_cache_hit", DrTable;
    /// Pinned routes resolved against the fabric.
    DrCacheMiss = 7, "dr_cache_miss", DrTable;
    /// MADs of sessions found well formed.
    ClassifyAccepted = 8, "classify_accepted", Classify;
    /// MADs of tenants held against what the tenant may send.
    AclChecked = 9, "acl_checked", Acl;
    /// MADs forwarded by destination LID.
    DlidRouted = 10, "dlid_routed", Dlid;
    /// Service levels looked up for a virtual lane.
    Sl2vlChecked = 11, "sl2vl_checked", Sl2Vl;
    /// P_Keys compared.
    PKeyChecked = 12, "pkey_checked", PKey;
    /// Pinned routes looked for.
    DrTableLooked = 13, "dr_table_looked_up", DrTable;
    /// MADs taken from sessions of the reserved class.
    ReservedReceived = 14, "reserved_mads_received";
    /// Times that a worker went to sleep.
    WorkerSleeps = 15, "worker_sleeps";
    /// Sleeps that a doorbell ended.
    WakeUps = 16, "wake_ups";
    /// Wake-ups that found more than one MAD: the others were spared theirs.
    WakeUpsCoalesced = 17, "wake_ups_coalesced";
    /// Sleeps, of those above, that waited for several MADs at most for the moderation's time.
    SleepsModerated = 18, "sleeps_moderated";
    /// Sleeps given up because the last look found something.
    SleepsGivenUp = 19, "sleeps_given_up";
    /// Changes of the mode, or of what it is tuned by.
    ModeChanges = 20, "mode_changes";
    /// MADs given to links to other planes.
    LinkSent = 21, "link_mads_sent";
    /// MADs taken from links to other planes.
    LinkReceived = 22, "link_mads_received";
    /// Changes at the other end of such a link.
    LinkEvents = 23, "link_events";
    /// MADs given to RDMA devices.
    DeviceSent = 24, "device_mads_sent";
    /// MADs taken from RDMA devices.
    DeviceReceived = 25, "device_mads_received";
    /// Requests to RDMA devices that the kernel gave up waiting for.
    DeviceTimedOut = 26, "device_requests_timed_out";
    /// LID-routed SMPs that left by an RDMA device along a pinned route.
    DevicePinned = 27, "device_smps_pinned", DrTable;
}

/// Words reserved for counters in a worker's block.
pub const COUNTER_WORDS: usize = 128;

const _: () = assert!(Counter::ALL.len() <= COUNTER_WORDS);

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn numbers_labels_and_stages_are_the_published_ones() {
        let published = [
            "0 session_mads_received -",
            "1 session_mads_sent -",
            "2 shard_mads_received -",
            "3 shard_mads_sent -",
            "4 shard_link_events -",
            "5 doorbells_rung -",
            "6 dr_cache_hit dr_table",
            "7 dr_cache_miss dr_table",
            "8 classify_accepted classify",
            "9 acl_checked acl",
            "10 dlid_routed dlid",
            "11 sl2vl_checked sl2vl",
            "12 pkey_checked pkey",
            "13 dr_table_looked_up dr_table",
            "14 reserved_mads_received -",
            "15 worker_sleeps -",
            "16 wake_ups -",
            "17 wake_ups_coalesced -",
            "18 sleeps_moderated -",
            "19 sleeps_given_up -",
            "20 mode_changes -",
            "21 link_mads_sent -",
            "22 link_mads_received -",
            "23 link_events -",
            "24 device_mads_sent -",
            "25 device_mads_received -",
            "26 device_requests_timed_out -",
            "27 device_smps_pinned dr_table",
        ];
        let stage = |counter: &Counter| counter.stage().map_or("-", |stage| stage.label());
        let now = Counter::ALL.iter().map(|c| format!("{} {} {}", *c as u8, c.label(), stage(c)));
        assert_eq!(now.collect::<Vec<_>>(), published);
    }

    #[test]
    fn ids_are_dense_and_labels_unique() {
        let mut labels = Vec::new();
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
            labels.push(counter.label());
        }
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Counter::ALL.len());
    }
}
