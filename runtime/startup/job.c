/*
 * job.c -- which job this process belongs to, and as what: from the environment, or from an id.
 *
 * An id (256 bytes) is made before anybody knows where ranks will run, so it carries a random
 * secret, and a listener that waits on all of this machine's addresses from that moment on:
 *
 *   magic 8 | version 1 | address count 1 | port 2 | nonce 16 | secret 32 | listener 4 | pid 4 |
 *   start 8 | check 16 | addresses: family 1 (4 or 6), 4 or 16 bytes each | zeros
 *
 * Listener, pid and start (of the process, as the kernel counts) let rank 0 find the listener
 * again, and notice when it is not in the process that made the id. check is keyed with the secret:
 * it is there against damage on the way, not against malice; who has the id has the secret.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/limits.h"
#include "base/wire.h"
#include "runtime/startup/bootstrap.h"
#include "runtime/startup/endpoint.h"
#include "runtime/startup/interfaces.h"
#include "runtime/startup/rendezvous_wire.h"

#define SECRET_MIN 16
#define ID_MAGIC UINT64_C(0x444954414255520a) /* "\nRUBATID" */
#define ID_VERSION 1
#define ID_SECRET_BYTES 32
#define ID_CHECK_OFFSET 76
#define ID_CHECK_BYTES 16
#define ID_ADDRESSES_OFFSET (ID_CHECK_OFFSET + ID_CHECK_BYTES)
_Static_assert(8 + 1 + 1 + 2 + 16 + ID_SECRET_BYTES + 4 + 4 + 8 == ID_CHECK_OFFSET, "the layout");

/* ---- The secret ---- */

rubato_status rb_job_set_secret(struct rb_job *job, const void *secret, size_t secret_bytes)
{
	if (secret_bytes < SECRET_MIN || secret_bytes > sizeof(job->secret))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "the job's secret has %zu bytes: expected %d to %zu", secret_bytes,
			       SECRET_MIN, sizeof(job->secret));
	sodium_memzero(job->secret, sizeof(job->secret));
	memcpy(job->secret, secret, secret_bytes);
	job->secret_bytes = secret_bytes;
	return RUBATO_OK;
}

static rubato_status secret_file_check(int fd, const char *path)
{
	struct stat about;

	if (fstat(fd, &about) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "RUBATO_SECRET_FILE=%.200s: %s", path,
			       strerror(errno));
	if (!S_ISREG(about.st_mode))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "RUBATO_SECRET_FILE=%.200s: expected a regular file", path);
	if ((about.st_mode & 077) != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "RUBATO_SECRET_FILE=%.200s: others than its owner may use it "
			       "(mode %03o): chmod 600",
			       path, (unsigned)about.st_mode & 0777);
	return RUBATO_OK;
}

/* Until the end of the file, or the buffer. */
static ssize_t read_all(int fd, uint8_t *bytes, size_t size_bytes)
{
	size_t at = 0;

	while (at < size_bytes) {
		ssize_t got = read(fd, bytes + at, size_bytes - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		at += (size_t)got;
	}
	return (ssize_t)at;
}

static rubato_status secret_file_take(int fd, const char *path, struct rb_job *job)
{
	uint8_t bytes[sizeof(job->secret) + 2]; /* Room for a newline, and for one byte too many. */
	rubato_status err = secret_file_check(fd, path);

	if (err != RUBATO_OK)
		return err;
	ssize_t count = read_all(fd, bytes, sizeof(bytes));

	if (count < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "RUBATO_SECRET_FILE=%.200s: %s", path,
			       strerror(errno));
	if (count > 0 && bytes[count - 1] == '\n')
		count--;
	if (count < SECRET_MIN || (size_t)count > sizeof(job->secret))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT,
			      "RUBATO_SECRET_FILE=%.200s: %s than %zu bytes, expected %d to %zu",
			      path, count < SECRET_MIN ? "fewer" : "more",
			      count < SECRET_MIN ? (size_t)SECRET_MIN : sizeof(job->secret),
			      SECRET_MIN, sizeof(job->secret));
	else
		err = rb_job_set_secret(job, bytes, (size_t)count);
	sodium_memzero(bytes, sizeof(bytes));
	return err;
}

static rubato_status secret_file_read(const char *path, struct rb_job *job)
{
	/* Non-blocking, so that a named pipe is refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "RUBATO_SECRET_FILE=%.200s: %s", path,
			       strerror(errno));
	rubato_status err = secret_file_take(fd, path, job);

	(void)close(fd);
	return err;
}

/* ---- The environment ---- */

static rubato_status root_check(const char *text)
{
	struct rb_endpoints e;

	RB_TRY(rb_endpoints_parse(text, &e));
	for (uint32_t i = 1; i < e.count; i++)
		if (e.range || strcmp(e.items[i].port, e.items[0].port) != 0)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "RUBATO_ROOT=%.200s: one port is needed, not several", text);
	return RUBATO_OK;
}

