//! The names that the dynamic linker sees.
//!
//! Each `umad_*` name is one jump instruction in an assembly block, for a reason: symbols that rustc exports by itself
//! (`no_mangle`) go into its own anonymous version script and come out without a version, while these are left to
//! `libibumad.map`, which gives them the version nodes that programs were linked against. The replaced C library
//! functions are the opposite case, have no version node of ours, and are `no_mangle` in [`crate::interpose`].
//!
//! No code runs here, and nothing runs when the library is loaded.

/// Defines each name as a jump to the function.
macro_rules! exports {
    ($($name:literal => $function:path;)*) => {
        $(
            core::arch::global_asm!(
                ".pushsection .text.umad_exports,\"ax\",@progbits",
                concat!(".globl ", $name),
                concat!(".type ", $name, ",@function"),
                concat!($name, ":"),
                ".cfi_startproc",
                jump!(),
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                function = sym $function,
            );
        )*
        /// All names, in the order above.
        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),*];
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

exports! {
    "umad_init" => crate::device::init;
    "umad_done" => crate::device::done;
    "umad_get_cas_names" => crate::device::get_cas_names;
    "umad_get_ca_portguids" => crate::device::get_ca_portguids;
    "umad_get_ca" => crate::device::get_ca;
    "umad_release_ca" => crate::device::release_ca;
    "umad_get_port" => crate::device::get_port;
    "umad_release_port" => crate::device::release_port;
    "umad_get_issm_path" => crate::device::get_issm_path;
    "umad_get_ca_device_list" => crate::device::get_ca_device_list;
    "umad_free_ca_device_list" => crate::device::free_ca_device_list;
    "umad_sort_ca_device_list" => crate::device::sort_ca_device_list;
    "umad_get_smi_gsi_pairs" => crate::device::get_smi_gsi_pairs;
    "umad_get_smi_gsi_pair_by_ca_name" => crate::device::get_smi_gsi_pair_by_ca_name;
    "umad_open_port" => crate::ports::open_port;
    "umad_open_smi_port" => crate::ports::open_port;
    "umad_close_port" => crate::ports::close_port;
    "umad_get_fd" => crate::ports::get_fd;
    "umad_get_mad" => crate::address::get_mad;
    "umad_get_mad_addr" => crate::address::get_mad_addr;
    "umad_size" => crate::address::size;
    "umad_status" => crate::address::status;
    "umad_set_addr" => crate::address::set_addr;
    "umad_set_addr_net" => crate::address::set_addr_net;
    "umad_set_grh" => crate::address::set_grh;
    "umad_set_pkey" => crate::address::set_pkey;
    "umad_get_pkey" => crate::address::get_pkey;
    "umad_send" => crate::mad::send;
    "umad_recv" => crate::mad::recv;
    "umad_poll" => crate::mad::poll;
    "umad_register" => crate::agent::register;
    "umad_register2" => crate::agent::register2;
    "umad_register_oui" => crate::agent::register_oui;
    "umad_unregister" => crate::agent::unregister;
    "umad_debug" => crate::dump::debug;
    "umad_addr_dump" => crate::dump::addr_dump;
    "umad_dump" => crate::dump::dump;
    "umad_class_str" => crate::text::class_str;
    "umad_method_str" => crate::text::method_str;
    "umad_attribute_str" => crate::text::attribute_str;
    "umad_common_mad_status_str" => crate::text::common_mad_status_str;
    "umad_sa_mad_status_str" => crate::text::sa_mad_status_str;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_version_script_lists_exactly_the_defined_names() {
        let map = include_str!("../libibumad.map");
        let listed: BTreeSet<&str> = map
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("umad_"))
            .map(|line| line.trim_end_matches(';'))
            .collect();
        let defined: BTreeSet<&str> = super::NAMES.iter().copied().collect();
        assert_eq!(listed, defined);
        assert_eq!(defined.len(), super::NAMES.len());
        assert_eq!(defined.len(), 42);
    }
}
