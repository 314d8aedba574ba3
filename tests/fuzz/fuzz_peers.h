/* fuzz_peers.h -- a rank whose peers send anything while it calls: fuzz_peers.c. */
#ifndef RB_TESTS_FUZZ_PEERS_H
#define RB_TESTS_FUZZ_PEERS_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_PEERS_NEWS 1u       /* News came. */
#define FUZZ_PEERS_LAST_WORDS 2u /* A peer went, and had said why. */
#define FUZZ_PEERS_SPLIT 4u      /* A communicator was split off. */
#define FUZZ_PEERS_REFUSED 8u    /* A split failed, and not over a peer that went. */
#define FUZZ_PEERS_CALLED 16u    /* A collective succeeded. */
#define FUZZ_PEERS_PUT 32u       /* A put went out. */
#define FUZZ_PEERS_BAD_KEY 64u   /* A peer's key was refused. */
#define FUZZ_PEERS_BITS 7u

/* Traps when an invariant breaks. Returns what the script got to. */
uint32_t fuzz_peers_run(const uint8_t *data, size_t size_bytes);

#endif
