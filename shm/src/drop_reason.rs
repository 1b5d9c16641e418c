//! Every way in which the plane drops a MAD, as numbers that processes agree on.
//!
//! Ids are append-only: a reader of another version shows an unknown id by its number. Each reason has one counter per
//! worker in the status segment, a label that says what happened, in the words of the specification, and the stage of
//! the pipeline that drops.

use crate::stage::Stage;

macro_rules! drop_reasons {
    ($( $(#[doc = $doc:expr])* $name:ident = $id:literal, $label:literal, $stage:ident; )*) => {
        /// Why a MAD was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $( $(#[doc = $doc])* $name = $id, )*
        }

        impl DropReason {
            /// All reasons in id order.
            pub const ALL: &'static [DropReason] = &[ $( DropReason::$name, )* ];

            /// The name under which the counter is shown.
            pub const fn label(self) -> &'static str {
                match self { $( DropReason::$name => $label, )* }
            }

            /// The stage of the pipeline that drops for this reason.
            pub const fn stage(self) -> Stage {
                match self { $( DropReason::$name => Stage::$stage, )* }
            }
        }
    };
}

drop_reasons! {
    /// Base version is not 1.
    BaseVersion = 0, "drop_base_version", Classify;
    /// Slot length is not 256 bytes or a reserved field of the slot is wrong.
    Malformed = 1, "drop_malformed", Classify;
    /// SMP class on a QP other than 0, or another class on QP 0.
    ClassQp = 2, "drop_class_qp", Classify;
    /// The port on which the MAD arrived is not at least Initialize.
    ArrivalDown = 3, "drop_arrival_port_down", Smi;
    /// A class 0x01 SMP with a permissive LID.
    PermissiveLid = 4, "drop_permissive_lid", Dlid;
    /// A LID that an adapter does not own.
    NotOurLid = 5, "drop_not_our_lid", Dlid;
    /// Hop count above 63.
    HopCount = 6, "drop_hop_count", Smi;
    /// Hop pointer that the rules of its direction do not allow.
    HopPointer = 7, "drop_hop_pointer", Smi;
    /// Adapter or router asked to relay a directed route.
    NotSwitch = 8, "drop_relay_by_adapter", Smi;
    /// Output port of a path byte is 0 or beyond the ports of the node.
    PathPort = 9, "drop_path_port", Smi;
    /// Output port of a path byte has no link.
    PathPortDown = 10, "drop_path_port_down", Smi;
    /// DLID 0 or permissive outside a directed part.
    DlidInvalid = 11, "drop_dlid_invalid", Dlid;
    /// Multicast DLID; no MAD agent is attached to a multicast group.
    Multicast = 12, "drop_multicast", Dlid;
    /// DLID above LinearFDBTop.
    AboveFdbTop = 13, "drop_above_fdb_top", Dlid;
    /// Forwarding entry 255: no route.
    NoRoute = 14, "drop_no_route", Dlid;
    /// Forwarding entry beyond the ports of the switch.
    RoutePort = 15, "drop_route_port", Dlid;
    /// Forwarding entry equals the arrival port.
    RouteLoop = 16, "drop_route_loop", Dlid;
    /// Output port of a forwarding entry is not in a state to send.
    RoutePortDown = 17, "drop_route_port_down", Dlid;
    /// LID route with more hops than any fabric has.
    HopLimit = 18, "drop_hop_limit", Dlid;
    /// M_Key check failed.
    MKey = 19, "drop_m_key", Agent;
    /// No P_Key of the receiving port matches.
    PKey = 20, "drop_p_key", PKey;
    /// Q_Key of a GMP is not 0x80010000.
    QKey = 21, "drop_q_key", Agent;
    /// Partition enforcement of a switch port refused the GMP.
    PartitionEnforcement = 22, "drop_partition_enforcement", PKey;
    /// SLtoVL entry says drop, or names a VL that is not operational.
    SlToVl = 23, "drop_sl_to_vl", Sl2Vl;
    /// Nobody is registered for this request and it wants no reply.
    NoAgent = 24, "drop_no_agent", Agent;
    /// A response whose transaction belongs to no agent of this port.
    NoTransaction = 25, "drop_no_transaction", Agent;
    /// The receiving session does not empty its ring.
    SessionFull = 26, "drop_session_full", Egress;
    /// The ring to another worker is full.
    ShardFull = 27, "drop_shard_full", Egress;
    /// Sender named an agent that it has not registered.
    UnknownAgent = 28, "drop_unknown_agent", Classify;
    /// The SMP names a P_Key index or sending port that the session does not have.
    SenderInvalid = 29, "drop_sender_invalid", Classify;
    /// TrapRepress that matches no repeating trap; consumed without an answer.
    TrapRepressUnmatched = 30, "drop_trap_repress_unmatched", Agent;
    /// Too many traps wait for their TrapRepress.
    TrapQueueFull = 31, "drop_trap_queue_full", Agent;
    /// The session's node went away while the MAD was on its way.
    SessionGone = 32, "drop_session_gone", Egress;
    /// The pinned path is broken and the route says to drop.
    RouteBroken = 33, "drop_route_broken", DrTable;
    /// The tenant of the sending session may not use this management class.
    TenantClass = 34, "drop_tenant_class", Acl;
    /// The tenant has no right to Get by SMP, nor to the answers.
    TenantSmpGet = 35, "drop_tenant_smp_get", Acl;
    /// The tenant has no right to Set by SMP.
    TenantSmpSet = 36, "drop_tenant_smp_set", Acl;
    /// The SMP is for a node, or along a path, that is not the tenant's.
    TenantScope = 37, "drop_tenant_scope", Acl;
    /// The P_Key of the GMP is none of the sending tenant's.
    TenantPKey = 38, "drop_tenant_p_key", PKey;
    /// The P_Key of the GMP matches none of the receiving tenant's.
    TenantReceiver = 39, "drop_tenant_receiver_p_key", PKey;
    /// The tenant sends more than its rate allows.
    TenantRate = 40, "drop_tenant_rate", Acl;
    /// The tenant of the session was deleted.
    TenantGone = 41, "drop_tenant_gone", Acl;
    /// The link to another plane is not up.
    LinkDown = 42, "drop_link_down", Egress;
    /// The transport of a link to another plane takes no more.
    LinkFull = 43, "drop_link_full", Egress;
    /// A tenant's request for a node of another plane: tenants end at their plane.
    LinkTenant = 44, "drop_link_tenant", Egress;
    /// The RDMA device is not open.
    DeviceDown = 45, "drop_device_down", Egress;
    /// The RDMA device takes no more.
    DeviceFull = 46, "drop_device_full", Egress;
    /// Too many requests to the RDMA device wait for their answers.
    DeviceRequests = 47, "drop_device_requests", Egress;
    /// An SMP for an RDMA device that has no queue pair 0.
    DeviceSmp = 48, "drop_device_smp", Egress;
    /// An answer from an RDMA device to a request that is over, or whose session is closed.
    DeviceUnmatched = 49, "drop_device_unmatched", Egress;
    /// A MAD to a LID that nobody has at an RDMA device on Ethernet.
    DeviceAddress = 50, "drop_device_address", Egress;
}

