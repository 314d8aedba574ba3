/* fuzz_startup.h -- a rank that starts among others whose blobs say anything: fuzz_startup.c. */
#ifndef RB_TESTS_FUZZ_STARTUP_H
#define RB_TESTS_FUZZ_STARTUP_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_STARTUP_DEVICES 1u   /* Devices were chosen. */
#define FUZZ_STARTUP_TRIED 2u     /* Others' addresses were tried for it. */
#define FUZZ_STARTUP_MALFORMED 4u /* A blob was refused. */
#define FUZZ_STARTUP_CONNECTED 8u /* All blobs were taken, and nobody was there. */

/* Traps when an invariant breaks. Returns what the script got to. */
uint32_t fuzz_startup_run(const uint8_t *data, size_t size_bytes);

#endif
