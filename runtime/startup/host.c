/* host.c -- see host.h. */
#include "runtime/startup/host.h"

#include <sys/stat.h>

#include "base/process.h"
#include "base/rng.h"

uint64_t rb_text_hash(const char *text)
{
	uint64_t hash = 0;

	while (*text != '\0')
		hash = rb_mix(hash + (uint8_t)*text++ + 1);
	return hash;
}

uint64_t rb_host_number(void)
{
	char text[RB_BOOT_ID_BYTES + 1] = "";

	if (!rb_boot_id((uint8_t *)text))
		text[0] = '\0';
	return rb_text_hash(text);
}

uint64_t rb_network_number(void)
{
	struct stat ns = { .st_ino = 0 };

	(void)stat("/proc/self/ns/net", &ns);
	return rb_mix(rb_host_number() ^ ns.st_ino);
}
