/* test_info_rdma.c -- the doctor's lines on RDMA, of a /sys that the test writes. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tools/info/info.h"

static char root[] = "/tmp/rubato-rdma-XXXXXX";

static void write_bytes(const char *file, const void *bytes, size_t size_bytes)
{
	char path[400];
	FILE *out;

	(void)snprintf(path, sizeof(path), "%s/%s", root, file);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
	out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(fwrite(bytes, 1, size_bytes, out), size_bytes);
	ck_assert_int_eq(fclose(out), 0);
}

static void write_line(const char *file, const char *text)
{
	char line[128];

	write_bytes(file, line, (size_t)snprintf(line, sizeof(line), "%s\n", text));
}

static void port_is(const char *state, const char *layer)
{
	write_line("class/infiniband/mlx5_0/ports/1/state", state);
	write_line("class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)");
	write_line("class/infiniband/mlx5_0/ports/1/link_layer", layer);
	write_line("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2");
}

static void gid_is(unsigned index, const char *gid, const char *type)
{
	char file[96];

	(void)snprintf(file, sizeof(file), "class/infiniband/mlx5_0/ports/1/gids/%u", index);
	write_line(file, gid);
	(void)snprintf(file, sizeof(file), "class/infiniband/mlx5_0/ports/1/gid_attrs/types/%u",
		       index);
	write_line(file, type);
}

/* "ok 1: ...": the doctor's line of that name; NULL: it has none. The caller frees it. */
static char *line_of(const char *check)
{
	struct info info = { .json = json_object() };
	char *text = NULL;
	json_t *one;
	size_t i;

	json_object_set_new(info.json, "doctor", json_array());
	info_rdma(&info, root);
	json_array_foreach(json_object_get(info.json, "doctor"), i, one)
	{
		if (strcmp(json_string_value(json_object_get(one, "check")), check) != 0)
			continue;
		ck_assert_ptr_null(text);
		text = calloc(1, 600);
		(void)snprintf(text, 600, "%s %s",
			       json_string_value(json_object_get(one, "result")),
			       json_string_value(json_object_get(one, "text")));
	}
	ck_assert_uint_eq(info.failures, 0); /* RDMA is never needed. */
	json_decref(info.json);
	return text;
}

static void expect(const char *check, const char *begins)
{
	char *text = line_of(check);

	ck_assert_msg((text == NULL) == (begins == NULL), "%s: %s", check, text);
	if (begins != NULL)
		ck_assert_msg(strncmp(text, begins, strlen(begins)) == 0, "%s: %s, not %s", check,
			      text, begins);
	free(text);
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static void teardown(void)
{
	char command[100];

	(void)snprintf(command, sizeof(command), "rm -r '%s'", root);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(ucx_is_asked_what_it_may_use)
{
	static const char *const cases[][3] = {
		{ NULL, NULL, "ok UCX may use it" },
		{ "all", "all", "ok UCX may use it; UCX_NET_DEVICES=all" },
		{ "eth0,mlx5_0:1", "rc_v,self", "ok UCX may use it" },
		{ "^eth0", "^rc,tcp", "ok UCX may use it" },
		{ "eth0", NULL, "warn UCX_NET_DEVICES=eth0 leaves it unused" },
		{ "mlx5_0", NULL, "warn UCX_NET_DEVICES=mlx5_0 leaves it unused" },
		{ "^mlx5_0:1", NULL, "warn UCX_NET_DEVICES=^mlx5_0:1 leaves it unused" },
		{ NULL, "tcp,self", "warn UCX_TLS=tcp,self leaves it unused" },
		{ NULL, "^ib", "warn UCX_TLS=^ib leaves it unused" },
	};

	port_is("4: ACTIVE", "InfiniBand");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)unsetenv("UCX_NET_DEVICES");
		(void)unsetenv("UCX_TLS");
		if (cases[i][0] != NULL)
			ck_assert_int_eq(setenv("UCX_NET_DEVICES", cases[i][0], 1), 0);
		if (cases[i][1] != NULL)
			ck_assert_int_eq(setenv("UCX_TLS", cases[i][1], 1), 0);
		expect("mlx5_0:1 UCX", cases[i][2]);
	}
	port_is("1: DOWN", "InfiniBand");
	expect("mlx5_0:1 UCX", NULL);
}
END_TEST

START_TEST(no_device)
{
	expect("RDMA", "ok no device");
	expect("peermem", NULL);
	expect("mlx5_0:1", NULL);
}
END_TEST

START_TEST(states_of_ports)
{
	port_is("1: DOWN", "Ethernet");
	expect("mlx5_0:1", "warn 1: DOWN, Ethernet, 100 Gb/sec (4X EDR): not used; cable and "
			   "switch, or ip link set up eth2");
	expect("mlx5_0:1 GID", NULL); /* It would be of no use. */
	port_is("2: INIT", "InfiniBand");
	expect("mlx5_0:1",
	       "warn 2: INIT, InfiniBand, 100 Gb/sec (4X EDR): not used; cable, switch, "
	       "subnet manager");
	port_is("4: ACTIVE", "InfiniBand");
	expect("mlx5_0:1", "ok 4: ACTIVE, InfiniBand");
	expect("mlx5_0:1 GID", NULL); /* It has a LID. */
	expect("RDMA", NULL);
}
END_TEST

