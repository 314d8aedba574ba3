/* fuzz_verbs.h -- one script for a rank and what a peer may send, see fuzz_verbs.c. */
#ifndef RB_TESTS_FUZZ_VERBS_H
#define RB_TESTS_FUZZ_VERBS_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_VERBS_RECEIVED 1u  /* A receive was completed by what came. */
#define FUZZ_VERBS_MISMATCH 2u  /* One met a message of another kind or size. */
#define FUZZ_VERBS_SENT 4u      /* A send or a put that had to wait was served. */
#define FUZZ_VERBS_LOST 8u      /* The peer was caught breaking the protocol. */
#define FUZZ_VERBS_OPENED 16u   /* A key was taken. */
#define FUZZ_VERBS_WRITTEN 32u  /* The peer wrote where it had been invited to. */
#define FUZZ_VERBS_DEGRADED 64u /* One of two rails failed by what the peer said. */
#define FUZZ_VERBS_BITS 7u

/* Traps when an invariant breaks. Returns what the script got to. */
uint32_t fuzz_verbs_run(const uint8_t *data, size_t size_bytes);

#endif
