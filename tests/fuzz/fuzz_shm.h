/* fuzz_shm.h -- one script for a rank and what a peer may write, see fuzz_shm.c. */
#ifndef RB_TESTS_FUZZ_SHM_H
#define RB_TESTS_FUZZ_SHM_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_SHM_RECEIVED 1u /* A receive was completed by a cell. */
#define FUZZ_SHM_MISMATCH 2u /* One met a message of another kind or size. */
#define FUZZ_SHM_SENT 4u     /* A send or a put went out that had to wait. */
#define FUZZ_SHM_LOST 8u     /* The peer was caught writing nonsense. */
#define FUZZ_SHM_OPENED 16u  /* A key was taken. */

/* Traps when an invariant breaks. Returns what the script got to. */
uint32_t fuzz_shm_run(const uint8_t *data, size_t size_bytes);

#endif
