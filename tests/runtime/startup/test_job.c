/* test_job.c -- which job a process belongs to: environment, secret file, id, host:port. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "runtime/startup/bootstrap.h"
#include "runtime/startup/endpoint.h"
#include "runtime/startup/interfaces.h"
#include "tests/check_main.h"

static struct rb_config config;
static struct rb_job job;
static bool found;

static void set(const char *rank, const char *size, const char *root, const char *secret_file)
{
	ck_assert_int_eq(clearenv(), 0);
	if (rank != NULL)
		ck_assert_int_eq(setenv("RUBATO_RANK", rank, 1), 0);
	if (size != NULL)
		ck_assert_int_eq(setenv("RUBATO_SIZE", size, 1), 0);
	if (root != NULL)
		ck_assert_int_eq(setenv("RUBATO_ROOT", root, 1), 0);
	if (secret_file != NULL)
		ck_assert_int_eq(setenv("RUBATO_SECRET_FILE", secret_file, 1), 0);
	ck_assert_int_eq(rb_config_read(&config), RUBATO_OK);
}

static void refused(const char *text)
{
	memset(&job, 0x5a, sizeof(job));
	ck_assert_int_eq(rb_job_from_environment(&config, &job, &found), RUBATO_ERR_ARGUMENT);
	ck_assert_msg(strstr(rubato_error_text(), text) != NULL, "\"%s\" lacks \"%s\"",
		      rubato_error_text(), text);
	ck_assert_uint_eq(job.rank, 0x5a5a5a5a);
}

START_TEST(nothing_set_is_a_job_of_one)
{
	set(NULL, NULL, NULL, NULL);
	ck_assert_int_eq(rb_job_from_environment(&config, &job, &found), RUBATO_OK);
	ck_assert(!found);
	ck_assert_uint_eq(job.rank_count, 1);
	ck_assert_int_eq(job.listener, -1);

	set("3", "4", "[::1]:4000", NULL);
	ck_assert_int_eq(rb_job_from_environment(&config, &job, &found), RUBATO_OK);
	ck_assert(found);
	ck_assert_uint_eq(job.rank, 3);
	ck_assert_uint_eq(job.rank_count, 4);
	ck_assert_str_eq(job.root, "[::1]:4000");
	ck_assert_uint_eq(job.secret_bytes, 0);
	ck_assert_int_eq(rubato_job_explain(NULL, 1), RUBATO_ERR_ARGUMENT);
}
END_TEST

START_TEST(incomplete_places_name_what_is_missing)
{
	set("0", NULL, NULL, NULL);
	refused("RUBATO_SIZE is not set, but RUBATO_RANK is");
	set(NULL, "2", NULL, NULL);
	refused("RUBATO_RANK is not set, but RUBATO_SIZE is");
	set(NULL, NULL, "a:1", NULL);
	refused("RUBATO_RANK is not set, but RUBATO_ROOT is");
	set("0", "2", NULL, NULL);
	refused("RUBATO_ROOT is not set");
	set("2", "2", "a:1", NULL);
	refused("RUBATO_RANK=2: with RUBATO_SIZE=2 ranks are 0 to 1");
	set("0", "2", "a", NULL);
	refused("the port is missing");
}
END_TEST

START_TEST(endpoints_are_host_and_port)
{
	static const char *const bad[] = { "",         ":1",       "a:",      "a:0",  "a:65536",
					   "a:b",      "::1:4000", "[]:4000", "a:1,", "a:123456",
					   "a:1,,b:2", "a: 1",     "a:-1",    "[::1]" };
	struct rb_endpoints e;

	ck_assert_int_eq(rb_endpoints_parse("node1:29400,[fd00::1]:1,10.0.0.1:65535", &e),
			 RUBATO_OK);
	ck_assert_uint_eq(e.count, 3);
	ck_assert_str_eq(e.items[0].host, "node1");
	ck_assert_str_eq(e.items[0].port, "29400");
	ck_assert_str_eq(e.items[1].host, "fd00::1");
	ck_assert_str_eq(e.items[2].port, "65535");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(rb_endpoints_parse(bad[i], &e) == RUBATO_ERR_ARGUMENT, "%s", bad[i]);
}
END_TEST

static void file_make(const char *path, const void *bytes, size_t size_bytes, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, size_bytes), (ssize_t)size_bytes);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	ck_assert_int_eq(close(fd), 0);
}

START_TEST(secret_files_are_private_and_of_some_length)
{
	char folder[] = "/tmp/rubato_test_job_XXXXXX", path[64], fifo[64], bytes[80];

	memset(bytes, 's', sizeof(bytes));
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/secret", folder);
	(void)snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);

	set("0", "2", "a:1", path);
	file_make(path, "sixteen bytes ..\n", 17, 0600);
	ck_assert_int_eq(rb_job_from_environment(&config, &job, &found), RUBATO_OK);
	ck_assert_uint_eq(job.secret_bytes, 16);
	ck_assert_mem_eq(job.secret, "sixteen bytes ..", 16);
	bytes[64] = '\n';
	file_make(path, bytes, 65, 0400);
	ck_assert_int_eq(rb_job_from_environment(&config, &job, &found), RUBATO_OK);
	ck_assert_uint_eq(job.secret_bytes, 64);
	ck_assert_int_eq(unlink(path), 0);

	bytes[64] = 's';
	file_make(path, bytes, 65, 0600);
	refused("more than 64 bytes, expected 16 to 64");
	ck_assert_ptr_null(strstr(rubato_error_text(), "ssss"));
	file_make(path, bytes, 80, 0600);
	refused("more than 64 bytes");
	file_make(path, "fifteen bytes .\n", 16, 0600);
	refused("fewer than 16 bytes");
	ck_assert_ptr_null(strstr(rubato_error_text(), "fifteen"));
	file_make(path, bytes, 32, 0640);
	refused("others than its owner may use it (mode 640): chmod 600");
	set("0", "2", "a:1", folder);
	refused("expected a regular file");
	set("0", "2", "a:1", fifo);
	refused("expected a regular file");
	ck_assert_int_eq(unlink(path), 0);
	set("0", "2", "a:1", path);
	ck_assert_int_eq(rb_job_from_environment(&config, &job, &found), RUBATO_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "No such file"));
	ck_assert_int_eq(unlink(fifo), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(ids_travel_undamaged_or_are_refused)
{
	rubato_id id, damaged;
	struct rb_job a, b;

	ck_assert_int_eq(rb_job_make_id(&id, ""), RUBATO_OK);
	ck_assert_int_eq(rb_job_from_id(&id, 1, 3, &a), RUBATO_OK);
	ck_assert_int_eq(rb_job_from_id(&id, 2, 3, &b), RUBATO_OK);
	ck_assert_uint_eq(a.rank, 1);
	ck_assert_uint_eq(a.rank_count, 3);
	ck_assert_int_eq(a.listener, -1);
	ck_assert_uint_eq(a.secret_bytes, 32);
	ck_assert_mem_eq(a.secret, b.secret, 32);
	ck_assert_mem_eq(a.nonce, b.nonce, 16);
	ck_assert_ptr_nonnull(strstr(a.root, "127.0.0.1:"));
	for (size_t i = 0; i < sizeof(id); i++) {
		damaged = id;
		damaged.bytes[i] ^= 1;
		ck_assert_int_ne(rb_job_from_id(&damaged, 1, 3, &a), RUBATO_OK);
	}
	ck_assert_int_eq(rb_job_from_id(&id, 3, 3, &a), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rb_job_from_id(&id, 0, 3, &a), RUBATO_OK);
	ck_assert_int_ge(a.listener, 0);
	ck_assert_int_eq(close(a.listener), 0);
	ck_assert_int_eq(rb_job_from_id(&id, 0, 3, &a), RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "used already"));
}
END_TEST

START_TEST(rank_0_is_in_the_process_that_made_the_id)
{
	rubato_id id;
	int status;

	ck_assert_int_eq(rb_job_make_id(&id, ""), RUBATO_OK);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(rb_job_from_id(&id, 0, 2, &job) == RUBATO_ERR_ARGUMENT &&
				      strstr(rubato_error_text(), "must join in the process") !=
					      NULL
			      ? 0
			      : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(rb_job_from_id(&id, 0, 2, &job), RUBATO_OK);
	ck_assert_int_eq(close(job.listener), 0);
}
END_TEST

START_TEST(interfaces_are_wanted_by_name_or_prefix)
{
	static const struct {
		const char *pattern, *name;
		bool wanted;
	} cases[] = {
		{ "", "eth0", true },
		{ "eth0", "eth0", true },
		{ "eth", "eth1", true },
		{ "eth1", "eth0", false },
		{ "ib,eth0", "eth0", true },
		{ "ib,eth0", "ib1", true },
		{ "ib,eth0", "lo", false },
		{ "^docker,lo", "eth0", true },
		{ "^docker,lo", "lo", false },
		{ "^docker,lo", "docker0", false },
		{ "mlx5_1:1", "mlx5_1:1", true },
		{ "mlx5_1:1", "mlx5_0:1", false },
		{ ",eth0", "lo", false },
		{ "^", "lo", true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_msg(rb_interface_wanted(cases[i].pattern, cases[i].name) ==
				      cases[i].wanted,
			      "%s of \"%s\"", cases[i].name, cases[i].pattern);
}
END_TEST

/* Makes DIR/DEVICE/ports/1/state. */
static void port_make(const char *dir, const char *device, const char *state)
{
	static const char *const below[] = { "", "/ports", "/ports/1" };
	char path[200];
	FILE *file;

	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s%s", dir, device, below[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	(void)snprintf(path, sizeof(path), "%s/%s/ports/1/state", dir, device);
	file = fopen(path, "w");
	ck_assert(file != NULL && fprintf(file, "%s\n", state) > 0);
	ck_assert_int_eq(fclose(file), 0);
}

