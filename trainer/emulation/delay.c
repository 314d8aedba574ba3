/* delay.c -- see delay.h. */
#include "trainer/emulation/delay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/streams.h"

static bool times_read(const char *option, const char *text, struct tr_delay *delay,
		       struct option_error *error)
{
	char word[64];

	for (;;) {
		size_t length = strcspn(text, ",");

		if (delay->count == TR_DELAYS_MAX)
			return option_refuse(error, "%s: at most %d times", option, TR_DELAYS_MAX);
		snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), text);
		if (!value_time(option, word, 1, &delay->ns[delay->count], error))
			return false;
		delay->count++;
		if (text[length] == '\0')
			return true;
		if (delay->kind != TR_DELAY_RANDOM)
			return option_refuse(error, "%s: only random takes several times", option);
		text += length + 1;
	}
}

const char *const tr_delay_names[] = { "none",     "random:T[,T..]", "rotating:T",
				       "linear:T", "rank:R:T",       NULL };

bool tr_delay_parse(const char *option, const char *text, void *to, struct option_error *error)
{
	struct tr_delay *delay = to;
	uint32_t kind;
	char *end;

	*delay = (struct tr_delay) { .kind = TR_DELAY_NONE };
	if (!value_choice(option, text, tr_delay_names, &kind, &text, error))
		return false;
	if (kind == TR_DELAY_NONE)
		return true;
	delay->kind = (enum tr_delay_kind)kind;
	if (kind == TR_DELAY_RANK) {
		unsigned long rank = strtoul(text, &end, 10);

		if (text[0] < '0' || text[0] > '9' || *end != ':' || rank > UINT32_MAX)
			return option_refuse(error, "%s: rank:R:T takes a rank and a time", option);
		delay->rank = (uint32_t)rank;
		text = end + 1;
	}
	return times_read(option, text, delay, error);
}

rubato_status tr_delay_check(const struct tr_delay *delay, uint32_t rank_count,
			     struct tr_error *error)
{
	bool ramps = delay->kind == TR_DELAY_ROTATING || delay->kind == TR_DELAY_LINEAR;

	if (delay->kind == TR_DELAY_RANK && delay->rank >= rank_count)
		return tr_refuse(error, "--delay: there is no rank %u among %u", delay->rank,
				 rank_count);
	if (ramps && rank_count < 2)
		return tr_refuse(error, "--delay: a ramp over a single rank delays nobody");
	return RUBATO_OK;
}

static uint64_t ramp(uint64_t ns, uint64_t place, uint32_t rank_count)
{
	return rank_count < 2 ? 0 : (uint64_t)((double)ns * (double)place / (rank_count - 1));
}

uint64_t tr_delay_at(const struct tr_delay *delay, uint64_t seed, uint32_t rank,
		     uint32_t rank_count, uint64_t step)
{
	struct rng rng = rng_open(seed, TR_STREAM_DELAY, step);
	uint64_t sum_ns = 0;

	switch (delay->kind) {
	case TR_DELAY_NONE:
		return 0;
	case TR_DELAY_RANDOM:
		for (uint32_t i = 0; i < delay->count; i++)
			if (rng_below(&rng, rank_count) == rank)
				sum_ns += delay->ns[i];
		return sum_ns;
	case TR_DELAY_ROTATING:
		return ramp(delay->ns[0], (rank + step) % rank_count, rank_count);
	case TR_DELAY_LINEAR:
		return ramp(delay->ns[0], rank, rank_count);
	case TR_DELAY_RANK:
		return rank == delay->rank ? delay->ns[0] : 0;
	}
	return 0;
}
