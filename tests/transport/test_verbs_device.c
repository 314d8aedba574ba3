/*
 * test_verbs_device.c -- messages and puts of a device's memory over verbs, registered by dma-buf.
 *
 * The device is a file in memory: what its addresses are cannot be read or written by processors,
 * which end a process that tries; a second mapping of the file is what its owner sees. Its dma-buf
 * is the file itself, for the mock of libibverbs; with TEST_UDMABUF=1 it is made of the file by
 * /dev/udmabuf, for a kernel (tests/rdma-vm/dmabuf).
 */
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sync.h"
#include "tests/check_main.h"
#include "transport/transport.h"

#define RANKS 2
#define DEVICE_BYTES (8u << 20)
#define HALF (DEVICE_BYTES / 2)
#define AWAY 4196u /* Of buffers in their half: no page begins there. */
#define DEADLINE_NS 30000000000u

/* As ck_assert, but free when it holds: Check notes each with a system call. */
#define HOLDS(expr)                                                                                \
	do {                                                                                       \
		if (!(expr))                                                                       \
			ck_abort_msg("'" #expr "' does not hold");                                 \
	} while (0)

enum way { EXPORTS, REFUSES }; /* Of a device: its memory has a dma-buf, or none. */

struct device {
	uint8_t *base, *seen;
	int file, dmabuf;
	enum way way;
	_Atomic uint32_t exported, flushed;
};

struct job;
struct rank {
	struct job *job;
	uint32_t rank;
	struct rb_endpoint *ep;
	struct device device;
	uint8_t *host;
	bool connected;
};

struct job {
	struct rank ranks[RANKS];
	uint8_t address[RANKS][RB_ADDRESS_BYTES_MAX];
	size_t address_bytes[RANKS];
	uint8_t key[RB_KEY_BYTES_MAX];
	size_t key_bytes;
	uint64_t nonce;
	void (*body)(struct rank *r);
	_Atomic uint32_t arrived;
};

/* ---- The device ---- */

static bool knows(void *arg, const void *address, size_t size_bytes)
{
	const struct device *d = arg;
	const uint8_t *at = address;

	return at >= d->base && at < d->base + DEVICE_BYTES &&
	       size_bytes <= (size_t)(d->base + DEVICE_BYTES - at);
}

static rubato_status export_dmabuf(void *arg, const void *address, size_t size_bytes, int *fd,
				   uint64_t *offset)
{
	struct device *d = arg;

	ck_assert(knows(arg, address, size_bytes));
	if (d->way == REFUSES)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "no dma-buf");
	*fd = dup(d->dmabuf);
	*offset = (uint64_t)((const uint8_t *)address - d->base);
	ck_assert_int_ge(*fd, 0);
	atomic_fetch_add(&d->exported, 1);
	return RUBATO_OK;
}

static uint8_t *seen_of(struct device *d, const void *address)
{
	if (!knows(d, address, 1))
		return (uint8_t *)(uintptr_t)address;
	return d->seen + ((const uint8_t *)address - d->base);
}

static rubato_status copy(void *arg, void *to, const void *from, size_t size_bytes)
{
	memcpy(seen_of(arg, to), seen_of(arg, from), size_bytes);
	return RUBATO_OK;
}

static uint32_t ways(void *arg, const char **why)
{
	(void)arg;
	*why = NULL;
	return RB_MEMORY_BY_DMABUF;
}

static rubato_status flush(void *arg)
{
	struct device *d = arg;

	atomic_fetch_add(&d->flushed, 1);
	return RUBATO_OK;
}

