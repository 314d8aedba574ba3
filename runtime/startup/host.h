/* host.h -- names for where a process runs: ranks with equal ones are at the same place. */
#ifndef RB_RUNTIME_HOST_H
#define RB_RUNTIME_HOST_H

#include <stdint.h>

uint64_t rb_text_hash(const char *text);
/* The kernel that this process runs on: ranks with equal ones share its cores. */
uint64_t rb_host_number(void);
/* Of the kernel's networks the one that this process sees: a namespace, where there are several. */
uint64_t rb_network_number(void);

#endif
