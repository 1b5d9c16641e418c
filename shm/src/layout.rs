//! The layout as text: every struct, field, offset and size, and every number that travels.
//!
//! `tests/layout.rs` compares the listing with `tests/golden/layout.txt` byte for byte, and `scripts/check-layout` refuses a
//! change of that file without a new [`LAYOUT_VERSION`].

use std::fmt::Write;
use std::mem::offset_of;

use crate::command::{Command, Event};
use crate::counters::Counter;
use crate::drop_reason::DropReason;
use crate::errors::ErrorRecord;
use crate::handoff::{Reply, Request};
use crate::header::{MAGIC, SegmentHeader};
use crate::message::{Envelope, MadMessage};
use crate::ring::{ITEM_BYTES, SLOT_BYTES};
use crate::route_counters::RouteUse;
use crate::session::{CONSUMED_AT, SLEEP_AT, SLOTS_AT};
use crate::status::{DeviceRecord, LinkRecord, PlaneBlock, SessionRecord, WorkerBlock};
use crate::table::tenant::TenantRecord;
use crate::table::{BankHeader, GenerationLine, RouteRecord, TableControl};
use crate::{LAYOUT_VERSION, handoff, status, table, tuning};

macro_rules! fields {
    ($out:ident, $name:ident: $($field:ident)*) => {{
        let (size, align) = (size_of::<$name>(), align_of::<$name>());
        let _ = writeln!($out, "{} size {size} align {align}", stringify!($name));
        $( let _ = writeln!($out, "  {:>5} {}", offset_of!($name, $field), stringify!($field)); )*
    }};
}

/// Lists the layout of this build.
pub fn listing() -> String {
    let mut out = String::new();
    let _ = writeln!(out, "layout version {LAYOUT_VERSION}");
    let _ = writeln!(out, "magic {MAGIC:#018x} handoff {:#010x}", handoff::HANDOFF_MAGIC);
    let _ = writeln!(out, "slot {SLOT_BYTES} item {ITEM_BYTES}");
    let _ = writeln!(out, "pair consumed {CONSUMED_AT} sleep {SLEEP_AT} slots {SLOTS_AT}");
    let _ = writeln!(out, "status {}", status::placement());
    let _ = writeln!(out, "{}", table::placement());
    crate::header::list_fields(&mut out);
    fields!(out, Envelope: kind flags agent slid dlid sl path_bits p_key_index src_qp dst_qp q_key flow_label
        gid_index hop_limit traffic_class reserved gid length);
    fields!(out, MadMessage: envelope mad);
    fields!(out, Request: magic version op flags value qpn mgmt_class class_version rmpp_version method_mask oui
        reserved selector tenant reserved2);
    fields!(out, Reply: magic version status value node_guid port_guid system_image_guid port node_type num_ports
        kind worker_cpu text reserved2);
    fields!(out, Command: id kind value selector path_len flags reserved);
    fields!(out, Event: id kind status node_guid value port text reserved);
    fields!(out, PlaneBlock: state workers heartbeat_ns started_unix_ns startup_ns nodes switches links sessions
        default_node_guid default_port session_slots huge_pages mode own_huge_bytes session_huge_bytes
        fabric program);
    fields!(out, WorkerBlock: heartbeat_ns cpu thread polls_empty polls_full busy_ns total_ns longest_cycle_ns
        stalls sessions nodes applied_generation applied_ns table_retries table_refused counters drops
        cycles tuning mode shares_core moderation_us moderation_pkts slept_ns);
    fields!(out, SessionRecord: id pid uid port node_guid since_unix_ns received sent dropped agents worker
        program node tenant class tenant_name path_len path_on_broken path);
    fields!(out, LinkRecord: state port node_guid peer_guid peer_port worker sent received lost repeated late
        keep_alives_sent keep_alives_received ups downs round_trip_ns oversized overflowed refused_peers refused node spec
        transport);
    fields!(out, DeviceRecord: state flags port worker node_guid lid backend sent received timed_out refused pinned requests
        ups downs since_unix_ns name spec why);
    fields!(out, ErrorRecord: count first_unix_ns last_unix_ns text);
    fields!(out, GenerationLine: generation);
    fields!(out, TableControl: capacity_routes capacity_tenants journal_at journal_words bank_at bank_bytes
        tenant_journal_at tenant_journal_words tenant_bank_at tenant_bank_bytes sync_interval_ms sync_threshold
        publications failures tenants_shown);
    fields!(out, BankHeader: generation present journal_head check);
    fields!(out, RouteRecord: words);
    tuning::list_fields(&mut out);
    fields!(out, TenantRecord: words);
    crate::latency::list_fields(&mut out);
    fields!(out, RouteUse: packets bytes last_use_ns);
    let _ = writeln!(out, "SegmentHeader is {} bytes", size_of::<SegmentHeader>());
    for counter in Counter::ALL {
        let _ = writeln!(out, "counter {} {}", *counter as u8, counter.label());
    }
    for reason in DropReason::ALL {
        let _ = writeln!(out, "drop {} {}", *reason as u8, reason.label());
    }
    out
}

pub(crate) use fields;
