/* test_store.c -- a launcher's store by PMI: the launcher here says what a test wants it to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/startup/bootstrap.h"
#include "tests/check_main.h"

#define LINES_MAX 8
#define PATIENCE_NS UINT64_C(20000000000)

/* Answers the i-th line with answers[i]; NULL: closes. */
struct launcher {
	const char *const *answers;
	int fd, theirs;
	pthread_t thread;
	char heard[LINES_MAX][1024];
	unsigned count;
};

#define GREETING                                                                                   \
	"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",                              \
		"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",                       \
		"cmd=my_kvsname kvsname=kvs_7_0\n"

static void *launcher_main(void *arg)
{
	struct launcher *l = arg;

	while (l->count < LINES_MAX) {
		char *line = l->heard[l->count];
		size_t at = 0;

		while (at + 1 < sizeof(l->heard[0]) && read(l->fd, line + at, 1) == 1 &&
		       line[at] != '\n')
			at++;
		if (line[at] != '\n')
			break;
		line[at] = '\0';

		const char *answer = l->answers[l->count++];

		if (answer == NULL || write(l->fd, answer, strlen(answer)) < 0)
			break;
	}
	(void)shutdown(l->fd, SHUT_RDWR);
	return NULL;
}

static void begin(struct launcher *l, const char *const *answers)
{
	char number[16];
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	*l = (struct launcher) { .answers = answers, .fd = ends[0], .theirs = ends[1] };
	(void)snprintf(number, sizeof(number), "%d", ends[1]);
	ck_assert_int_eq(clearenv(), 0);
	ck_assert_int_eq(setenv("PMI_FD", number, 1), 0);
	ck_assert_int_eq(pthread_create(&l->thread, NULL, launcher_main, l), 0);
}

static void finish(struct launcher *l)
{
	(void)shutdown(l->theirs, SHUT_RDWR);
	ck_assert_int_eq(pthread_join(l->thread, NULL), 0);
	(void)close(l->fd);
	(void)close(l->theirs);
}

static uint64_t soon(void)
{
	return rb_clock_ns() + PATIENCE_NS;
}

static void says(const char *text)
{
	ck_assert_msg(strstr(rubato_error_text(), text) != NULL, "\"%s\" lacks \"%s\"",
		      rubato_error_text(), text);
}

/* Opens, passes as `rank`, closes: what came of it. */
static rubato_status pass(struct launcher *l, const char *const *answers, uint32_t rank, char *text,
			  size_t text_bytes, uint64_t deadline_ns)
{
	struct rb_store store;

	begin(l, answers);
	ck_assert_int_eq(rb_store_find(), RB_STORE_PMI);
	rubato_status err = rb_store_open(RB_STORE_PMI, deadline_ns, &store);

	if (err != RUBATO_OK)
		return err;
	err = rb_store_pass(&store, rank, text, text_bytes, deadline_ns);
	rb_store_close(&store);
	return err;
}

START_TEST(rank_0_puts_and_another_gets)
{
	static const char *const to_0[] = { GREETING, "cmd=put_result rc=0 msg=success\n",
					    "cmd=barrier_out\n", "cmd=finalize_ack\n" };
	static const char *const to_1[] = { GREETING, "cmd=barrier_out\n",
					    "cmd=get_result rc=0 msg=success value=abcd\n",
					    "cmd=finalize_ack\n" };
	struct launcher l;
	char text[8] = "abcd";

	ck_assert_int_eq(pass(&l, to_0, 0, text, sizeof(text), soon()), RUBATO_OK);
	ck_assert_str_eq(l.heard[0], "cmd=init pmi_version=1 pmi_subversion=1");
	ck_assert_str_eq(l.heard[3], "cmd=put kvsname=kvs_7_0 key=rubato value=abcd");
	ck_assert_str_eq(l.heard[4], "cmd=barrier_in");
	ck_assert_str_eq(l.heard[5], "cmd=finalize");
	finish(&l);

	text[0] = '\0';
	ck_assert_int_eq(pass(&l, to_1, 1, text, sizeof(text), soon()), RUBATO_OK);
	ck_assert_str_eq(text, "abcd");
	ck_assert_str_eq(l.heard[4], "cmd=get kvsname=kvs_7_0 key=rubato");
	finish(&l);
}
END_TEST

