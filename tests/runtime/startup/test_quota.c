/* test_quota.c -- limits of control groups, from files laid out as systems and containers show
 * them; and ranks that share one. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/startup/crowd.h"
#include "runtime/startup/quota.h"
#include "tests/check_main.h"

static char root[64];

static void lay(const char *path, const char *text)
{
	char whole[512];
	FILE *file;

	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		ck_assert(mkdir(whole, 0700) == 0 || errno == EEXIST);
		*at = '/';
	}
	file = fopen(whole, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void begin(const char *groups)
{
	(void)snprintf(root, sizeof(root), "/tmp/rubato-quota-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	lay("/proc/self/cgroup", groups);
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *at)
{
	(void)status;
	(void)kind;
	(void)at;
	return remove(path);
}

static void end_with(uint32_t milli)
{
	struct rb_quota quota = rb_quota_find(root);

	ck_assert_uint_eq(quota.milli, milli);
	ck_assert((quota.group != 0) == (milli != 0));
	ck_assert_int_eq(nftw(root, entry_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

START_TEST(without_a_group_there_is_no_limit)
{
	ck_assert_uint_eq(rb_quota_find("/nonexistent").milli, 0);
	begin("garbage\n:\n::\n7:\n0::/\n");
	end_with(0);
	begin("0::/user.slice\n");
	lay("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
	end_with(0);
	begin("3:cpu,cpuacct:/\n");
	lay("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
	lay("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
	end_with(0);
	begin("0::/a\n");
	lay("/sys/fs/cgroup/a/cpu.max", "100000 0\n");
	lay("/sys/fs/cgroup/cpu.max", "");
	end_with(0);
}
END_TEST

START_TEST(version_2)
{
	begin("0::/user.slice/job\n");
	lay("/sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n");
	end_with(1500);
	begin("0::/\n"); /* In a container with its own name space. */
	lay("/sys/fs/cgroup/cpu.max", "100000 100000\n");
	end_with(1000);
	begin("0::/docker/5e1f\n"); /* And without, its own group mounted alone. */
	lay("/sys/fs/cgroup/cpu.max", "200000 100000\n");
	end_with(2000);
	begin("5:memory:/m\n1:name=systemd:/s\n0::/h\n");
	lay("/sys/fs/cgroup/unified/h/cpu.max", "50000 100000\n");
	end_with(500);
}
END_TEST

START_TEST(the_narrowest_of_nested_groups_counts)
{
	begin("0::/pod/container/leaf\n");
	lay("/sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
	lay("/sys/fs/cgroup/pod/container/cpu.max", "100000 50000\n");
	lay("/sys/fs/cgroup/pod/container/leaf/cpu.max", "max 100000\n");
	end_with(2000);
	begin("0::/pod/container\n");
	lay("/sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
	lay("/sys/fs/cgroup/pod/container/cpu.max", "300000 100000\n");
	lay("/sys/fs/cgroup/other/cpu.max", "1000 100000\n"); /* Not ours. */
	end_with(1000);
}
END_TEST

START_TEST(version_1)
{
	static const char *const mounts[] = { "cpu", "cpu,cpuacct" };

	for (int i = 0; i < 2; i++) {
		char path[128];

		begin("9:cpuacct:/elsewhere\n4:cpu,cpuacct:/docker/77\n2:cpuset:/\n");
		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/docker/77/cpu.cfs_quota_us",
			       mounts[i]);
		lay(path, "250000\n");
		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/docker/77/cpu.cfs_period_us",
			       mounts[i]);
		lay(path, "100000\n");
		lay("/sys/fs/cgroup/cpuacct/elsewhere/cpu.cfs_quota_us", "1000\n");
		lay("/sys/fs/cgroup/cpuacct/elsewhere/cpu.cfs_period_us", "100000\n");
		end_with(2500);
	}
}
END_TEST

START_TEST(long_paths_and_huge_numbers)
{
	static char groups[8000];

	(void)snprintf(groups, sizeof(groups), "0::/%0*d\n", 7000, 0);
	begin(groups);
	end_with(0);
	begin("0::/a\n");
	lay("/sys/fs/cgroup/a/cpu.max", "9223372036854775807 1\n");
	end_with(1000000000);
	begin("0::/a\n");
	lay("/sys/fs/cgroup/a/cpu.max", "1 1000000\n");
	end_with(1);
}
END_TEST

static struct rb_crowding add(struct rb_crowd *crowd, uint64_t group, uint32_t milli,
			      uint64_t cores)
{
	struct rb_quota quota = { .milli = milli, .group = group };
	struct rb_seat seat = {
		.host = 7, .group = group, .cores = { cores }, .cores_max = rb_quota_cores(&quota)
	};

	ck_assert_int_eq(rb_crowd_add(crowd, &seat, 1), RUBATO_OK);
	return rb_crowd_at(crowd, seat.host, seat.group);
}

/* Four ranks in a container of 1.5 processors on a machine of 64 cores share one core. */
START_TEST(ranks_count_what_their_group_may_use)
{
	struct rb_crowd crowd = { 0 };
	struct rb_crowding here;

	for (int i = 0; i < 4; i++)
		here = add(&crowd, 3, 1500, UINT64_C(1) << i);
	ck_assert(here.ranks == 4 && here.cores == 1);
	here = add(&crowd, 5, 4000, UINT64_MAX);       /* A container beside it; */
	ck_assert(here.ranks == 5 && here.cores == 5); /* Both together are more crowded. */
	here = add(&crowd, 0, 0, UINT64_MAX);          /* none; */
	ck_assert(here.ranks == 6 && here.cores == 64);
	here = add(&crowd, 9, 64000, 3); /* a limit beyond where it may run; */
	ck_assert(here.ranks == 1 && here.cores == 2);
	here = add(&crowd, 11, 200, UINT64_MAX); /* and a fifth of one. */
	ck_assert(here.ranks == 1 && here.cores == 1);
	here = rb_crowd_worst(&crowd);
	ck_assert(here.ranks == 4 && here.cores == 1);
	rb_crowd_fini(&crowd);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("quota");

	tcase_add_test(tc, without_a_group_there_is_no_limit);
	tcase_add_test(tc, version_2);
	tcase_add_test(tc, the_narrowest_of_nested_groups_counts);
	tcase_add_test(tc, version_1);
	tcase_add_test(tc, long_paths_and_huge_numbers);
	tcase_add_test(tc, ranks_count_what_their_group_may_use);
	return check_main("runtime", tc);
}
