/* faults.h -- the faults that mutate.py has put into a test's copies of the code. */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

struct fault {
	const char *name;
	const char *known; /* What the test needs to know: a case, a seed to begin with. */
};

extern const struct fault faults[];
extern const size_t fault_count;

/* The test's: whether the copies have fault `number`, from 1. */
bool fault_chosen(unsigned int number);

#endif