static rubato_status place_read(const struct rb_config *config, struct rb_job *job)
{
	bool rank = config->source.rank != RB_CONFIG_DEFAULT;
	bool size = config->source.size != RB_CONFIG_DEFAULT;
	bool root = config->root.text[0] != '\0';

	if (!rank || !size)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "%s is not set, but %s is: a job needs RUBATO_RANK, RUBATO_SIZE and "
			       "RUBATO_ROOT",
			       !rank ? "RUBATO_RANK" : "RUBATO_SIZE",
			       rank   ? "RUBATO_RANK"
			       : size ? "RUBATO_SIZE"
				      : "RUBATO_ROOT");
	if (config->rank.number >= config->size.number)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "RUBATO_RANK=%llu: with RUBATO_SIZE=%llu ranks are 0 to %llu",
			       (unsigned long long)config->rank.number,
			       (unsigned long long)config->size.number,
			       (unsigned long long)config->size.number - 1);
	if (!root && config->size.number > 1)
		return RB_FAIL(
			RUBATO_ERR_ARGUMENT,
			"RUBATO_ROOT is not set: expected host:port, the same on every rank");
	job->rank = (uint32_t)config->rank.number;
	job->rank_count = (uint32_t)config->size.number;
	(void)snprintf(job->root, sizeof(job->root), "%.255s", config->root.text);
	job->source = "RUBATO_RANK and RUBATO_SIZE";
	return RUBATO_OK;
}

rubato_status rb_job_from_environment(const struct rb_config *config, struct rb_job *job,
				      bool *found)
{
	struct rb_job fresh = { .rank_count = 1, .listener = -1 };
	bool own = config->source.rank != RB_CONFIG_DEFAULT ||
		   config->source.size != RB_CONFIG_DEFAULT;
	bool any = own || config->root.text[0] != '\0';

	fresh.insecure = config->insecure.number == 1;
	if (config->root.text[0] != '\0')
		RB_TRY(root_check(config->root.text));
	if (!own)
		RB_TRY(rb_job_from_launcher(config->root.text, &fresh, &fresh.source));
	if (any || fresh.source != NULL) {
		if (fresh.source == NULL)
			RB_TRY(place_read(config, &fresh));
		if (config->secret_file.text[0] != '\0')
			RB_TRY(secret_file_read(config->secret_file.text, &fresh));
	}
	*job = fresh;
	*found = fresh.source != NULL;
	sodium_memzero(&fresh, sizeof(fresh));
	return RUBATO_OK;
}

/* ---- Ids ---- */

/* When this process started, in clock ticks since boot; 0 where /proc does not say. */
static uint64_t process_start(void)
{
	char text[1024];
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	ssize_t count = read(fd, text, sizeof(text) - 1);

	(void)close(fd);
	if (count <= 0)
		return 0;
	text[count] = '\0';
	/* The 22nd field; the second, a name in brackets, may hold anything, brackets too. */
	const char *at = strrchr(text, ')');

	for (int field = 2; at != NULL && field < 22; field++) {
		at = strchr(at, ' ');
		at = at == NULL ? NULL : at + 1;
	}
	return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static rubato_status listener_open(int *out, uint16_t *port)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct sockaddr_storage bound;
	socklen_t bound_bytes = sizeof(bound);
	int off = 0, flags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
	int fd = socket(AF_INET6, flags, 0);

	if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0 ||
			bind(fd, (struct sockaddr *)&any6, sizeof(any6)) != 0)) {
		(void)close(fd);
		fd = -1;
	}
	if (fd < 0) { /* A machine without IPv6. */
		fd = socket(AF_INET, flags, 0);
		if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof(any4)) != 0)
			goto undo_socket;
	}
	if (fd < 0 || listen(fd, 4096) != 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0)
		goto undo_socket;
	memcpy(port, (const char *)&bound + offsetof(struct sockaddr_in, sin_port), sizeof(*port));
	*port = ntohs(*port); /* In the same place in both families. */
	*out = fd;
	return RUBATO_OK;

undo_socket:;
	int why = errno;

	if (fd >= 0)
		(void)close(fd);
	return RB_FAIL(RUBATO_ERR_SYSTEM, "an id needs a listening socket: %s", RB_ERRNO_TEXT(why));
}
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
	       "see listener_open()");

/* Outside addresses first; loopback last, and always: what is elsewhere behind that number refuses
 * at once, or does not know the secret. How many: as many as a struct rb_job's root can name. */