static int dmabuf_of(int file)
{
	struct udmabuf_create make = { .memfd = (uint32_t)file, .size = DEVICE_BYTES };
	int udmabuf, made;

	if (getenv("TEST_UDMABUF") == NULL)
		return dup(file);
	udmabuf = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	ck_assert_msg(udmabuf >= 0, "/dev/udmabuf: is the module there?");
	ck_assert_int_eq(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	made = ioctl(udmabuf, UDMABUF_CREATE, &make);
	ck_assert_msg(made >= 0, "UDMABUF_CREATE failed");
	(void)close(udmabuf);
	return made;
}

static void device_open(struct device *d)
{
	d->file = memfd_create("device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(d->file, 0);
	ck_assert_int_eq(ftruncate(d->file, DEVICE_BYTES), 0);
	d->seen = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, d->file, 0);
	d->base = mmap(NULL, DEVICE_BYTES, PROT_NONE, MAP_SHARED, d->file, 0);
	ck_assert(d->seen != MAP_FAILED && d->base != MAP_FAILED);
	d->dmabuf = dmabuf_of(d->file);
}

static void device_close(struct device *d)
{
	(void)munmap(d->seen, DEVICE_BYTES);
	(void)munmap(d->base, DEVICE_BYTES);
	(void)close(d->dmabuf);
	(void)close(d->file);
}

/* ---- Two ranks, as threads ---- */

static void barrier(struct rank *r)
{
	uint32_t until = atomic_fetch_add(&r->job->arrived, 1) / RANKS * RANKS + RANKS;
	uint64_t late = rb_clock_ns() + DEADLINE_NS;

	while (atomic_load(&r->job->arrived) < until) {
		if (r->connected)
			(void)r->ep->ops->poll(r->ep); /* Nothing of ours is under way. */
		rb_yield();
		HOLDS(rb_clock_ns() < late);
	}
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;
	struct job *job = r->job;
	struct rb_transport_options options = {
		.rank = r->rank,
		.rank_count = RANKS,
		.interface = getenv("TEST_UDMABUF") == NULL ? NULL
			     : r->rank == 0                 ? "rxe0"
							    : "rxe1",
		.device = { &r->device, ways, knows, export_dmabuf, copy, flush, NULL, NULL },
	};
	const void *addresses[RANKS] = { job->address[0], job->address[1] };
	static const bool use[RANKS] = { true, true };

	memcpy(options.job, &job->nonce, sizeof(job->nonce));
	ck_assert_msg(rb_transport_verbs.open(&options, &r->ep) == RUBATO_OK, "%s",
		      rubato_error_text());
	ck_assert_int_eq(rb_transport_verbs.address(r->ep, job->address[r->rank],
						    &job->address_bytes[r->rank]),
			 RUBATO_OK);
	barrier(r);
	ck_assert_msg(rb_transport_verbs.connect(r->ep, addresses, job->address_bytes, use,
						 rb_clock_ns() + DEADLINE_NS) == RUBATO_OK,
		      "%s", rubato_error_text());
	r->connected = true;
	barrier(r);
	job->body(r);
	barrier(r);
	rb_transport_verbs.close(r->ep, false, rb_clock_ns() + DEADLINE_NS);
	return NULL;
}

static void run(void (*body)(struct rank *r), enum way way)
{
	struct job *job = calloc(1, sizeof(*job));
	struct rb_thread threads[RANKS];

	ck_assert_ptr_nonnull(job);
	job->body = body;
	job->nonce = rb_clock_ns();
	for (uint32_t i = 0; i < RANKS; i++) {
		job->ranks[i].job = job;
		job->ranks[i].rank = i;
		job->ranks[i].device.way = way;
		device_open(&job->ranks[i].device);
		job->ranks[i].host = calloc(1, DEVICE_BYTES);
		ck_assert_ptr_nonnull(job->ranks[i].host);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		ck_assert_int_eq(rb_thread_start(&threads[i], rank_main, &job->ranks[i]),
				 RUBATO_OK);
	for (uint32_t i = 0; i < RANKS; i++)
		rb_thread_join(&threads[i]);
	for (uint32_t i = 0; i < RANKS; i++) {
		device_close(&job->ranks[i].device);
		free(job->ranks[i].host);
	}
	free(job);
}

/* ---- What goes from rank 0 to rank 1 ---- */

static uint8_t pattern(size_t i, uint32_t round)
{
	return (uint8_t)(i * 7 + (i >> 8) * 13 + round * 31 + 1);
}

static void finish(struct rank *r, const struct rb_request *request)
{
	uint64_t late = rb_clock_ns() + DEADLINE_NS;

	while (request->state != RB_REQUEST_DONE) {
		(void)r->ep->ops->poll(r->ep);
		HOLDS(rb_clock_ns() < late);
	}
	ck_assert_int_eq(request->status, RUBATO_OK);
}

static struct rb_request request_of(struct rank *r, void *buffer, size_t size_bytes, uint32_t round,
				    const struct rb_where *where)
{
	return (struct rb_request) { .peer = 1 - r->rank,
				     .tag = { .call = 77, .step = round },
				     .buffer = buffer,
				     .size_bytes = size_bytes,
				     .where = where };
}

/* A message of that size; `from` and `to`: whether a device's. */
static void message(struct rank *r, size_t size_bytes, uint32_t round, bool device,
		    struct rb_region *region)
{
	uint8_t *buffer = (device ? r->device.base : r->host) + AWAY;
	uint8_t *seen = seen_of(&r->device, buffer);
	struct rb_where where = { .base = buffer,
				  .kind = device ? RB_MEMORY_DEVICE : RB_MEMORY_HOST,
				  .regions = region != NULL && device ? &region : NULL };
	struct rb_request request = request_of(r, buffer, size_bytes, round, &where);

	if (r->rank == 0) {
		for (size_t i = 0; i < size_bytes; i++)
			seen[i] = pattern(i, round);
		r->ep->ops->send(r->ep, &request);
		finish(r, &request);
		return;
	}
	memset(seen - 1, 0, size_bytes + 2);
	r->ep->ops->recv(r->ep, &request);
	finish(r, &request);
	for (size_t i = 0; i < size_bytes; i++)
		HOLDS(seen[i] == pattern(i, round));
	ck_assert(seen[-1] == 0 && seen[size_bytes] == 0);
}

static void messages(struct rank *r, struct rb_region *region)
{
	static const size_t sizes[] = {
		0, 1, 8, 1000, 5000, 16384, 16385, 70000, 1u << 20, 3u << 20
	};
	uint32_t round = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t kinds = 0; kinds < 4; kinds++)
			message(r, sizes[i], round++, (kinds >> r->rank & 1) != 0, region);
}

static void plain(struct rank *r)
{
	ck_assert(rb_endpoint_takes(r->ep, RB_MEMORY_DEVICE));
	messages(r, NULL);
	ck_assert_uint_gt(atomic_load(&r->device.exported), 0);
}

/* Registered once: no message is, then. */
static void registered(struct rank *r)
{
	struct rb_region *region;
	uint32_t exported;

	ck_assert_msg(r->ep->ops->region_add(r->ep, r->device.base, DEVICE_BYTES, &region) ==
			      RUBATO_OK,
		      "%s", rubato_error_text());
	region->kind = RB_MEMORY_DEVICE;
	exported = atomic_load(&r->device.exported);
	ck_assert_uint_gt(exported, 0);
	messages(r, region);
	ck_assert_uint_eq(atomic_load(&r->device.exported), exported);
	barrier(r);
	r->ep->ops->region_drop(r->ep, region);
}

/* Pieces, which the device's owner copies. */
static void without(struct rank *r)
{
	struct rb_region *region;

	ck_assert_int_eq(r->ep->ops->region_add(r->ep, r->device.base, DEVICE_BYTES, &region),
			 RUBATO_ERR_UNSUPPORTED);
	messages(r, NULL);
	ck_assert_uint_eq(atomic_load(&r->device.exported), 0);
}

/* Into a device's region, out of host memory and of a device's. */
static void put_all(struct rank *r)
{
	struct job *job = r->job;
	struct rb_region *region = NULL;
	struct rb_remote *remote;

	if (r->rank == 1) {
		ck_assert_int_eq(
			r->ep->ops->region_add(r->ep, r->device.base + AWAY, HALF, &region),
			RUBATO_OK);
		region->kind = RB_MEMORY_DEVICE;
		ck_assert_int_eq(r->ep->ops->region_key(r->ep, region, job->key, &job->key_bytes),
				 RUBATO_OK);
	}
	barrier(r);
	if (r->rank == 0)
		ck_assert_int_eq(
			r->ep->ops->remote_open(r->ep, 1, job->key, job->key_bytes, &remote),
			RUBATO_OK);
	for (uint32_t round = 0; round < 6; round++) {
		size_t bytes = (size_t[]) { 100, 20000, 1u << 20 }[round % 3];
		uint8_t *buffer = (round < 3 ? r->host : r->device.base) + AWAY;
		struct rb_where where = { .base = buffer,
					  .kind = round < 3 ? RB_MEMORY_HOST : RB_MEMORY_DEVICE };
		struct rb_request request =
			request_of(r, r->rank == 0 ? buffer : NULL, 0, 1000 + round, &where);

		if (r->rank == 0) {
			for (size_t i = 0; i < bytes; i++)
				seen_of(&r->device, buffer)[i] = pattern(i, round);
			request.size_bytes = bytes;
			request.remote = remote;
			request.remote_offset = 123;
			r->ep->ops->put(r->ep, &request);
		} else {
			request.where = NULL;
			r->ep->ops->recv(r->ep, &request);
		}
		finish(r, &request);
		for (size_t i = 0; i < bytes && r->rank == 1; i++)
			HOLDS(r->device.seen[AWAY + 123 + i] == pattern(i, round));
		barrier(r);
	}
	if (r->rank == 0)
		r->ep->ops->remote_close(r->ep, remote);
	else
		r->ep->ops->region_drop(r->ep, region);
}

START_TEST(device_memory_is_registered_for_a_message)
{
	run(plain, EXPORTS);
}
END_TEST

START_TEST(a_region_of_device_memory_is_registered_once)
{
	run(registered, EXPORTS);
}
END_TEST

START_TEST(device_memory_without_a_dmabuf_goes_in_pieces)
{
	run(without, REFUSES);
}
END_TEST

START_TEST(puts_reach_device_memory)
{
	run(put_all, EXPORTS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("device memory");
	Suite *suite = suite_create("verbs device memory");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, device_memory_is_registered_for_a_message);
	tcase_add_test(tc, a_region_of_device_memory_is_registered_once);
	tcase_add_test(tc, device_memory_without_a_dmabuf_goes_in_pieces);
	tcase_add_test(tc, puts_reach_device_memory);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
