/* test_rendezvous_socket.c -- the rendezvous over loopback: threads, processes, and what goes
 * wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/startup/bootstrap.h"
#include "tests/check_main.h"
#include "tests/free_port.h"

#define SECOND UINT64_C(1000000000)
#define RANKS_MAX 16
#define ROUNDS 3

static struct rb_job job_at(uint32_t rank, uint32_t rank_count, uint16_t port, const char *secret)
{
	struct rb_job job = { .rank = rank, .rank_count = rank_count, .listener = -1 };

	(void)snprintf(job.root, sizeof(job.root), "127.0.0.1:%u", port);
	if (secret != NULL)
		ck_assert_int_eq(rb_job_set_secret(&job, secret, strlen(secret)), RUBATO_OK);
	return job;
}

struct member {
	struct rb_job job;
	uint64_t deadline_ns;
	uint32_t rounds;
	bool dies; /* After open: leaves without a word. */
	rubato_status opened, gathered;
	uint8_t nonce[16];
	char text[512];
	pthread_t thread;
};

static size_t blob_fill(uint8_t *blob, uint32_t rank, uint32_t round)
{
	size_t bytes = round == 0 ? rank : round == 1 ? RB_BLOB_BYTES_MAX : 100 + rank;

	memset(blob, (int)(rank * 7 + round), bytes);
	return bytes;
}

static bool tables_right(const void *const *out, const size_t *out_bytes, uint32_t n,
			 uint32_t round)
{
	static _Thread_local uint8_t expected[RB_BLOB_BYTES_MAX];

	for (uint32_t r = 0; r < n; r++) {
		size_t bytes = blob_fill(expected, r, round);

		if (out_bytes[r] != bytes || memcmp(out[r], expected, bytes) != 0)
			return false;
	}
	return true;
}

/* Opens, makes its exchanges, closes; everything about it ends up in `m`. */
static void *member_main(void *arg)
{
	static _Thread_local uint8_t blob[RB_BLOB_BYTES_MAX];
	struct member *m = arg;
	struct rb_bootstrap *b;
	const void *const *outs[ROUNDS];
	const size_t *sizes[ROUNDS];

	m->gathered = RUBATO_OK;
	m->opened = rb_rendezvous_open(&m->job, m->deadline_ns, &b);
	if (m->opened != RUBATO_OK) {
		(void)snprintf(m->text, sizeof(m->text), "%s", rubato_error_text());
		return NULL;
	}
	memcpy(m->nonce, b->job, sizeof(m->nonce));
	for (uint32_t i = 0; i < m->rounds && m->gathered == RUBATO_OK && !m->dies; i++)
		m->gathered = b->allgather(b, blob, blob_fill(blob, m->job.rank, i), &outs[i],
					   &sizes[i], m->deadline_ns);
	if (m->gathered != RUBATO_OK)
		(void)snprintf(m->text, sizeof(m->text), "%s", rubato_error_text());
	for (uint32_t i = 0; i < m->rounds && m->gathered == RUBATO_OK && !m->dies; i++)
		if (!tables_right(outs[i], sizes[i], b->rank_count, i))
			m->gathered = RUBATO_ERR_INTERNAL;
	b->close(b);
	return NULL;
}

static void members_run(struct member *members, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		ck_assert_int_eq(pthread_create(&members[i].thread, NULL, member_main, &members[i]),
				 0);
	for (uint32_t i = 0; i < count; i++)
		(void)pthread_join(members[i].thread, NULL);
}

static void member_init(struct member *m, struct rb_job job, uint64_t span_ns)
{
	*m = (struct member) { .job = job,
			       .deadline_ns = rb_deadline(rb_clock_ns(), span_ns),
			       .rounds = ROUNDS };
}

static void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "\"%s\" lacks \"%s\"", text, part);
}

static const uint32_t sizes_tried[] = { 1, 2, 5, 16 };

