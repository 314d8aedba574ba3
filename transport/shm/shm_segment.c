/*
 * shm_segment.c -- a rank's shared memory: laid out, made, mapped, counted; and ids.
 *
 * The memfd is as large as the heap's address space, but sparse: pages come into being when they
 * are touched. It is sealed against resizing, so that no peer can make a mapped page vanish.
 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"

#define HEAP_ALIGN (UINT64_C(2) << 20) /* A huge page. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

struct rb_shm_layout rb_shm_layout_of(uint32_t rank_count, uint64_t heap_bytes)
{
	struct rb_shm_layout l = { .rank_count = rank_count, .heap_bytes = heap_bytes };

	l.credits = RB_SHM_PAGE;
	l.rings = round_up(l.credits + rank_count * sizeof(struct rb_shm_credit), RB_SHM_PAGE);
	l.bulks = l.rings + rank_count * sizeof(struct rb_shm_ring);
	l.heap = round_up(l.bulks + (uint64_t)rank_count * RB_SHM_BULKS * RB_SHM_BULK_BYTES,
			  HEAP_ALIGN);
	l.size_bytes = l.heap + round_up(heap_bytes, RB_SHM_PAGE);
	return l;
}

static rubato_status map(int memory, const struct rb_shm_layout *layout, uint8_t **out)
{
	void *base = mmap(NULL, layout->size_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_NORESERVE, memory, 0);

	if (base == MAP_FAILED) {
		int why = errno;
		bool limited = rb_limit_address_space().limit != UINT64_MAX;

		return RB_FAIL(RUBATO_ERR_MEMORY,
			       "shm: cannot map a segment of %.4g GiB: %s; lower RUBATO_HEAP%s",
			       (double)layout->size_bytes / (double)(1u << 30), RB_ERRNO_TEXT(why),
			       limited ? ", or raise that limit" : "");
	}
	*out = base;
	return RUBATO_OK;
}

static rubato_status segment_new(int memory, int doorbell, const struct rb_shm_layout *layout,
				 struct rb_shm_segment **out)
{
	struct rb_shm_segment *s = calloc(1, sizeof(*s));
	rubato_status err;

	if (s == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: segment of %zu bytes", sizeof(*s));
	atomic_init(&s->references, 1);
	s->memory = memory;
	s->doorbell = doorbell;
	s->layout = *layout;
	err = map(memory, layout, &s->base);
	if (err != RUBATO_OK) {
		free(s);
		return err;
	}
	*out = s;
	return RUBATO_OK;
}

static rubato_status memory_new(int *out)
{
	*out = memfd_create("rubato", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*out >= 0)
		return RUBATO_OK;
	return RB_FAIL(errno == EMFILE || errno == ENFILE ? RUBATO_ERR_SYSTEM
							  : RUBATO_ERR_UNSUPPORTED,
		       "shm: memfd_create: %s", RB_ERRNO_TEXT(errno));
}

rubato_status rb_shm_memory_try(void)
{
	int memory;

	RB_TRY(memory_new(&memory));
	(void)close(memory);
	return RUBATO_OK;
}

/* One try; the descriptor is made anew each time because the seals are final. */
static rubato_status create_memory(const struct rb_shm_layout *layout, int *out)
{
	struct rlimit limit;
	int memory;

	/* Asked before, because the kernel answers beyond the limit with a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && layout->size_bytes > limit.rlim_cur)
		return RB_FAIL(RUBATO_ERR_MEMORY,
			       "shm: %llu bytes exceed the limit of file sizes (ulimit -f): raise "
			       "it, or lower RUBATO_HEAP",
			       (unsigned long long)layout->size_bytes);
	RB_TRY(memory_new(&memory));
	if (ftruncate(memory, (off_t)layout->size_bytes) != 0 ||
	    fcntl(memory, F_ADD_SEALS, SEALS) != 0) {
		rubato_status err =
			RB_FAIL(RUBATO_ERR_MEMORY, "shm: a memfd of %llu bytes: %s",
				(unsigned long long)layout->size_bytes, RB_ERRNO_TEXT(errno));

		(void)close(memory);
		return err;
	}
	*out = memory;
	return RUBATO_OK;
}

static rubato_status create_with(const struct rb_shm_layout *layout, int doorbell,
				 struct rb_shm_segment **out)
{
	int memory;
	rubato_status err;

	RB_TRY(create_memory(layout, &memory));
	err = segment_new(memory, doorbell, layout, out);
	if (err != RUBATO_OK)
		(void)close(memory);
	return err;
}

/* As large as the machine's memory, since nobody knows which rank will want it; less where all
 * segments of the host, mapped side by side, would leave the process too little. */
static uint64_t heap_default(uint32_t rank_count, uint64_t share_bytes)
{
	uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t want = RB_SHM_HEAP_MAX / rank_count;
	uint64_t rest = rb_shm_layout_of(rank_count, 0).size_bytes;

	want = machine < want ? machine : want;
	share_bytes = share_bytes > rest ? (share_bytes - rest) / HEAP_ALIGN * HEAP_ALIGN : 0;
	want = round_up(want, HEAP_ALIGN) < share_bytes ? round_up(want, HEAP_ALIGN) : share_bytes;
	return want > HEAP_ALIGN ? want : HEAP_ALIGN;
}

rubato_status rb_shm_segment_create(uint32_t rank_count, uint64_t heap_bytes, uint64_t share_bytes,
				    struct rb_shm_segment **out)
{
	bool fixed = heap_bytes != 0;
	uint64_t want_bytes = fixed ? heap_bytes : heap_default(rank_count, share_bytes);
	int doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rubato_status err;

	if (doorbell < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: eventfd: %s", RB_ERRNO_TEXT(errno));
	for (;;) {
		struct rb_shm_layout layout = rb_shm_layout_of(rank_count, want_bytes);

		err = create_with(&layout, doorbell, out);
		if (err != RUBATO_ERR_MEMORY || fixed || want_bytes <= HEAP_ALIGN)
			break;
		want_bytes = round_up(want_bytes / 2, HEAP_ALIGN);
	}
	if (err != RUBATO_OK)
		(void)close(doorbell);
	return err;
}

rubato_status rb_shm_segment_map(int memory, int doorbell, const struct rb_shm_layout *layout,
				 struct rb_shm_segment **out)
{
	struct stat stat;
	rubato_status err;
	int seals = fcntl(memory, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(memory, &stat) != 0 ||
	    (uint64_t)stat.st_size != layout->size_bytes)
		err = RB_FAIL(RUBATO_ERR_SYSTEM, "shm: a peer's memory is not as it said");
	else
		err = segment_new(memory, doorbell, layout, out);
	if (err != RUBATO_OK)
		(void)close(doorbell);
	else
		(*out)->memory = -1;
	(void)close(memory);
	return err;
}

void rb_shm_segment_keep(struct rb_shm_segment *segment)
{
	(void)atomic_fetch_add_explicit(&segment->references, 1, memory_order_relaxed);
}

void rb_shm_segment_drop(struct rb_shm_segment *segment)
{
	if (segment == NULL ||
	    atomic_fetch_sub_explicit(&segment->references, 1, memory_order_acq_rel) != 1)
		return;
	(void)munmap(segment->base, segment->layout.size_bytes);
	if (segment->memory >= 0)
		(void)close(segment->memory);
	(void)close(segment->doorbell);
	free(segment);
}

/* ---- Ids ---- */

#define SLOTS_FIRST 64u

struct rb_shm_id {
	void *object; /* NULL: free. */
	uint32_t generation;
	uint32_t next; /* Free slot, from 1; 0: none. */
};

static bool ids_grow(struct rb_shm_ids *ids)
{
	uint32_t count = ids->slot_count == 0 ? SLOTS_FIRST : 2 * ids->slot_count;
	struct rb_shm_id *slots = count > UINT32_MAX / 4
					  ? NULL
					  : realloc(ids->slots, count * sizeof(struct rb_shm_id));

	if (slots == NULL)
		return false;
	for (uint32_t i = ids->slot_count; i < count; i++)
		slots[i] = (struct rb_shm_id) { NULL, 0, i + 1 < count ? i + 2 : 0 };
	ids->free = ids->slot_count + 1;
	ids->slots = slots;
	ids->slot_count = count;
	return true;
}

uint64_t rb_shm_id_take(struct rb_shm_ids *ids, void *object)
{
	struct rb_shm_id *slot;
	uint32_t index;

	if (ids->free == 0 && !ids_grow(ids))
		return RB_SHM_ID_NONE;
	index = ids->free - 1;
	slot = &ids->slots[index];
	ids->free = slot->next;
	slot->object = object;
	return ((uint64_t)slot->generation << 32) | index;
}

void *rb_shm_id_find(const struct rb_shm_ids *ids, uint64_t id)
{
	uint32_t index = (uint32_t)id;

	if (index >= ids->slot_count || ids->slots[index].generation != (uint32_t)(id >> 32))
		return NULL;
	return ids->slots[index].object;
}

void rb_shm_id_give(struct rb_shm_ids *ids, uint64_t id)
{
	struct rb_shm_id *slot = &ids->slots[(uint32_t)id];

	RB_ASSERT(rb_shm_id_find(ids, id) != NULL);
	slot->object = NULL;
	slot->generation++;
	slot->next = ids->free;
	ids->free = (uint32_t)id + 1;
}

void rb_shm_ids_fini(struct rb_shm_ids *ids)
{
	free(ids->slots);
	*ids = (struct rb_shm_ids) { 0 };
}
