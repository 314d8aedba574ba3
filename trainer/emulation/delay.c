/* delay.c -- see delay.h. */
#include "trainer/emulation/delay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/streams.h"
#include "trainer/base/values.h"

static rubato_status read_times(struct tr_delay *delay, const char *text, struct tr_error *error)
{
	char word[64];

	for (;;) {
		size_t length = strcspn(text, ",");

		if (delay->count == TR_DELAYS_MAX)
			return tr_refuse(error, "--delay: at most %d times", TR_DELAYS_MAX);
		snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), text);
		TR_TRY(tr_parse_time("--delay", word, &delay->ns[delay->count], error));
		delay->count++;
		if (text[length] == '\0')
			return RUBATO_OK;
		if (delay->kind != TR_DELAY_RANDOM)
			return tr_refuse(error, "--delay: only random takes several times");
		text += length + 1;
	}
}

const char *const tr_delay_names[] = { "none",     "random:T[,T..]", "rotating:T",
				       "linear:T", "rank:R:T",       NULL };

rubato_status tr_delay_parse(struct tr_delay *delay, const char *text, struct tr_error *error)
{
	unsigned kind;
	char *end;

	*delay = (struct tr_delay) { .kind = TR_DELAY_NONE };
	TR_TRY(tr_parse_choice("--delay", text, tr_delay_names, &kind, &text, error));
	if (kind == TR_DELAY_NONE)
		return RUBATO_OK;
	delay->kind = (enum tr_delay_kind)kind;
	if (kind == TR_DELAY_RANK) {
		unsigned long rank = strtoul(text, &end, 10);

		if (text[0] < '0' || text[0] > '9' || *end != ':' || rank > UINT32_MAX)
			return tr_refuse(error, "--delay: rank:R:T wants a rank and a time");
		delay->rank = (uint32_t)rank;
		text = end + 1;
	}
	return read_times(delay, text, error);
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