static uint8_t addresses_put(struct rb_wire *w, const char *interfaces)
{
	static const struct {
		uint8_t family;
		bool loopback;
		size_t text_bytes; /* At most, with port and comma. */
	} passes[] = { { 4, false, 22 }, { 6, false, 48 }, { 4, true, 22 } };
	size_t room_bytes = sizeof(((struct rb_job *)0)->root) - 1;
	struct rb_interface_address all[RB_INTERFACE_ADDRESSES_MAX];
	uint8_t count = 0;

	for (size_t p = 0; p < sizeof(passes) / sizeof(passes[0]); p++) {
		bool loopback = passes[p].loopback;
		size_t keep_bytes = loopback ? 0 : 22;
		uint32_t found = rb_interface_addresses(loopback ? "" : interfaces, all,
							RB_INTERFACE_ADDRESSES_MAX);

		for (uint32_t i = 0; i < found; i++) {
			if (all[i].family != passes[p].family || all[i].loopback != loopback ||
			    room_bytes < passes[p].text_bytes + keep_bytes)
				continue;
			rb_wire_put_u8(w, all[i].family);
			rb_wire_put_bytes(w, all[i].bytes, all[i].family == 4 ? 4 : 16);
			room_bytes -= passes[p].text_bytes;
			count++;
		}
	}
	if (count == 0) { /* Not even the loopback interface is up, or nobody tells. */
		rb_wire_put_u8(w, 4);
		rb_wire_put_bytes(w, (const uint8_t[4]) { 127, 0, 0, 1 }, 4);
		count = 1;
	}
	return count;
}

static void check_make(const uint8_t *bytes, uint8_t check[RB_RV_MAC_BYTES])
{
	rb_rv_mac(bytes + 28, "rubato id", bytes, ID_CHECK_OFFSET, bytes + ID_ADDRESSES_OFFSET,
		  sizeof(rubato_id) - ID_ADDRESSES_OFFSET, check);
}

rubato_status rb_job_make_id(rubato_id *id, const char *interfaces)
{
	uint8_t random[16 + ID_SECRET_BYTES], check[RB_RV_MAC_BYTES];
	rubato_id fresh = { { 0 } };
	uint16_t port;
	int fd;

	if (sodium_init() < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "libsodium finds no source of randomness");
	RB_TRY(listener_open(&fd, &port));
	randombytes_buf(random, sizeof(random));
	struct rb_wire w = rb_wire_over(fresh.bytes, ID_CHECK_OFFSET);
	struct rb_wire a = rb_wire_over(fresh.bytes + ID_ADDRESSES_OFFSET,
					sizeof(fresh) - ID_ADDRESSES_OFFSET);

	rb_wire_put_u64(&w, ID_MAGIC);
	rb_wire_put_u8(&w, ID_VERSION);
	rb_wire_put_u8(&w, addresses_put(&a, interfaces));
	rb_wire_put_u16(&w, port);
	rb_wire_put_bytes(&w, random, sizeof(random));
	rb_wire_put_u32(&w, (uint32_t)fd);
	rb_wire_put_u32(&w, (uint32_t)getpid());
	rb_wire_put_u64(&w, process_start());
	RB_ASSERT(!w.bad && w.at == w.end && !a.bad);
	check_make(fresh.bytes, check);
	memcpy(fresh.bytes + ID_CHECK_OFFSET, check, ID_CHECK_BYTES);
	*id = fresh;
	sodium_memzero(random, sizeof(random));
	sodium_memzero(&fresh, sizeof(fresh));
	return RUBATO_OK;
}

static bool listener_here(int fd, uint16_t port)
{
	struct sockaddr_storage bound;
	socklen_t bound_bytes = sizeof(bound);
	int listening = 0;
	socklen_t size = sizeof(listening);
	uint16_t its_port;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0)
		return false;
	memcpy(&its_port, (const char *)&bound + offsetof(struct sockaddr_in, sin_port),
	       sizeof(its_port));
	return ntohs(its_port) == port;
}

/* "10.0.0.1:4000,[fd00::1]:4000": false when the bytes are none that make_id writes. */
static bool addresses_get(struct rb_wire *w, uint32_t count, uint16_t port, char *text,
			  size_t text_bytes)
{
	size_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint8_t family = rb_wire_get_u8(w), bytes[16] = { 0 };
		char host[INET6_ADDRSTRLEN];

		if (family != 4 && family != 6)
			return false;
		rb_wire_get_bytes(w, bytes, family == 4 ? 4 : 16);
		if (w->bad ||
		    inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes, host, sizeof(host)) == NULL)
			return false;
		int n = snprintf(text + at, text_bytes - at, family == 4 ? "%s%s:%u" : "%s[%s]:%u",
				 i > 0 ? "," : "", host, port);

		if (n < 0 || (size_t)n >= text_bytes - at)
			return false;
		at += (size_t)n;
	}
	return count > 0;
}

