/* sim_device.c -- see sim_device.h. */
#include "transport/sim/sim_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hollow.h"
#include "transport/sim/sim_cluster_inside.h"

#define PAGE 4096u

struct rb_sim_device_memory {
	uint8_t *base;
	size_t size_bytes, mapped_bytes; /* Asked for; in whole pages. */
	enum rb_memory_kind kind;
	uint32_t rank;
	bool freed; /* A crashed rank's peers may still look at it: until the cluster ends. */
	struct rb_sim_device_memory *next;
};

const rubato_sim_device *rb_sim_device_of(const struct rb_endpoint *ep)
{
	const rubato_sim_device *device;

	if (ep->ops->name != rb_transport_sim.name)
		return NULL;
	device = &rb_sim_cluster_of(ep)->options.device;
	return device->present != 0 ? device : NULL;
}

rubato_status rb_sim_device_new(struct rb_sim_cluster *c, uint32_t rank, enum rb_memory_kind kind,
				size_t size_bytes, void **out)
{
	struct rb_sim_device_memory *m = calloc(1, sizeof(*m));
	size_t bytes = (size_bytes / PAGE + 1) * PAGE;
	int access = kind == RB_MEMORY_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
	void *base = MAP_FAILED;

	if (m != NULL && bytes > size_bytes)
		base = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED) {
		free(m);
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes of %s memory", size_bytes,
			       rb_memory_kind_name(kind));
	}
	*m = (struct rb_sim_device_memory) { .base = base,
					     .size_bytes = size_bytes,
					     .mapped_bytes = bytes,
					     .kind = kind,
					     .rank = rank,
					     .next = c->device_memory };
	c->device_memory = m;
	*out = base;
	return RUBATO_OK;
}

static void memory_free(struct rb_sim_device_memory **at)
{
	struct rb_sim_device_memory *m = *at;

	*at = m->next;
	(void)munmap(m->base, m->mapped_bytes);
	free(m);
}

bool rb_sim_device_free(struct rb_sim_cluster *c, void *base)
{
	struct rb_sim_device_memory **at = &c->device_memory;

	while (*at != NULL && ((*at)->base != base || (*at)->freed))
		at = &(*at)->next;
	if (*at == NULL)
		return false;
	if (c->crashes)
		(*at)->freed = true;
	else
		memory_free(at);
	return true;
}

void rb_sim_devices_free(struct rb_sim_cluster *cluster)
{
	while (cluster->device_memory != NULL)
		memory_free(&cluster->device_memory);
}

static struct rb_sim_device_memory *memory_at(const struct rb_sim_cluster *c, const void *address)
{
	struct rb_sim_device_memory *m = c->device_memory;
	const uint8_t *at = address;

	while (m != NULL && (at < m->base || at >= m->base + m->mapped_bytes))
		m = m->next;
	return m;
}

size_t rb_sim_device_find(const struct rb_sim_cluster *cluster, const void *address,
			  enum rb_memory_kind *kind, uint32_t *rank)
{
	const struct rb_sim_device_memory *m = memory_at(cluster, address);

	if (m == NULL || m->freed || (const uint8_t *)address >= m->base + m->size_bytes)
		return 0;
	*kind = m->kind;
	*rank = m->rank;
	return (size_t)(m->base + m->size_bytes - (const uint8_t *)address);
}

static void access_set(struct rb_sim_cluster *c, const void *address, int access)
{
	const struct rb_sim_device_memory *m = memory_at(c, address);

	if (m != NULL && m->kind == RB_MEMORY_DEVICE)
		(void)mprotect(m->base, m->mapped_bytes, access);
}

void rb_sim_device_open(struct rb_sim_cluster *cluster, const void *address)
{
	access_set(cluster, address, PROT_READ | PROT_WRITE);
}

void rb_sim_device_shut(struct rb_sim_cluster *cluster, const void *address)
{
	access_set(cluster, address, PROT_NONE);
}

void rb_sim_device_copy(struct rb_sim_cluster *cluster, void *to, const void *from, size_t bytes)
{
	rb_sim_device_open(cluster, to);
	rb_sim_device_open(cluster, from);
	rb_hollow_copy(to, from, bytes);
	rb_sim_device_shut(cluster, to);
	rb_sim_device_shut(cluster, from);
}

void rb_sim_message_copy(struct rb_sim_cluster *cluster, void *to, const void *from, size_t bytes)
{
	if (cluster->options.device.network != 0)
		rb_sim_device_copy(cluster, to, from, bytes);
	else
		rb_hollow_copy(to, from, bytes);
}
