/*
 * fuzz_startup.c -- what ranks tell each other before they can send messages: their devices, and
 * the blobs with settings, cores and transports' addresses. One rank starts; the others' blobs are
 * copies of its own that a script alters, cuts or lengthens. Whatever they say, it ends, with a
 * status that fits, and leaves no descriptor behind.
 *
 * What would be tried elsewhere is led to a port of this machine where nobody listens.
 */
#include "tests/fuzz/fuzz_startup.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/limits.h"
#include "runtime/comm.h"
#include "runtime/open.h"
#include "runtime/startup/interfaces.h"
#include "runtime/startup/setup.h"
#include "tests/fuzz/fuzz.h"

#define RANKS_MAX 5u
#define EXCHANGES_MAX 8u
#define OPENING_NS 2000000u
#define DEVICES_HEAD 12u
#define DEVICES_ENTRY 17u

struct forger {
	struct rb_bootstrap base;
	struct fuzz_script *script;
	bool devices; /* The first exchange is that of devices. */
	uint32_t exchanges;
	void *blobs[EXCHANGES_MAX][RANKS_MAX];
	size_t bytes[EXCHANGES_MAX][RANKS_MAX];
	bool far;
};

/* Addresses of another network are connected to: of nobody's. */
static void devices_tame(struct forger *f, uint8_t *blob, size_t bytes, const void *own)
{
	if (bytes < DEVICES_HEAD || memcmp(blob, own, 8) == 0)
		return;
	f->far = true;
	blob[8] = 1; /* Port 1, in either order of bytes or one of 256 of that kind. */
	blob[9] = 0;
	for (size_t at = DEVICES_HEAD; at + DEVICES_ENTRY <= bytes; at += DEVICES_ENTRY) {
		memset(blob + at + 1, 0, 16);
		if (blob[at] == 4) {
			blob[at + 1] = 127;
			blob[at + 4] = 1;
		} else {
			blob[at + 16] = 1;
		}
	}
}

static void forge(struct forger *f, uint32_t r, const void *own, size_t own_bytes)
{
	struct fuzz_script *s = f->script;
	uint8_t changes = fuzz_take_u8(s), cut = fuzz_take_u8(s);
	size_t bytes = own_bytes;
	uint8_t *blob;

	if (cut >= 0xe0)
		bytes = fuzz_take_u64(s) % (RB_BLOB_BYTES_MAX + 1);
	else if (cut >= 0xc0)
		bytes = bytes > cut - 0xc0u ? bytes - (cut - 0xc0u) : 0;
	blob = calloc(1, bytes > 0 ? bytes : 1); /* To the byte, for the address sanitizer. */
	FUZZ_CHECK(blob != NULL);
	memcpy(blob, own, own_bytes < bytes ? own_bytes : bytes);
	for (uint8_t i = 0; i < changes % 8 && bytes > 0; i++) {
		size_t at = fuzz_take_u8(s);

		at |= changes >= 0x80 ? (size_t)fuzz_take_u8(s) << 8 : 0;
		blob[at % bytes] ^= fuzz_take_u8(s);
	}
	if (f->devices && f->exchanges == 0)
		devices_tame(f, blob, bytes, own);
	f->blobs[f->exchanges][r] = blob;
	f->bytes[f->exchanges][r] = bytes;
}

static rubato_status forger_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
				      const void *const **out, const size_t **out_bytes,
				      uint64_t deadline_ns)
{
	struct forger *f = (struct forger *)b;
	uint32_t now = f->exchanges;

	(void)deadline_ns;
	FUZZ_CHECK(now < EXCHANGES_MAX && in_bytes <= RB_BLOB_BYTES_MAX);
	for (uint32_t r = 0; r < b->rank_count; r++) {
		if (r != b->rank) {
			forge(f, r, in, in_bytes);
			continue;
		}
		f->blobs[now][r] = calloc(1, in_bytes > 0 ? in_bytes : 1);
		FUZZ_CHECK(f->blobs[now][r] != NULL);
		memcpy(f->blobs[now][r], in, in_bytes);
		f->bytes[now][r] = in_bytes;
	}
	f->exchanges++;
	*out = (const void *const *)f->blobs[now];
	*out_bytes = f->bytes[now];
	return RUBATO_OK;
}

static void forger_close(struct rb_bootstrap *b)
{
	struct forger *f = (struct forger *)b;

	for (uint32_t i = 0; i < f->exchanges; i++)
		for (uint32_t r = 0; r < b->rank_count; r++)
			free(f->blobs[i][r]);
	free(f);
}

static struct forger *forger_new(struct fuzz_script *s, bool devices)
{
	struct forger *f = calloc(1, sizeof(*f));

	FUZZ_CHECK(f != NULL);
	f->script = s;
	f->devices = devices;
	f->base.rank_count = 2 + fuzz_take_u8(s) % (RANKS_MAX - 1);
	f->base.rank = fuzz_take_u8(s) % f->base.rank_count;
	f->base.allgather = forger_allgather;
	f->base.close = forger_close;
	return f;
}

static uint32_t devices_run(struct fuzz_script *s)
{
	struct forger *f = forger_new(s, true);
	char devices[64];
	rubato_status err;
	uint32_t got;

	err = rb_interfaces_choose(&f->base, "", rb_clock_ns() + OPENING_NS, devices,
				   sizeof(devices));
	FUZZ_CHECK(err == RUBATO_OK || err == RUBATO_ERR_MISMATCH);
	FUZZ_CHECK(memchr(devices, 0, sizeof(devices)) != NULL);
	got = err == RUBATO_OK ? FUZZ_STARTUP_DEVICES : FUZZ_STARTUP_MALFORMED;
	if (f->exchanges > 1)
		got |= FUZZ_STARTUP_TRIED;
	FUZZ_CHECK(f->exchanges == 1 || f->far);
	forger_close(&f->base);
	return got;
}

static uint32_t opening_run(struct fuzz_script *s)
{
	static const struct rb_transport_ops *const transports[] = { &rb_transport_shm, NULL };
	struct forger *f = forger_new(s, false);
	struct rb_config config;
	struct rb_setup setup = { .config = &config,
				  .bootstrap = &f->base,
				  .heap_bytes = 1u << 20,
				  .transports = transports,
				  .timeout_ns = OPENING_NS };
	rubato_comm *comm = NULL;
	rubato_status err;

	FUZZ_CHECK(rb_config_read(&config) == RUBATO_OK);
	setup.deadline_ns = rb_clock_ns() + OPENING_NS;
	err = rb_comm_open(&setup, &comm);
	FUZZ_CHECK(err != RUBATO_OK && err != RUBATO_ERR_INTERNAL); /* Nobody is there. */
	return err == RUBATO_ERR_MISMATCH ? FUZZ_STARTUP_MALFORMED : FUZZ_STARTUP_CONNECTED;
}

uint32_t fuzz_startup_run(const uint8_t *data, size_t size_bytes)
{
	struct fuzz_script script = fuzz_script_over(data, size_bytes);
	uint64_t descriptors = rb_limit_descriptors().used;
	uint32_t got = fuzz_take_u8(&script) % 2 == 0 ? devices_run(&script) : opening_run(&script);

	FUZZ_CHECK(rb_limit_descriptors().used == descriptors);
	return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	(void)fuzz_startup_run(data, size_bytes);
	return 0;
}
