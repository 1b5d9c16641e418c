//! The device functions: which devices there are, and what they look like right now.
//!
//! Runs on the caller's thread and asks the plane anew at every call, as the original reads sysfs anew. There is one device
//! or, with no plane running, none. What is returned in pointers comes from `calloc`, because programs free some of it by
//! themselves. Not done here: SMPs ([`crate::query`]), files ([`crate::tree`]).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::abi::{Ca, CaPair, DeviceNode, Port};
use crate::facts::{self, HIGHEST_PORT, Node};
use crate::guard::{guarded, negative};
use crate::plane::{self, Settings};
use crate::{query, tree};

/// Why a device or port cannot be had: an errno.
pub(crate) type Refusal = c_int;

/// The settings, if `ca_name` is null or names the device.
pub(crate) fn device(ca_name: *const c_char) -> Result<&'static Settings, Refusal> {
    let settings = plane::settings().ok_or(libc::ENODEV)?;
    if ca_name.is_null() {
        return Ok(settings);
    }
    // SAFETY: not null, and the caller passes a C string.
    let name = unsafe { CStr::from_ptr(ca_name) };
    if name.to_bytes() == settings.device.as_bytes() { Ok(settings) } else { Err(libc::ENODEV) }
}

/// The port of `node` that a caller means by `portnum`, where 0 on an adapter means any.
pub(crate) fn resolve_port(settings: &Settings, node: &Node, portnum: c_int) -> Result<u8, Refusal> {
    let number = u8::try_from(portnum).map_err(|_| libc::ENODEV)?;
    if number == 0 && !node.is_switch() {
        let named = settings.named_port().filter(|named| node.port(*named).is_some());
        return named.or_else(|| node.default_port()).ok_or(libc::ENODEV);
    }
    node.port(number).map(|port| port.number).ok_or(libc::ENODEV)
}

/// Index that the kernel would give to the umad and issm device of this port of the node.
pub(crate) fn device_index(node_type: u8, port: u8) -> u8 {
    port - facts::port_numbers(node_type, HIGHEST_PORT).start()
}

/// A text as a C array: cut to fit, ended by NUL.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    array
}

/// Memory for `count` values of `T`, all bytes 0; null if there is none.
fn allocate<T>(count: usize) -> *mut T {
    // SAFETY: calloc may be called with any numbers.
    unsafe { libc::calloc(count.max(1), size_of::<T>()) }.cast()
}

fn release<T>(memory: *mut T) {
    // SAFETY: callers pass what allocate gave, or null, once.
    unsafe { libc::free(memory.cast()) };
}

/// Writes `value` to memory of the caller, which is not null.
fn put<T>(place: *mut T, value: T) {
    debug_assert!(!place.is_null(), "checked by the caller");
    // SAFETY: not null, and the caller of the C function owns memory for one value there.
    unsafe { place.write_unaligned(value) };
}

fn port_struct(node: &Node, number: u8, name: &str) -> Result<Port, Refusal> {
    let port = node.port(number).ok_or(libc::ENODEV)?;
    let info = &port.info;
    let pkeys = allocate::<u16>(port.p_keys.len());
    if pkeys.is_null() {
        return Err(libc::ENOMEM);
    }
    for (index, key) in port.p_keys.iter().enumerate() {
        put(pkeys.wrapping_add(index), *key);
    }
    Ok(Port {
        ca_name: chars(name),
        portnum: c_int::from(number),
        base_lid: u32::from(info.lid),
        lmc: u32::from(info.lmc),
        sm_lid: u32::from(info.master_sm_lid),
        sm_sl: u32::from(info.master_sm_sl),
        state: u32::from(info.port_state),
        phys_state: u32::from(info.port_phys_state),
        rate: port.gigabits(),
        capmask: info.cap_mask.to_be(),
        gid_prefix: info.gid_prefix.to_be(),
        port_guid: port.guid.to_be(),
        pkeys_size: u32::try_from(port.p_keys.len()).map_err(|_| libc::EIO)?,
        pkeys,
        link_layer: chars(port.link_layer()),
    })
}