START_TEST(threads_gather)
{
	struct member m[RANKS_MAX];
	uint32_t n = sizes_tried[_i / 2];
	uint16_t port = free_port();
	const char *secret = _i % 2 ? "0123456789abcdef" : NULL;

	for (uint32_t i = 0; i < n; i++)
		member_init(&m[i], job_at(n - 1 - i, n, port, secret), 20 * SECOND);
	members_run(m, n);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_msg(m[i].opened == RUBATO_OK, "%s", m[i].text);
		ck_assert_msg(m[i].gathered == RUBATO_OK, "%s", m[i].text);
		ck_assert_mem_eq(m[i].nonce, m[0].nonce, 16);
		ck_assert(!sodium_is_zero(m[i].nonce, 16));
	}
}
END_TEST

static pid_t process_start(struct member *m)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	(void)member_main(m);
	if (m->opened != RUBATO_OK || m->gathered != RUBATO_OK)
		(void)fprintf(stderr, "rank %u: %s\n", m->job.rank, m->text);
	_exit(m->opened != RUBATO_OK ? -m->opened : -m->gathered);
}

static int process_end(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

START_TEST(processes_gather)
{
	struct member m;
	pid_t pids[RANKS_MAX];
	uint32_t n = sizes_tried[_i];
	uint16_t port = free_port();

	for (uint32_t i = 0; i < n; i++) {
		member_init(&m, job_at(n - 1 - i, n, port, "a secret of some length"), 20 * SECOND);
		pids[i] = process_start(&m);
	}
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(process_end(pids[i]), RUBATO_OK);
}
END_TEST

START_TEST(an_id_gathers_threads)
{
	struct member m[RANKS_MAX];
	rubato_id id, other;
	uint32_t n = sizes_tried[_i];

	ck_assert_int_eq(rb_job_make_id(&id, ""), RUBATO_OK);
	ck_assert_int_eq(rb_job_make_id(&other, ""), RUBATO_OK);
	ck_assert_mem_ne(&id, &other, sizeof(id));
	for (uint32_t i = 0; i < n; i++) {
		struct rb_job job;

		ck_assert_msg(rb_job_from_id(&id, n - 1 - i, n, &job) == RUBATO_OK, "%s",
			      rubato_error_text());
		member_init(&m[i], job, 20 * SECOND);
	}
	members_run(m, n);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_msg(m[i].opened == RUBATO_OK, "%s", m[i].text);
		ck_assert_msg(m[i].gathered == RUBATO_OK, "%s", m[i].text);
	}
	/* The listener is gone with the job. */
	struct rb_job job;

	ck_assert_int_eq(rb_job_from_id(&id, 0, n, &job), RUBATO_ERR_ARGUMENT);
	has(rubato_error_text(), "used already");
}
END_TEST

START_TEST(an_id_gathers_processes)
{
	struct member m;
	pid_t pids[5];
	rubato_id id;

	ck_assert_int_eq(rb_job_make_id(&id, ""), RUBATO_OK);
	for (uint32_t i = 1; i < 5; i++) {
		struct rb_job job;

		ck_assert_int_eq(rb_job_from_id(&id, i, 5, &job), RUBATO_OK);
		member_init(&m, job, 20 * SECOND);
		pids[i] = process_start(&m);
	}
	struct rb_job job;

	ck_assert_int_eq(rb_job_from_id(&id, 0, 5, &job), RUBATO_OK);
	member_init(&m, job, 20 * SECOND);
	(void)member_main(&m);
	ck_assert_msg(m.opened == RUBATO_OK && m.gathered == RUBATO_OK, "%s", m.text);
	for (uint32_t i = 1; i < 5; i++)
		ck_assert_int_eq(process_end(pids[i]), RUBATO_OK);
}
END_TEST

/* Who asks at the loopback address alone takes a port for free that a connection of the machine's
 * other addresses has, or had a minute ago; nobody can listen there at all addresses. */
