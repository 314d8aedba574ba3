/* test_visitors.c -- 256 callers that connect while devices are tried, and say nothing: they are
 * all heard within the time of one. Then one that was meant is found behind some of them. */
#include "runtime/startup/interfaces.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/wire.h"
#include "tests/check_main.h"

#define SILENT_MAX 255u
#define PATIENCE_NS UINT64_C(40000000000) /* They took 51 s, one after the other. */

struct told { /* Rank 1 is played: on another network, with two devices and no address. */
	struct rb_bootstrap base;
	uint32_t exchanges, silent;
	bool honest;
	int callers[SILENT_MAX + 1];
	uint8_t other[12];
	const void *blobs[2];
	size_t bytes[2];
	char found[256];
};

static int call(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void callers_come(struct told *t, const void *own)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)own, 10);
	uint64_t halves[2], token, network = rb_wire_get_u64(&w);
	uint16_t port = rb_wire_get_u16(&w);
	struct rb_wire out = rb_wire_over(t->other, sizeof(t->other));

	for (uint32_t i = 0; i < t->silent; i++)
		t->callers[i] = call(port);
	if (t->honest) {
		memcpy(halves, t->base.job, sizeof(halves));
		token = rb_mix(halves[0] ^ rb_mix(halves[1] ^ rb_mix(t->base.rank + 1)));
		t->callers[t->silent] = call(port);
		ck_assert_int_eq(send(t->callers[t->silent], &token, 8, MSG_NOSIGNAL), 8);
	}
	rb_wire_put_u64(&out, network + 1);
	rb_wire_put_u16(&out, 1);
	rb_wire_put_u8(&out, 2);
	rb_wire_put_u8(&out, 0);
}

static rubato_status told_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				    const void *const **out, const size_t **out_bytes,
				    uint64_t deadline_ns)
{
	struct told *t = (struct told *)b;

	(void)deadline_ns;
	if (t->exchanges == 0)
		callers_come(t, in);
	if (t->exchanges == 2)
		memcpy(t->found, in, in_bytes);
	t->blobs[0] = in;
	t->bytes[0] = in_bytes;
	t->blobs[1] = t->exchanges == 0 ? t->other : (const void *)"";
	t->bytes[1] = t->exchanges == 0 ? sizeof(t->other) : 0;
	t->exchanges++;
	*out = t->blobs;
	*out_bytes = t->bytes;
	return RUBATO_OK;
}

static void choose(struct told *t, uint32_t silent, bool honest)
{
	uint64_t begun_ns = rb_clock_ns();
	char devices[256];

	*t = (struct told) {
		.base = { .rank_count = 2, .job = { 7, 1, 9 }, .allgather = told_allgather },
		.silent = silent,
		.honest = honest
	};
	ck_assert_int_eq(rb_interfaces_choose(&t->base, "", begun_ns + PATIENCE_NS, devices,
					      sizeof(devices)),
			 RUBATO_OK);
	ck_assert_uint_lt(rb_clock_ns() - begun_ns, PATIENCE_NS);
	ck_assert_uint_eq(t->exchanges, 3);
	for (uint32_t i = 0; i < silent + honest; i++)
		(void)close(t->callers[i]);
}

START_TEST(silent_callers_take_no_time)
{
	struct told t;

	choose(&t, SILENT_MAX, false);
	ck_assert_str_eq(t.found, "");
	choose(&t, 20, true);
	ck_assert_int_eq(strncmp(t.found, "lo", 2), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("visitors");

	tcase_set_timeout(tc, 90);
	tcase_add_test(tc, silent_callers_take_no_time);
	return check_main("runtime", tc);
}