fn ca_struct(node: &Node, name: &str) -> Result<Ca, Refusal> {
    let mut ca = Ca {
        ca_name: chars(name),
        node_type: u32::from(node.info.node_type),
        numports: node.ports.last().map_or(0, |port| c_int::from(port.number)),
        fw_ver: chars(tree::firmware(node)),
        ca_type: chars(tree::ca_type(node)),
        hw_ver: chars(&tree::hardware_version(node)),
        node_guid: node.info.node_guid.to_be(),
        system_guid: node.info.system_image_guid.to_be(),
        ports: [ptr::null_mut(); crate::abi::CA_MAX_PORTS],
    };
    for port in &node.ports {
        let filled = port_struct(node, port.number, name).and_then(|port| {
            let place = allocate::<Port>(1);
            if place.is_null() {
                release(port.pkeys);
                return Err(libc::ENOMEM);
            }
            put(place, port);
            Ok(place)
        });
        match (filled, ca.ports.get_mut(usize::from(port.number))) {
            (Ok(filled), Some(place)) => *place = filled,
            (filled, _) => {
                free_ports(&ca);
                return Err(filled.err().unwrap_or(libc::EIO));
            }
        }
    }
    Ok(ca)
}

fn free_ports(ca: &Ca) {
    for port in ca.ports.into_iter().filter(|port| !port.is_null()) {
        // SAFETY: not null, and ca_struct put a port there.
        release(unsafe { port.read_unaligned() }.pkeys);
        release(port);
    }
}

/// 0 or a negative errno, with errno set.
fn outcome(result: Result<c_int, Refusal>) -> c_int {
    result.unwrap_or_else(negative)
}

/// `umad_init`: nothing to do.
pub(crate) extern "C" fn init() -> c_int {
    0
}

/// `umad_done`: nothing to do.
pub(crate) extern "C" fn done() -> c_int {
    0
}

/// `umad_get_cas_names`: the names of the devices.
pub(crate) extern "C" fn get_cas_names(cas: *mut [c_char; crate::abi::CA_NAME_LEN], max: c_int) -> c_int {
    guarded(0, || {
        let Some(settings) = plane::settings() else { return 0 };
        if cas.is_null() || max < 1 || plane::locate(settings).is_err() {
            return 0;
        }
        put(cas, chars(&settings.device));
        1
    })
}

/// `umad_get_ca_portguids`: port GUIDs by port number, network order.
pub(crate) extern "C" fn get_ca_portguids(ca_name: *const c_char, portguids: *mut u64, max: c_int) -> c_int {
    guarded(-libc::EIO, || {
        outcome(device(ca_name).and_then(query::read_node).and_then(|node| {
            if portguids.is_null() {
                return Ok(0);
            }
            let count = node.ports.last().map_or(1, |port| usize::from(port.number) + 1);
            if usize::try_from(max).is_ok_and(|max| max < count) || max < 0 {
                return Err(libc::ENOMEM);
            }
            for number in 0..count {
                let port = u8::try_from(number).ok().and_then(|number| node.port(number));
                put(portguids.wrapping_add(number), port.map_or(0, |port| port.guid.to_be()));
            }
            Ok(c_int::try_from(count).unwrap_or(0))
        }))
    })
}

/// `umad_get_ca`: the device, to be given back with `umad_release_ca`.
pub(crate) extern "C" fn get_ca(ca_name: *const c_char, ca: *mut Ca) -> c_int {
    guarded(-libc::EIO, || {
        outcome(device(ca_name).and_then(|settings| {
            if ca.is_null() {
                return Err(libc::EINVAL);
            }
            put(ca, ca_struct(&query::read_node(settings)?, &settings.device)?);
            Ok(0)
        }))
    })
}

/// `umad_release_ca`.
pub(crate) extern "C" fn release_ca(ca: *mut Ca) -> c_int {
    guarded(-libc::EIO, || {
        if ca.is_null() {
            return negative(libc::ENODEV);
        }
        // SAFETY: not null, and the caller passes what umad_get_ca filled.
        let mut held = unsafe { ca.read_unaligned() };
        free_ports(&held);
        held.ports = [ptr::null_mut(); crate::abi::CA_MAX_PORTS];
        put(ca, held);
        0
    })
}

/// `umad_get_port`: one port, to be given back with `umad_release_port`.
pub(crate) extern "C" fn get_port(ca_name: *const c_char, portnum: c_int, port: *mut Port) -> c_int {
    guarded(-libc::EIO, || {
        outcome(device(ca_name).and_then(|settings| {
            if port.is_null() {
                return Err(libc::EINVAL);
            }
            let node = query::read_node(settings)?;
            let number = resolve_port(settings, &node, portnum)?;
            put(port, port_struct(&node, number, &settings.device)?);
            Ok(0)
        }))
    })
}