START_TEST(a_port_is_free_at_all_addresses)
{
	struct sockaddr_in other = { .sin_family = AF_INET };
	socklen_t size = sizeof(other);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint16_t port = free_port();

	ck_assert_uint_ne(port, 0);
	ck_assert(!port_take(port)); /* It is ours. */
	ck_assert_int_eq(inet_pton(AF_INET, "127.0.0.2", &other.sin_addr), 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&other, size), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&other, &size), 0);
	ck_assert(!port_take(ntohs(other.sin_port)));
	(void)close(fd);
}
END_TEST

START_TEST(a_port_in_use_is_named)
{
	struct member m;
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, size), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	member_init(&m, job_at(0, 2, ntohs(at.sin_port), NULL), 20 * SECOND);
	(void)member_main(&m);
	ck_assert_int_eq(m.opened, RUBATO_ERR_SYSTEM);
	has(m.text, "rank 0 cannot listen at 127.0.0.1:");
	has(m.text, "Address already in use; another job? choose another port in RUBATO_ROOT");
	(void)close(fd);
}
END_TEST

/* A machine that is busy may keep rank 2 from coming in time: then it has longer. */
START_TEST(missing_ranks_are_named)
{
	uint64_t span_ns = SECOND / 2;
	struct member m[2];

	do {
		uint16_t port = free_port();

		member_init(&m[0], job_at(0, 6, port, NULL), span_ns);
		member_init(&m[1], job_at(2, 6, port, NULL), 20 * SECOND);
		members_run(m, 2);
		ck_assert_int_eq(m[0].opened, RUBATO_ERR_TIMEOUT);
		span_ns *= 2;
	} while (span_ns <= 8 * SECOND && strstr(m[0].text, "ranks 1-5 (5 of 6)") != NULL);
	has(m[0].text, "ranks 1, 3-5 (4 of 6) did not come to 127.0.0.1:");
	ck_assert_int_eq(m[1].opened, RUBATO_ERR_TIMEOUT);
	ck_assert_str_eq(m[1].text, m[0].text);
}
END_TEST

START_TEST(a_missing_root_is_named)
{
	struct member m;

	member_init(&m, job_at(1, 2, free_port(), NULL), SECOND / 5);
	(void)member_main(&m);
	ck_assert_int_eq(m.opened, RUBATO_ERR_TIMEOUT);
	has(m.text, "no answer from 127.0.0.1:");
	has(m.text, "is rank 0 running there? (Connection refused)");
}
END_TEST

/* Of an id: it has listened since before anybody could know of it. */
START_TEST(a_root_that_is_gone_is_not_waited_for)
{
	struct member m;
	struct rb_job job;
	rubato_id id;

	ck_assert_int_eq(rb_job_make_id(&id, ""), RUBATO_OK);
	ck_assert_int_eq(rb_job_from_id(&id, 0, 2, &job), RUBATO_OK);
	ck_assert_int_eq(close(job.listener), 0);
	ck_assert_int_eq(rb_job_from_id(&id, 1, 2, &job), RUBATO_OK);
	member_init(&m, job, 20 * SECOND);
	(void)member_main(&m);
	ck_assert_int_eq(m.opened, RUBATO_ERR_PEER);
	has(m.text, "rank 0 is gone: it listened at ");
}
END_TEST

/* As long as one of its addresses may lead there: this one takes connections, and says nothing. */
START_TEST(a_root_is_waited_for_where_not_all_addresses_refuse)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, size), 0);
	ck_assert_int_eq(listen(fd, 16), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	for (uint32_t mute = 0; mute < 2; mute++) {
		uint16_t refuses = free_port(), accepts = ntohs(at.sin_port);
		struct rb_job job = job_at(1, 2, refuses, NULL);
		struct member m;

		(void)snprintf(job.root, sizeof(job.root), "127.0.0.1:%u,127.0.0.1:%u",
			       mute == 0 ? accepts : refuses, mute == 0 ? refuses : accepts);
		job.listens = true;
		member_init(&m, job, SECOND);
		(void)member_main(&m);
		ck_assert_int_eq(m.opened, RUBATO_ERR_TIMEOUT);
	}
	(void)close(fd);
}
END_TEST

