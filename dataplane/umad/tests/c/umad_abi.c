/*
 * Structure sizes and offsets of the installed <infiniband/umad.h> against the numbers that src/abi.rs asserts, and the
 * helper functions against the structures: what they write must be found where the header says.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/umad.h>
#include <infiniband/umad_str.h>
#include <infiniband/umad_types.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

SIZE(ib_mad_addr_t, 44);
AT(ib_mad_addr_t, qpn, 0);
AT(ib_mad_addr_t, qkey, 4);
AT(ib_mad_addr_t, lid, 8);
AT(ib_mad_addr_t, sl, 10);
AT(ib_mad_addr_t, path_bits, 11);
AT(ib_mad_addr_t, grh_present, 12);
AT(ib_mad_addr_t, gid_index, 13);
AT(ib_mad_addr_t, hop_limit, 14);
AT(ib_mad_addr_t, traffic_class, 15);
AT(ib_mad_addr_t, gid, 16);
AT(ib_mad_addr_t, flow_label, 32);
AT(ib_mad_addr_t, pkey_index, 36);
AT(ib_mad_addr_t, reserved, 38);

SIZE(ib_user_mad_t, 64);
AT(ib_user_mad_t, agent_id, 0);
AT(ib_user_mad_t, status, 4);
AT(ib_user_mad_t, timeout_ms, 8);
AT(ib_user_mad_t, retries, 12);
AT(ib_user_mad_t, length, 16);
AT(ib_user_mad_t, addr, 20);
AT(ib_user_mad_t, data, 64);

SIZE(umad_port_t, 112);
AT(umad_port_t, portnum, 20);
AT(umad_port_t, base_lid, 24);
AT(umad_port_t, lmc, 28);
AT(umad_port_t, sm_lid, 32);
AT(umad_port_t, sm_sl, 36);
AT(umad_port_t, state, 40);
AT(umad_port_t, phys_state, 44);
AT(umad_port_t, rate, 48);
AT(umad_port_t, capmask, 52);
AT(umad_port_t, gid_prefix, 56);
AT(umad_port_t, port_guid, 64);
AT(umad_port_t, pkeys_size, 72);
AT(umad_port_t, pkeys, 80);
AT(umad_port_t, link_layer, 88);

SIZE(umad_ca_t, 208);
AT(umad_ca_t, node_type, 20);
AT(umad_ca_t, numports, 24);
AT(umad_ca_t, fw_ver, 28);
AT(umad_ca_t, ca_type, 48);
AT(umad_ca_t, hw_ver, 88);
AT(umad_ca_t, node_guid, 112);
AT(umad_ca_t, system_guid, 120);
AT(umad_ca_t, ports, 128);

SIZE(struct umad_device_node, 16);
AT(struct umad_device_node, ca_name, 8);

SIZE(struct umad_reg_attr, 32);
AT(struct umad_reg_attr, mgmt_class_version, 1);
AT(struct umad_reg_attr, flags, 4);
AT(struct umad_reg_attr, method_mask, 8);
AT(struct umad_reg_attr, oui, 24);
AT(struct umad_reg_attr, rmpp_version, 28);

_Static_assert(UMAD_CA_NAME_LEN == 20, "name");
_Static_assert(UMAD_CA_MAX_PORTS == 10, "ports");
_Static_assert(UMAD_USER_RMPP == 1, "flag");

#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
			return 1;                                                         \
		}                                                                         \
	} while (0)

int main(void)
{
	unsigned char buffer[64 + 256];
	ib_user_mad_t *umad = (ib_user_mad_t *)buffer;
	ib_mad_addr_t grh;

	memset(buffer, 0xa5, sizeof(buffer));
	CHECK(umad_size() == sizeof(ib_user_mad_t));
	CHECK(umad_get_mad(umad) == umad->data);
	CHECK(umad_get_mad_addr(umad) == &umad->addr);

	CHECK(umad_set_addr(umad, 0x1234, 1, 3, 0x80010000) == 0);
	CHECK(umad->addr.lid == htobe16(0x1234));
	CHECK(umad->addr.qpn == htobe32(1));
	CHECK(umad->addr.sl == 3);
	CHECK(umad->addr.qkey == htobe32(0x80010000));
	CHECK(umad_set_addr_net(umad, htobe16(7), htobe32(1), 0, htobe32(5)) == 0);
	CHECK(umad->addr.lid == htobe16(7) && umad->addr.qkey == htobe32(5));

	CHECK(umad_set_pkey(umad, 3) == 0);
	CHECK(umad->addr.pkey_index == 3 && umad_get_pkey(umad) == 3);

	memset(&grh, 0, sizeof(grh));
	grh.gid[0] = 0xfe;
	grh.hop_limit = 64;
	grh.flow_label = 0x12345;
	CHECK(umad_set_grh(umad, &grh) == 0);
	CHECK(umad->addr.grh_present == 1);
	CHECK(umad->addr.gid[0] == 0xfe && umad->addr.hop_limit == 64);
	CHECK(umad->addr.flow_label == htobe32(0x12345));
	CHECK(umad_set_grh(umad, NULL) == 0 && umad->addr.grh_present == 0);

	umad->status = ETIMEDOUT;
	CHECK(umad_status(umad) == ETIMEDOUT);

	CHECK(strcmp(umad_class_str(UMAD_CLASS_SUBN_ADM), "SubnAdm") == 0);
	CHECK(strcmp(umad_class_str(0xee), "<unknown>") == 0);
	CHECK(strcmp(umad_method_str(UMAD_CLASS_SUBN_ADM, 0x12), "GetTable") == 0);
	CHECK(strcmp(umad_attribute_str(UMAD_CLASS_SUBN_LID_ROUTED, htobe16(0x15)), "PortInfo") == 0);
	CHECK(strcmp(umad_common_mad_status_str(htobe16(1)), "Busy") == 0);
	CHECK(strcmp(umad_sa_mad_status_str(htobe16(0x0300)), "No records") == 0);
	umad_dump(umad);
	umad_addr_dump(&umad->addr);
	puts("ok");
	return 0;
}