/* `says`: "VARIABLE: PORTS", or empty. */
static void expect_left(const char *dir, const char *interface, const char *devices,
			const char *tls, const char *says)
{
	char ports[64], text[128] = "";
	const char *value, *name = rb_interfaces_ucx_leaves(dir, interface, devices, tls, &value,
							    ports, sizeof(ports));

	if (name != NULL)
		(void)snprintf(text, sizeof(text), "%s: %s", name, ports);
	ck_assert_str_eq(text, says);
}

START_TEST(active_rdma_that_ucx_is_kept_from_is_named)
{
	char dir[] = "/tmp/rubato-left-XXXXXX", command[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	expect_left(dir, "eth0", "eth0", "tcp", "");
	port_make(dir, "mlx5_0", "4: ACTIVE");
	port_make(dir, "mlx5_1", "1: DOWN");
	expect_left(dir, "", NULL, NULL, "");
	expect_left(dir, "eth0", NULL, NULL, "RUBATO_INTERFACE: mlx5_0:1");
	expect_left(dir, "^mlx5_0", NULL, NULL, "RUBATO_INTERFACE: mlx5_0:1");
	expect_left(dir, "eth0,mlx5_0:1", NULL, NULL, "");
	expect_left(dir, "mlx", NULL, NULL, "");
	expect_left(dir, "mlx", "eth0", NULL, ""); /* Ours goes before UCX's own. */
	expect_left(dir, "", "eth0", NULL, "UCX_NET_DEVICES: mlx5_0:1");
	expect_left(dir, "", "mlx5_0", NULL, "UCX_NET_DEVICES: mlx5_0:1"); /* Whole names. */
	expect_left(dir, "", "^mlx5_0:1", NULL, "UCX_NET_DEVICES: mlx5_0:1");
	expect_left(dir, "", "eth0,mlx5_0:1", NULL, "");
	expect_left(dir, "", "^eth0", NULL, "");
	expect_left(dir, "", "all", "all", "");
	expect_left(dir, "", NULL, "tcp,self", "UCX_TLS: mlx5_0:1");
	expect_left(dir, "mlx5_0:1", NULL, "sm", "UCX_TLS: mlx5_0:1");
	expect_left(dir, "", NULL, "^ib", "UCX_TLS: mlx5_0:1");
	expect_left(dir, "", NULL, "^rc,tcp", "");
	expect_left(dir, "", NULL, "rc_v,self", "");
	expect_left(dir, "", NULL, "ud", "");
	expect_left("/no/such", "eth0", "eth0", "tcp", "");
	(void)snprintf(command, sizeof(command), "rm -r '%s'", dir);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Not the loopback device of a pattern, which is there in any case, last. */
START_TEST(an_id_publishes_the_interfaces_that_are_wanted)
{
	struct rb_interface_address all[RB_INTERFACE_ADDRESSES_MAX];
	uint32_t count = rb_interface_addresses("lo", all, RB_INTERFACE_ADDRESSES_MAX);
	rubato_id id;

	ck_assert_uint_ge(count, 1);
	for (uint32_t i = 0; i < count; i++) {
		ck_assert(all[i].loopback);
		ck_assert_str_eq(all[i].name, "lo");
	}
	ck_assert_int_eq(rb_job_make_id(&id, "lo"), RUBATO_OK);
	ck_assert_int_eq(rb_job_from_id(&id, 1, 2, &job), RUBATO_OK);
	ck_assert_ptr_eq(strstr(job.root, "127.0.0.1:"), job.root);
}
END_TEST

START_TEST(ports_may_be_a_range)
{
	static const char *const bad[] = { "a:2-1", "a:1-17",        "a:1-",
					   "a:1-x", "a:65530-65536", "a:0-3" };
	struct rb_endpoints e;

	ck_assert_int_eq(rb_endpoints_parse("node-1:29501-29516", &e), RUBATO_OK);
	ck_assert(e.range);
	ck_assert_uint_eq(e.count, 16);
	ck_assert_str_eq(e.items[15].host, "node-1");
	ck_assert_str_eq(e.items[0].port, "29501");
	ck_assert_str_eq(e.items[15].port, "29516");
	ck_assert_int_eq(rb_endpoints_parse("node-1:29501", &e), RUBATO_OK);
	ck_assert(!e.range);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(rb_endpoints_parse(bad[i], &e) == RUBATO_ERR_ARGUMENT, "%s", bad[i]);
	set("0", "2", "a:1-3", NULL);
	refused("one port is needed, not several");
	set("0", "2", "a:1,b:2", NULL);
	refused("one port is needed, not several");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("job");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, nothing_set_is_a_job_of_one);
	tcase_add_test(tc, incomplete_places_name_what_is_missing);
	tcase_add_test(tc, endpoints_are_host_and_port);
	tcase_add_test(tc, ports_may_be_a_range);
	tcase_add_test(tc, interfaces_are_wanted_by_name_or_prefix);
	tcase_add_test(tc, active_rdma_that_ucx_is_kept_from_is_named);
	tcase_add_test(tc, an_id_publishes_the_interfaces_that_are_wanted);
	tcase_add_test(tc, secret_files_are_private_and_of_some_length);
	tcase_add_test(tc, ids_travel_undamaged_or_are_refused);
	tcase_add_test(tc, rank_0_is_in_the_process_that_made_the_id);
	return check_main("runtime", tc);
}