static void *rank_0_fails(void *arg)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;

	options.flags = 1;
	ck_assert_int_eq(rubato_init_id(&comm, arg, 0, 2, &options), RUBATO_ERR_ARGUMENT);
	return NULL;
}

START_TEST(a_root_that_fails_before_anybody_came_is_not_waited_for)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	rubato_id id;
	pthread_t root;

	options.timeout_ns = 20 * SECOND;
	ck_assert_int_eq(rubato_id_create(&id), RUBATO_OK);
	ck_assert_int_eq(pthread_create(&root, NULL, rank_0_fails, &id), 0);
	ck_assert_int_eq(rubato_init_id(&comm, &id, 1, 2, &options), RUBATO_ERR_PEER);
	has(rubato_error_text(), "rank 0 is gone: it listened at ");
	ck_assert_int_eq(pthread_join(root, NULL), 0);
}
END_TEST

struct joiner {
	const rubato_id *id;
	uint32_t rank, flags;
	rubato_status opened;
	char text[512];
	pthread_t thread;
};

static void *joiner_main(void *arg)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	struct joiner *j = arg;
	rubato_comm *comm;

	options.timeout_ns = 20 * SECOND;
	options.flags = j->flags;
	j->opened = rubato_init_id(&comm, j->id, j->rank, 3, &options);
	(void)snprintf(j->text, sizeof(j->text), "%s", rubato_error_text());
	return NULL;
}

START_TEST(a_rank_that_cannot_join_comes_to_say_so)
{
	struct joiner j[3];
	rubato_id id;

	ck_assert_int_eq(rubato_id_create(&id), RUBATO_OK);
	for (uint32_t r = 0; r < 3; r++) {
		j[r] = (struct joiner) { .id = &id, .rank = r, .flags = r == 1 };
		ck_assert_int_eq(pthread_create(&j[r].thread, NULL, joiner_main, &j[r]), 0);
	}
	for (uint32_t r = 0; r < 3; r++) {
		ck_assert_int_eq(pthread_join(j[r].thread, NULL), 0);
		ck_assert_int_eq(j[r].opened, r == 1 ? RUBATO_ERR_ARGUMENT : RUBATO_ERR_PEER);
		has(j[r].text, r == 1 ? "options: start from RUBATO_OPTIONS_INIT"
				      : "start-up failed on rank 1: options: start from ");
	}
}
END_TEST

START_TEST(a_wrong_secret_harms_only_its_owner)
{
	struct member m[3], stranger;
	uint16_t port = free_port();

	for (uint32_t i = 0; i < 3; i++)
		member_init(&m[i], job_at(i, 3, port, "the right secret"), 20 * SECOND);
	ck_assert_int_eq(pthread_create(&m[0].thread, NULL, member_main, &m[0]), 0);
	member_init(&stranger, job_at(1, 3, port, _i ? "the wrong secret" : NULL), 20 * SECOND);
	(void)member_main(&stranger);
	ck_assert_int_eq(stranger.opened, RUBATO_ERR_AUTH);
	has(stranger.text, _i ? "the secrets differ" : "set RUBATO_SECRET_FILE");
	ck_assert_int_eq(pthread_create(&m[1].thread, NULL, member_main, &m[1]), 0);
	ck_assert_int_eq(pthread_create(&m[2].thread, NULL, member_main, &m[2]), 0);
	for (uint32_t i = 0; i < 3; i++) {
		(void)pthread_join(m[i].thread, NULL);
		ck_assert_msg(m[i].opened == RUBATO_OK && m[i].gathered == RUBATO_OK, "%s",
			      m[i].text);
	}
}
END_TEST