/// `umad_release_port`.
pub(crate) extern "C" fn release_port(port: *mut Port) -> c_int {
    guarded(-libc::EIO, || {
        if port.is_null() {
            return negative(libc::ENODEV);
        }
        // SAFETY: not null, and the caller passes what umad_get_port filled.
        let mut held = unsafe { port.read_unaligned() };
        release(held.pkeys);
        (held.pkeys, held.pkeys_size) = (ptr::null_mut(), 0);
        put(port, held);
        0
    })
}

/// `umad_get_issm_path`: the node whose opening sets IsSM.
pub(crate) extern "C" fn get_issm_path(
    ca_name: *const c_char,
    portnum: c_int,
    path: *mut c_char,
    max: c_int,
) -> c_int {
    guarded(-libc::EIO, || {
        outcome(device(ca_name).and_then(|settings| {
            let room = usize::try_from(max).unwrap_or(0);
            if path.is_null() || room == 0 {
                return Err(libc::EINVAL);
            }
            let node = query::read_node(settings)?;
            let number = resolve_port(settings, &node, portnum)?;
            let text: [c_char; 32] =
                chars(&format!("/dev/infiniband/issm{}", device_index(node.info.node_type, number)));
            let length = text.iter().position(|c| *c == 0).unwrap_or(0).min(room - 1);
            for (index, c) in text.into_iter().take(length).chain([0]).enumerate() {
                put(path.wrapping_add(index), c);
            }
            Ok(0)
        }))
    })
}

/// `umad_get_ca_device_list`: the devices as a list, to be given back with `umad_free_ca_device_list`.
pub(crate) extern "C" fn get_ca_device_list() -> *mut DeviceNode {
    guarded(ptr::null_mut(), || {
        let Some(settings) = plane::settings() else { return ptr::null_mut() };
        if plane::locate(settings).is_err() {
            return ptr::null_mut();
        }
        let entry = allocate::<DeviceNode>(1);
        let name = allocate::<[c_char; crate::abi::CA_NAME_LEN]>(1);
        if entry.is_null() || name.is_null() {
            release(entry);
            release(name);
            crate::guard::set_errno(libc::ENOMEM);
            return ptr::null_mut();
        }
        put(name, chars(&settings.device));
        put(entry, DeviceNode { next: ptr::null_mut(), ca_name: name.cast() });
        entry
    })
}

/// The entries of a device list, and where each is.
fn entries(head: *mut DeviceNode) -> Vec<(*mut DeviceNode, DeviceNode)> {
    let mut list = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: not null, and a list of umad_get_ca_device_list has valid entries.
        let entry = unsafe { at.read() };
        list.push((at, entry));
        at = entry.next;
    }
    list
}

/// `umad_free_ca_device_list`.
pub(crate) extern "C" fn free_ca_device_list(head: *mut DeviceNode) {
    guarded((), || {
        for (place, entry) in entries(head) {
            release(entry.ca_name.cast_mut());
            release(place);
        }
    });
}

/// `umad_sort_ca_device_list`: sorts by name.
pub(crate) extern "C" fn sort_ca_device_list(head: *mut *mut DeviceNode, _size: usize) -> c_int {
    guarded(-libc::EIO, || {
        if head.is_null() {
            return negative(libc::EINVAL);
        }
        // SAFETY: not null, and the caller passes the head of a list.
        let mut list = entries(unsafe { head.read() });
        list.sort_by_key(|(_, entry)| {
            // SAFETY: names in a list are C strings.
            unsafe { CStr::from_ptr(entry.ca_name) }.to_owned()
        });
        let mut next = ptr::null_mut();
        for (place, entry) in list.into_iter().rev() {
            put(place, DeviceNode { next, ..entry });
            next = place;
        }
        put(head, next);
        0
    })
}

fn pair(settings: &Settings, portnum: c_int) -> Result<CaPair, Refusal> {
    let node = query::read_node(settings)?;
    let port = u32::from(resolve_port(settings, &node, portnum)?);
    let name = chars(&settings.device);
    Ok(CaPair { smi_name: name, smi_preferred_port: port, gsi_name: name, gsi_preferred_port: port })
}