#[cfg(test)]
mod tests {
    use super::DropReason;
    use crate::stage::Stage;

    #[test]
    fn numbers_labels_and_stages_are_the_published_ones() {
        let published = [
            "0 drop_base_version classify",
            "1 drop_malformed classify",
            "2 drop_class_qp classify",
            "3 drop_arrival_port_down smi",
            "4 drop_permissive_lid dlid",
            "5 drop_not_our_lid dlid",
            "6 drop_hop_count smi",
            "7 drop_hop_pointer smi",
            "8 drop_relay_by_adapter smi",
            "9 drop_path_port smi",
            "10 drop_path_port_down smi",
            "11 drop_dlid_invalid dlid",
            "12 drop_multicast dlid",
            "13 drop_above_fdb_top dlid",
            "14 drop_no_route dlid",
            "15 drop_route_port dlid",
            "16 drop_route_loop dlid",
            "17 drop_route_port_down dlid",
            "18 drop_hop_limit dlid",
            "19 drop_m_key agent",
            "20 drop_p_key pkey",
            "21 drop_q_key agent",
            "22 drop_partition_enforcement pkey",
            "23 drop_sl_to_vl sl2vl",
            "24 drop_no_agent agent",
            "25 drop_no_transaction agent",
            "26 drop_session_full egress",
            "27 drop_shard_full egress",
            "28 drop_unknown_agent classify",
            "29 drop_sender_invalid classify",
            "30 drop_trap_repress_unmatched agent",
            "31 drop_trap_queue_full agent",
            "32 drop_session_gone egress",
            "33 drop_route_broken dr_table",
            "34 drop_tenant_class acl",
            "35 drop_tenant_smp_get acl",
            "36 drop_tenant_smp_set acl",
            "37 drop_tenant_scope acl",
            "38 drop_tenant_p_key pkey",
            "39 drop_tenant_receiver_p_key pkey",
            "40 drop_tenant_rate acl",
            "41 drop_tenant_gone acl",
            "42 drop_link_down egress",
            "43 drop_link_full egress",
            "44 drop_link_tenant egress",
            "45 drop_device_down egress",
            "46 drop_device_full egress",
            "47 drop_device_requests egress",
            "48 drop_device_smp egress",
            "49 drop_device_unmatched egress",
            "50 drop_device_address egress",
        ];
        let now = DropReason::ALL.iter().map(|r| format!("{} {} {}", *r as u8, r.label(), r.stage().label()));
        assert_eq!(now.collect::<Vec<_>>(), published);
    }

    #[test]
    fn every_stage_has_a_label_of_its_own_and_a_reason_to_drop() {
        let labels: std::collections::BTreeSet<_> = Stage::ALL.iter().map(|stage| stage.label()).collect();
        assert_eq!(labels.len(), Stage::ALL.len());
        for stage in Stage::ALL {
            assert!(DropReason::ALL.iter().any(|reason| reason.stage() == *stage), "{}", stage.label());
        }
    }

    #[test]
    fn ids_are_dense_and_in_order() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index, "{}", reason.label());
        }
    }

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<_> = DropReason::ALL.iter().map(|r| r.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), DropReason::ALL.len());
    }
}
