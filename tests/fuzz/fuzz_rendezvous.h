/* fuzz_rendezvous.h -- one script for two machines, see fuzz_rendezvous.c. */
#ifndef RB_TESTS_FUZZ_RENDEZVOUS_H
#define RB_TESTS_FUZZ_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Traps when an invariant breaks. True: the script got as far as a whole exchange. */
bool fuzz_rendezvous_run(const uint8_t *data, size_t size_bytes);

#endif