START_TEST(addresses_of_ports)
{
	port_is("4: ACTIVE", "Ethernet");
	expect("mlx5_0:1 GID", "warn none: give eth2 an address");
	gid_is(0, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2");
	expect("mlx5_0:1 GID", "warn none");
	gid_is(0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1");
	expect("mlx5_0:1 GID", "warn 0: fe80:0000:0000:0000:0e42:a1ff:fe00:0001 (RoCE v1 only");
	gid_is(1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2");
	expect("mlx5_0:1 GID", "warn 1: fe80:0000:0000:0000:0e42:a1ff:fe00:0001 (RoCE v2, of this "
			       "link alone): peers elsewhere need an IPv4 address on eth2");
	gid_is(4, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2");
	expect("mlx5_0:1 GID", "ok 4: 2001:");
	gid_is(2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1");
	expect("mlx5_0:1 GID", "ok 4: 2001:");
	gid_is(3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2");
	expect("mlx5_0:1 GID", "ok 3: 0000:0000:0000:0000:0000:ffff:0a00:0001 (RoCE v2, IPv4)");
}
END_TEST

START_TEST(units_of_ports)
{
	static const char *const says[][2] = {
		{ "1500", "warn 1024, of 1500 of eth2: 4096 needs, on the whole way, ip link set "
			  "eth2 mtu 4200" },
		{ "1000", "warn 512, of 1000" },
		{ "4191", "warn 2048, of 4191" },
		{ "4192", "ok 4096, of 4192 of eth2" },
		{ "9000", "ok 4096, of 9000 of eth2" },
	};

	port_is("4: ACTIVE", "Ethernet");
	expect("mlx5_0:1 MTU", NULL); /* Not known. */
	for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
		write_line("class/net/eth2/mtu", says[i][0]);
		expect("mlx5_0:1 MTU", says[i][1]);
	}
}
END_TEST

START_TEST(device_memory)
{
	port_is("4: ACTIVE", "InfiniBand");
	expect("peermem", "ok not loaded, and no NVIDIA driver either");
	write_line("module/nvidia/initstate", "live");
	expect("peermem", "warn not loaded: device memory goes by dma-buf or through the host; "
			  "modprobe nvidia_peermem");
	write_line("module/nvidia_peermem/initstate", "live");
	expect("peermem", "ok nvidia_peermem is loaded");
}
END_TEST

START_TEST(order_of_writes)
{
	static const char file[] = "class/infiniband/mlx5_0/device/config";
	uint8_t config[256] = { [0x34] = 0x40, [0x40] = 0x01, [0x41] = 0x60, [0x60] = 0x10 };

	port_is("4: ACTIVE", "InfiniBand");
	expect("mlx5_0 PCI", NULL);
	write_bytes(file, config, 64);
	expect("mlx5_0 PCI", "ok relaxed ordering: not known, only root may read it");
	write_bytes(file, config, sizeof(config));
	expect("mlx5_0 PCI", "ok relaxed ordering not allowed by the system");
	config[0x68] = 0x10;
	write_bytes(file, config, sizeof(config));
	expect("mlx5_0 PCI", "ok relaxed ordering allowed");
	config[0x41] = 0x40; /* In a circle. */
	write_bytes(file, config, sizeof(config));
	expect("mlx5_0 PCI", "ok relaxed ordering: not known");
	config[0x40] = 0x10;
	config[0x34] = 0xfc; /* At the end, and beyond. */
	config[0xfc] = 0x10;
	write_bytes(file, config, sizeof(config));
	expect("mlx5_0 PCI", "ok relaxed ordering: not known");
}
END_TEST

/* The last one: what is refused stays so. */
START_TEST(memory_that_is_watched)
{
#ifndef RB_HAVE_USERFAULTFD
	port_is("4: ACTIVE", "InfiniBand");
	expect("userfaultfd", "warn built without it: each message of plain memory");
#else
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(lines) / sizeof(lines[0]), lines };
	long fd = syscall(SYS_userfaultfd, 1);

	expect("userfaultfd", NULL);
	port_is("4: ACTIVE", "InfiniBand");
	if (fd >= 0) /* Of this kernel. */
		expect("userfaultfd", "ok registrations of plain memory");
	if (fd >= 0)
		(void)close((int)fd);
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
		return; /* A machine without filters. */
	expect("userfaultfd", "warn Operation not permitted: each message of plain memory");
#endif
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rubato-info, RDMA");
	TCase *tc = tcase_create("lines");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, no_device);
	tcase_add_test(tc, ucx_is_asked_what_it_may_use);
	tcase_add_test(tc, states_of_ports);
	tcase_add_test(tc, addresses_of_ports);
	tcase_add_test(tc, units_of_ports);
	tcase_add_test(tc, device_memory);
	tcase_add_test(tc, order_of_writes);
	tcase_add_test(tc, memory_that_is_watched);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