/* Rank 0 takes the listener over. */
static rubato_status listener_find(struct rb_wire *w, uint16_t port, int *listener)
{
	uint32_t fd = rb_wire_get_u32(w), pid = rb_wire_get_u32(w);
	uint64_t start = rb_wire_get_u64(w);

	if (pid != (uint32_t)getpid() || start != process_start())
		return RB_FAIL(
			RUBATO_ERR_ARGUMENT,
			"this id was made by process %u: rank 0 must join in the process that "
			"made it",
			pid);
	if (!listener_here((int)fd, port))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "this id has been used already: every job needs an id of its own");
	*listener = (int)fd;
	return RUBATO_OK;
}

rubato_status rb_job_from_id(const rubato_id *id, uint32_t rank, uint32_t rank_count,
			     struct rb_job *job)
{
	struct rb_job fresh = {
		.rank = rank, .rank_count = rank_count, .listens = true, .listener = -1
	};
	uint8_t check[RB_RV_MAC_BYTES];
	rubato_id copy = *id;
	struct rb_wire w = rb_wire_over(copy.bytes, ID_CHECK_OFFSET);
	struct rb_wire a =
		rb_wire_over(copy.bytes + ID_ADDRESSES_OFFSET, sizeof(copy) - ID_ADDRESSES_OFFSET);

	if (rank >= rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u: a job of %u has ranks from 0 on",
			       rank, rank_count);
	if (rb_wire_get_u64(&w) != ID_MAGIC)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "these bytes are not an id that rubato_id_create has made");
	uint8_t version = rb_wire_get_u8(&w), count = rb_wire_get_u8(&w);

	if (version != ID_VERSION)
		return RB_FAIL(
			RUBATO_ERR_MISMATCH,
			"an id of version %u, this build makes version %d: ranks run different "
			"builds of Rubato",
			version, ID_VERSION);
	check_make(copy.bytes, check);
	if (sodium_memcmp(check, copy.bytes + ID_CHECK_OFFSET, ID_CHECK_BYTES) != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "this id was damaged on its way here");
	uint16_t port = rb_wire_get_u16(&w);

	rb_wire_get_bytes(&w, fresh.nonce, sizeof(fresh.nonce));
	rb_wire_get_bytes(&w, fresh.secret, ID_SECRET_BYTES);
	fresh.secret_bytes = ID_SECRET_BYTES;
	if (!addresses_get(&a, count, port, fresh.root, sizeof(fresh.root)))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "this id names no address");
	if (rank == 0)
		RB_TRY(listener_find(&w, port, &fresh.listener));
	*job = fresh;
	sodium_memzero(&fresh, sizeof(fresh));
	sodium_memzero(&copy, sizeof(copy));
	return RUBATO_OK;
}

/* ---- Ids by a launcher's store ---- */

/* Without the zeros at its end: stores are small. */
static void id_print(const rubato_id *id, char *text)
{
	size_t bytes = sizeof(*id);

	while (bytes > 0 && id->bytes[bytes - 1] == 0)
		bytes--;
	(void)sodium_bin2hex(text, 2 * sizeof(*id) + 1, id->bytes, bytes);
}

static rubato_status id_scan(const char *text, rubato_id *id)
{
	const char *end = NULL;

	memset(id, 0, sizeof(*id));
	if (sodium_hex2bin(id->bytes, sizeof(*id), text, strlen(text), NULL, NULL, &end) != 0 ||
	    *end != '\0')
		return RB_FAIL(RUBATO_ERR_MISMATCH, "the launcher's store has no id for this job");
	return RUBATO_OK;
}

rubato_status rb_job_from_store(struct rb_store *store, const char *interfaces,
				uint64_t deadline_ns, struct rb_job *job)
{
	struct rb_job fresh = { .listener = -1 };
	char text[2 * sizeof(rubato_id) + 1] = "";
	const char *source = job->source;
	rubato_id id = { { 0 } };
	rubato_status err = RUBATO_OK;

	if (sodium_init() < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "libsodium finds no source of randomness");
	if (job->rank == 0) {
		RB_TRY(rb_job_make_id(&id, interfaces));
		RB_TRY(rb_job_from_id(&id, 0, job->rank_count, &fresh)); /* And its listener. */
		id_print(&id, text);
	}
	err = rb_store_pass(store, job->rank, text, sizeof(text), deadline_ns);
	if (err == RUBATO_OK && job->rank > 0)
		err = id_scan(text, &id);
	if (err == RUBATO_OK && job->rank > 0)
		err = rb_job_from_id(&id, job->rank, job->rank_count, &fresh);
	if (err != RUBATO_OK && fresh.listener >= 0)
		(void)close(fresh.listener);
	if (err == RUBATO_OK) {
		*job = fresh;
		job->source = source;
	}
	sodium_memzero(&fresh, sizeof(fresh));
	sodium_memzero(&id, sizeof(id));
	sodium_memzero(text, sizeof(text));
	return err;
}