START_TEST(a_wrong_secret_is_the_roots_last_word)
{
	struct member m[2];
	uint16_t port = free_port();

	member_init(&m[0], job_at(0, 2, port, "the right secret"), SECOND);
	member_init(&m[1], job_at(1, 2, port, "the wrong secret"), 20 * SECOND);
	members_run(m, 2);
	ck_assert_int_eq(m[0].opened, RUBATO_ERR_AUTH);
	has(m[0].text, "rank 1 (1 of 2) did not come");
	has(m[0].text, "did not prove that it knows the job's secret");
	ck_assert_int_eq(m[1].opened, RUBATO_ERR_AUTH);
}
END_TEST

START_TEST(two_ranks_with_one_number)
{
	struct member m[3];
	uint16_t port = free_port();

	member_init(&m[0], job_at(0, 3, port, NULL), SECOND);
	member_init(&m[1], job_at(1, 3, port, NULL), 20 * SECOND);
	member_init(&m[2], job_at(1, 3, port, NULL), 20 * SECOND);
	members_run(m, 3);
	ck_assert_int_eq(m[0].opened, RUBATO_ERR_MISMATCH);
	has(m[0].text, "rank 2 (1 of 3) did not come");
	has(m[0].text, "two processes call themselves rank 1: 127.0.0.1:");
	ck_assert_int_eq(m[1].opened, RUBATO_ERR_MISMATCH);
	ck_assert_int_eq(m[2].opened, RUBATO_ERR_MISMATCH);
}
END_TEST

START_TEST(sizes_that_differ)
{
	struct member m[2];
	uint16_t port = free_port();

	member_init(&m[0], job_at(0, 2, port, NULL), SECOND);
	member_init(&m[1], job_at(1, 3, port, NULL), 20 * SECOND);
	members_run(m, 2);
	ck_assert_int_eq(m[1].opened, RUBATO_ERR_MISMATCH);
	has(m[1].text, "says that the job has 3 ranks, rank 0 at 127.0.0.1:");
	ck_assert_int_eq(m[0].opened, RUBATO_ERR_MISMATCH);
}
END_TEST

START_TEST(without_a_secret_only_loopback)
{
	struct member m;
	struct rb_job job = { .rank = (uint32_t)_i, .rank_count = 2, .listener = -1 };

	(void)snprintf(job.root, sizeof(job.root), "0.0.0.0:%u", free_port());
	member_init(&m, job, SECOND / 5);
	(void)member_main(&m);
	ck_assert_int_eq(m.opened, RUBATO_ERR_ARGUMENT);
	has(m.text,
	    _i == 0 ? "rank 0 will not listen at 0.0.0.0:" : "rank 1 will not connect to 0.0.0.0:");
	has(m.text, "set RUBATO_SECRET_FILE");
	has(m.text, "RUBATO_INSECURE=1");

	job.insecure = true;
	member_init(&m, job, SECOND / 5);
	(void)member_main(&m);
	ck_assert_msg(m.opened == RUBATO_ERR_TIMEOUT, "%s", m.text);
}
END_TEST

