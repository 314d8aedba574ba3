/*
 * process.h -- whether another process still runs, and where numbers of processes mean the same.
 * A forked child holds copies of its parent's sockets, so that these tell of the parent's end only
 * when the child ends, too. The kernel has a descriptor for a process itself: it becomes readable
 * when the process ends, however it ends.
 */
#ifndef RB_BASE_PROCESS_H
#define RB_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Of a process by its number here. -1, and errno: there is none of that number (ESRCH), or no such
 * descriptor (ENOSYS before Linux 5.3; EPERM in some containers; EMFILE). */
int rb_process_open(int32_t number);
/* Whether the process behind such a descriptor has ended. */
bool rb_process_ended(int descriptor);
/* The same by its number, now: false where nobody knows. */
bool rb_process_gone(int32_t number);
/* The name of the running kernel, new at each boot, as text without an end. False: /proc does not
 * say. */
#define RB_BOOT_ID_BYTES 36
bool rb_boot_id(uint8_t boot[RB_BOOT_ID_BYTES]);
/* Opens of the descriptors 0 to 2 those that are closed, on /dev/null: else the next that this
 * process opens, a socket for one, has such a number, and what is printed goes there. */
void rb_process_standard_open(void);
/* Names the kernel and the namespace in which processes have their numbers; 0: /proc does not
 * say. */
uint64_t rb_process_host(void);

#endif