START_TEST(bad_answers_are_errors)
{
	static char endless[5000];
	static const char *const closes[] = { NULL };
	static const char *const refuses[] = { "cmd=response_to_init rc=-1\n" };
	static const char *const other[] = { "cmd=maxes vallen_max=1024\n" };
	static const char *const no_end[] = { endless };
	static const char *const small[] = { "cmd=response_to_init rc=0\n",
					     "cmd=maxes vallen_max=4\n",
					     "cmd=my_kvsname kvsname=k\n", "cmd=finalize_ack\n" };
	static const char *const no_value[] = { GREETING, "cmd=barrier_out\n",
						"cmd=get_result rc=-1 msg=none\n",
						"cmd=finalize_ack\n" };
	static const char *const long_value[] = { GREETING, "cmd=barrier_out\n",
						  "cmd=get_result rc=0 value=12345678\n",
						  "cmd=finalize_ack\n" };
	const struct {
		const char *const *answers;
		uint32_t rank;
		rubato_status status;
		const char *says;
	} cases[] = {
		{ closes, 0, RUBATO_ERR_SYSTEM, "closed its PMI before it answered cmd=init" },
		{ refuses, 0, RUBATO_ERR_MISMATCH, "answers cmd=init by PMI with" },
		{ other, 0, RUBATO_ERR_MISMATCH, "answers cmd=init by PMI with" },
		{ no_end, 0, RUBATO_ERR_MISMATCH, "has no end" },
		{ small, 0, RUBATO_ERR_UNSUPPORTED, "keeps values below 4 bytes: 5 are needed" },
		{ no_value, 1, RUBATO_ERR_MISMATCH, "answers cmd=get by PMI with" },
		{ long_value, 1, RUBATO_ERR_MISMATCH, "no value, or a longer one" },
	};

	memset(endless, 'x', sizeof(endless) - 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct launcher l;
		char text[8] = "abcd";

		ck_assert_int_eq(
			pass(&l, cases[i].answers, cases[i].rank, text, sizeof(text), soon()),
			cases[i].status);
		says(cases[i].says);
		finish(&l);
	}
}
END_TEST

START_TEST(silence_has_an_end)
{
	static const char *const silent[] = { GREETING, "", "cmd=finalize_ack\n" };
	struct launcher l;
	char text[8] = "abcd";

	ck_assert_int_eq(pass(&l, silent, 1, text, sizeof(text), rb_clock_ns() + 200000000),
			 RUBATO_ERR_TIMEOUT);
	says("did not answer cmd=barrier_in by PMI");
	finish(&l);
}
END_TEST

START_TEST(what_is_no_id_is_refused)
{
	static const char *const answers[][6] = {
		{ GREETING, "cmd=barrier_out\n", "cmd=get_result rc=0 value=xyz\n",
		  "cmd=finalize_ack\n" },
		{ GREETING, "cmd=barrier_out\n", "cmd=get_result rc=0 value=abcd\n",
		  "cmd=finalize_ack\n" },
	};
	static const char *const said[] = { "has no id for this job", "not an id" };

	for (size_t i = 0; i < 2; i++) {
		struct rb_job job = { .rank = 1, .rank_count = 2, .listener = -1 };
		struct rb_store store;
		struct launcher l;

		begin(&l, answers[i]);
		ck_assert_int_eq(rb_store_open(RB_STORE_PMI, soon(), &store), RUBATO_OK);
		ck_assert_int_ne(rb_job_from_store(&store, "", soon(), &job), RUBATO_OK);
		says(said[i]);
		rb_store_close(&store);
		finish(&l);
	}
}
END_TEST

START_TEST(a_descriptor_is_a_number)
{
	struct rb_store store;

	ck_assert_int_eq(clearenv(), 0);
	ck_assert_int_eq(rb_store_find(), RB_STORE_NONE);
	ck_assert_int_eq(setenv("PMI_FD", "7x", 1), 0);
	ck_assert_int_eq(rb_store_open(RB_STORE_PMI, soon(), &store), RUBATO_ERR_ARGUMENT);
	says("PMI_FD=7x: expected a descriptor");
	ck_assert_int_eq(setenv("PMIX_NAMESPACE", "n", 1), 0);
	ck_assert_int_eq(setenv("PMIX_RANK", "0", 1), 0);
	ck_assert_int_eq(rb_store_find(), RB_STORE_PMIX);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("store");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, rank_0_puts_and_another_gets);
	tcase_add_test(tc, bad_answers_are_errors);
	tcase_add_test(tc, silence_has_an_end);
	tcase_add_test(tc, what_is_no_id_is_refused);
	tcase_add_test(tc, a_descriptor_is_a_number);
	return check_main("runtime", tc);
}
