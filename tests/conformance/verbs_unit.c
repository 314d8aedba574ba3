/* verbs_unit.c -- what only verbs has: the halves of messages at close, ports that have LIDs. */
#include "transport/verbs/verbs.h"
#include "verbs_world.h"

static const char *world = "devices=2";

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	(void)cluster;
	return verbs_world_threads(world, rank_count, rank_main, arg);
}

const struct conform_backend conform_backend = {
	.name = "verbs_unit",
	.ops = &rb_transport_verbs,
	.run = run,
};

static struct rb_verbs_peer *other_of(struct conform_rank *r)
{
	return &((struct rb_verbs *)r->ep)->peers[1 - r->rank];
}

static void close_at_once(struct conform_rank *r)
{
	r->ops->close(r->ep, false, 0);
	r->closed = true;
}

/*
 * A message is spread over two rails, and nothing comes by the first one any more: rank 1 learns
 * that the share of the second one is there, and closes. Its memory of that goes, too, which
 * AddressSanitizer sees.
 */
static void close_with_half(struct conform_rank *r)
{
	enum { BYTES = 1 << 17 };
	void (*loss)(uint32_t, uint32_t, uint32_t, uint32_t) = (void (*)(
		uint32_t, uint32_t, uint32_t, uint32_t))(uintptr_t)verbs_world_symbol("mock_loss");
	_Atomic uint64_t *closed = &r->shared->word[0];
	uint64_t since_ns = r->ops->now_ns(r->ep);
	struct rb_verbs_peer *other = other_of(r);
	uint8_t *bytes = calloc(1, BYTES);
	struct conform_request q;

	CONFORM(bytes != NULL, "memory");
	CONFORM(other->live == 2, "%u rails live", other->live);
	if (r->rank == 0) {
		while (other->outgoing.arrival_count == 0) {
			(void)conform_poll(r);
			conform_expire(r, since_ns, "an invitation");
		}
		CONFORM(other->main->index == 0, "messages go by rail %u", other->main->index);
		loss(0, 0, 1, 1000);
		conform_send(r, &q, 1, 7, bytes, BYTES);
		while (atomic_load(closed) == 0) {
			conform_expire(r, since_ns, "rank 1's close");
			conform_pause(r);
		}
	} else {
		conform_recv(r, &q, 0, 7, bytes, BYTES);
		while (other->shared == NULL) {
			(void)conform_poll(r);
			conform_expire(r, since_ns, "a share of a message");
		}
		CONFORM(!other->shared->ended, "the message has ended");
	}
	close_at_once(r);
	atomic_store(closed, 1);
	free(bytes);
}

START_TEST(half_a_message_goes_at_close)
{
	world = "devices=2,time_divisor=1"; /* The first rail is long in failing. */
	conform_run(2, close_with_half);
}
END_TEST

static void path_of_lids(struct conform_rank *r)
{
	char text[600];

	r->ops->path(r->ep, 1 - r->rank, text, sizeof(text));
	CONFORM(strstr(text, "port 1, InfiniBand, LID 1,") != NULL &&
			strstr(text, "port 1, InfiniBand, LID 3,") != NULL,
		"%s", text);
}

START_TEST(infiniband_has_lids)
{
	world = "devices=2,infiniband=1";
	conform_run(2, path_of_lids);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs_unit");
	TCase *t = tcase_create("unit");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, half_a_message_goes_at_close);
	tcase_add_test(t, infiniband_has_lids);
	suite_add_tcase(suite, t);
	return check_suite(suite);
}