/// `umad_get_smi_gsi_pairs`: the device carries both.
pub(crate) extern "C" fn get_smi_gsi_pairs(cas: *mut CaPair, max: usize) -> c_int {
    guarded(-libc::EIO, || {
        if cas.is_null() || max == 0 {
            return 0;
        }
        outcome(device(ptr::null()).and_then(|settings| pair(settings, 0)).map(|pair| {
            put(cas, pair);
            1
        }))
    })
}

/// `umad_get_smi_gsi_pair_by_ca_name`: the device carries both, whether SMPs are demanded or not.
pub(crate) extern "C" fn get_smi_gsi_pair_by_ca_name(
    ca_name: *const c_char,
    portnum: u8,
    ca: *mut CaPair,
    _enforce_smi: std::ffi::c_uint,
) -> c_int {
    guarded(-libc::EIO, || {
        outcome(device(ca_name).and_then(|settings| {
            if ca.is_null() {
                return Err(libc::EINVAL);
            }
            put(ca, pair(settings, c_int::from(portnum))?);
            Ok(0)
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::two_port_adapter;

    fn text(array: &[c_char]) -> String {
        let bytes: Vec<u8> = array.iter().map(|c| c.to_ne_bytes()[0]).take_while(|b| *b != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_ca_is_filled_in_network_order_and_released_whole() {
        let node = two_port_adapter();
        let mut ca = ca_struct(&node, "mlx5_0").unwrap();
        assert_eq!((ca.numports, ca.node_type), (2, 1));
        assert_eq!(u64::from_be(ca.node_guid), node.info.node_guid);
        assert_eq!((text(&ca.ca_type), text(&ca.fw_ver)), ("madplane".to_owned(), "1.0.0".to_owned()));
        assert!(ca.ports[0].is_null() && ca.ports[3].is_null());
        // SAFETY: ca_struct filled entry 2.
        let port = unsafe { *ca.ports[2] };
        assert_eq!((port.base_lid, port.lmc, port.sm_lid, port.sm_sl), (0x12, 3, 1, 2));
        assert_eq!((port.state, port.phys_state, port.rate), (4, 5, 40));
        assert_eq!(port.capmask.to_ne_bytes(), [0x02, 0x51, 0x48, 0x68]);
        assert_eq!(u64::from_be(port.gid_prefix), 0xfe80_0000_0000_0000);
        assert_eq!(port.pkeys_size, 4);
        // SAFETY: four keys, as the line above says.
        assert_eq!(unsafe { port.pkeys.cast::<[u16; 4]>().read() }, [0xffff, 5, 0, 0]);
        assert_eq!(text(&port.link_layer), "InfiniBand");
        assert_eq!(release_ca(&raw mut ca), 0);
        assert!(ca.ports.iter().all(|port| port.is_null()));
        assert_eq!(release_ca(&raw mut ca), 0, "a second time finds nothing to free");
    }

    #[test]
    fn port_0_of_an_adapter_means_any_and_missing_ports_are_enodev() {
        let settings = plane::tests::settings_at("");
        let node = two_port_adapter();
        assert_eq!(resolve_port(&settings, &node, 0), Ok(2));
        assert_eq!(resolve_port(&settings, &node, 1), Ok(1));
        for missing in [3, 9, -1, 256] {
            assert_eq!(resolve_port(&settings, &node, missing), Err(libc::ENODEV));
        }
        assert_eq!(
            resolve_port(&plane::tests::settings_at("host-7:1"), &node, 0),
            Ok(1),
            "named by MADPLANE_AT"
        );
    }

    #[test]
    fn device_indices_count_the_ports_from_0() {
        assert_eq!(device_index(1, 1), 0);
        assert_eq!(device_index(1, 2), 1);
        assert_eq!(device_index(2, 0), 0);
    }

    #[test]
    fn a_device_list_is_sorted_by_name_and_freed() {
        let node = |name: &str, next| {
            let entry = allocate::<DeviceNode>(1);
            let place = allocate::<[c_char; 20]>(1);
            put(place, chars(name));
            put(entry, DeviceNode { next, ca_name: place.cast() });
            entry
        };
        let mut head = node("c", node("a", node("b", ptr::null_mut())));
        assert_eq!(sort_ca_device_list(&raw mut head, 3), 0);
        let names: Vec<String> = entries(head)
            .into_iter()
            // SAFETY: entries of the list above.
            .map(|(_, entry)| unsafe { CStr::from_ptr(entry.ca_name) }.to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
        free_ca_device_list(head);
    }
}