/* As in a container whose system calls are filtered. */
START_TEST(a_system_that_refuses_is_not_taken_for_a_lack_of_a_secret)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, _i == 0 ? __NR_bind : __NR_listen, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	struct member m;
	uint16_t port = free_port();
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) { /* There is no way back. */
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
			_exit(77);
		member_init(&m, job_at(0, 2, port, NULL), SECOND / 5);
		(void)member_main(&m);
		_exit(m.opened == RUBATO_ERR_SYSTEM &&
				      strstr(m.text, "rank 0 cannot listen at 127.0.0.1:") &&
				      strstr(m.text, "Operation not permitted")
			      ? 0
			      : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		(void)printf("not shown: this system has no filters of system calls\n");
	else
		ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

START_TEST(a_host_without_address)
{
	struct member m;
	struct rb_job job = { .rank = (uint32_t)_i, .rank_count = 2, .listener = -1 };

	(void)snprintf(job.root, sizeof(job.root), "rubato.invalid:4000");
	member_init(&m, job, SECOND / 5);
	(void)member_main(&m);
	ck_assert_int_eq(m.opened, _i == 0 ? RUBATO_ERR_SYSTEM : RUBATO_ERR_TIMEOUT);
	has(m.text, "cannot resolve");
	has(m.text, "rubato.invalid");
}
END_TEST

START_TEST(a_foreign_address_is_no_place_to_listen)
{
	struct member m;
	struct rb_job job = job_at(0, 2, 4000, "a secret of some length");

	(void)snprintf(job.root, sizeof(job.root), "192.0.2.1:4000");
	member_init(&m, job, 5 * SECOND);
	(void)member_main(&m);
	ck_assert_int_eq(m.opened, RUBATO_ERR_SYSTEM);
	has(m.text, "rank 0 must run on the host that RUBATO_ROOT names");
}
END_TEST

START_TEST(a_dead_rank_ends_an_exchange_everywhere)
{
	struct member m[5];
	uint16_t port = free_port();
	uint32_t victim = _i == 0 ? 0 : 3;

	for (uint32_t i = 0; i < 5; i++)
		member_init(&m[i], job_at(i, 5, port, "a secret of some length"), 20 * SECOND);
	m[victim].dies = true;
	members_run(m, 5);
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_msg(m[i].opened == RUBATO_OK, "%s", m[i].text);
		if (i == victim)
			continue;
		ck_assert_int_eq(m[i].gathered, RUBATO_ERR_PEER);
		has(m[i].text, victim == 0 ? "rank 0 " : "rank 3 ");
	}
}
END_TEST

START_TEST(a_killed_process_ends_an_exchange_everywhere)
{
	struct member m[2], dead;
	uint16_t port = free_port();
	int gate[2];
	char byte;

	ck_assert_int_eq(pipe(gate), 0);
	member_init(&dead, job_at(2, 3, port, NULL), 20 * SECOND);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct rb_bootstrap *b;

		if (rb_rendezvous_open(&dead.job, dead.deadline_ns, &b) != RUBATO_OK ||
		    write(gate[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	for (uint32_t i = 0; i < 2; i++) {
		member_init(&m[i], job_at(i, 3, port, NULL), 20 * SECOND);
		ck_assert_int_eq(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
	}
	ck_assert_int_eq(read(gate[0], &byte, 1), 1);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	for (uint32_t i = 0; i < 2; i++) {
		(void)pthread_join(m[i].thread, NULL);
		ck_assert_int_eq(m[i].gathered, RUBATO_ERR_PEER);
		has(m[i].text, "rank 2 ");
	}
	(void)close(gate[0]);
	(void)close(gate[1]);
}
END_TEST

/* A connection to the root that says `bytes` and then nothing. */
static int stranger_open(uint16_t port, const void *bytes, size_t size_bytes)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	while (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
		(void)close(fd);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	if (size_bytes > 0)
		ck_assert_int_eq(send(fd, bytes, size_bytes, MSG_NOSIGNAL), (ssize_t)size_bytes);
	return fd;
}

START_TEST(strangers_cannot_keep_ranks_out)
{
	enum { STRANGERS = 200 };
	struct member m[2];
	int fds[STRANGERS];
	uint16_t port = free_port();
	char byte;

	member_init(&m[0], job_at(0, 2, port, "the right secret"), 20 * SECOND);
	ck_assert_int_eq(pthread_create(&m[0].thread, NULL, member_main, &m[0]), 0);
	for (int i = 0; i < STRANGERS; i++) /* Some silent, some half-way, some junk. */
		fds[i] = stranger_open(port, "RBRZ\3\1GET / HTTP",
				       i % 3 == 0   ? 0
				       : i % 3 == 1 ? 5
						    : 16);
	/* Junk is closed at once. */
	ck_assert_int_le(recv(fds[2], &byte, 1, 0), 0);
	member_init(&m[1], job_at(1, 2, port, "the right secret"), 20 * SECOND);
	ck_assert_int_eq(pthread_create(&m[1].thread, NULL, member_main, &m[1]), 0);
	for (uint32_t i = 0; i < 2; i++) {
		(void)pthread_join(m[i].thread, NULL);
		ck_assert_msg(m[i].opened == RUBATO_OK && m[i].gathered == RUBATO_OK, "%s",
			      m[i].text);
	}
	for (int i = 0; i < STRANGERS; i++)
		(void)close(fds[i]);
}
END_TEST

START_TEST(late_ranks_are_waited_for)
{
	struct member m[2];
	uint16_t port = free_port();

	member_init(&m[1], job_at(1, 2, port, NULL), 20 * SECOND);
	ck_assert_int_eq(pthread_create(&m[1].thread, NULL, member_main, &m[1]), 0);
	/* Rank 1 tries and is refused, again and again, until there is a root. */
	rb_clock_sleep_until(rb_clock_ns() + SECOND / 10);
	member_init(&m[0], job_at(0, 2, port, NULL), 20 * SECOND);
	(void)member_main(&m[0]);
	(void)pthread_join(m[1].thread, NULL);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_msg(m[i].opened == RUBATO_OK && m[i].gathered == RUBATO_OK, "%s",
			      m[i].text);
}
END_TEST

START_TEST(blobs_have_a_bound)
{
	static uint8_t blob[RB_BLOB_BYTES_MAX + 1];
	struct rb_job job = job_at(0, 1, 4000, NULL);
	struct rb_bootstrap *b;
	const void *const *out;
	const size_t *out_bytes;

	ck_assert_int_eq(rb_rendezvous_open(&job, UINT64_MAX, &b), RUBATO_OK);
	ck_assert_int_eq(b->allgather(b, blob, sizeof(blob), &out, &out_bytes, UINT64_MAX),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(b->allgather(b, blob, sizeof(blob) - 1, &out, &out_bytes, UINT64_MAX),
			 RUBATO_OK);
	ck_assert_uint_eq(out_bytes[0], RB_BLOB_BYTES_MAX);
	b->close(b);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("rendezvous_socket");

	rb_log_level_set(RB_LOG_NONE);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, threads_gather, 0, 8);
	tcase_add_loop_test(tc, processes_gather, 0, 4);
	tcase_add_loop_test(tc, an_id_gathers_threads, 0, 4);
	tcase_add_test(tc, an_id_gathers_processes);
	tcase_add_test(tc, a_port_is_free_at_all_addresses);
	tcase_add_test(tc, a_port_in_use_is_named);
	tcase_add_test(tc, missing_ranks_are_named);
	tcase_add_test(tc, a_missing_root_is_named);
	tcase_add_test(tc, a_root_that_is_gone_is_not_waited_for);
	tcase_add_test(tc, a_root_is_waited_for_where_not_all_addresses_refuse);
	tcase_add_test(tc, a_root_that_fails_before_anybody_came_is_not_waited_for);
	tcase_add_test(tc, a_rank_that_cannot_join_comes_to_say_so);
	tcase_add_loop_test(tc, a_wrong_secret_harms_only_its_owner, 0, 2);
	tcase_add_test(tc, a_wrong_secret_is_the_roots_last_word);
	tcase_add_test(tc, two_ranks_with_one_number);
	tcase_add_test(tc, sizes_that_differ);
	tcase_add_loop_test(tc, without_a_secret_only_loopback, 0, 2);
	tcase_add_loop_test(tc, a_system_that_refuses_is_not_taken_for_a_lack_of_a_secret, 0, 2);
	tcase_add_loop_test(tc, a_host_without_address, 0, 2);
	tcase_add_test(tc, a_foreign_address_is_no_place_to_listen);
	tcase_add_loop_test(tc, a_dead_rank_ends_an_exchange_everywhere, 0, 2);
	tcase_add_test(tc, a_killed_process_ends_an_exchange_everywhere);
	tcase_add_test(tc, strangers_cannot_keep_ranks_out);
	tcase_add_test(tc, late_ranks_are_waited_for);
	tcase_add_test(tc, blobs_have_a_bound);
	return check_main("runtime", tc);
}
