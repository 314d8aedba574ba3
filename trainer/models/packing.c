/* packing.c -- see packing.h. */
#include "trainer/models/packing.h"

#include <string.h>

bool tr_packing_open(struct tr_packing *p, struct tr_rooms *rooms, size_t capacity, size_t length)
{
	p->order = tr_room(rooms, capacity, sizeof(*p->order));
	p->tokens = tr_room(rooms, capacity, sizeof(*p->tokens));
	p->active = tr_room(rooms, length + 1, sizeof(*p->active));
	p->first = tr_room(rooms, length + 1, sizeof(*p->first));
	return !rooms->lost;
}

/* Rows by falling number of tokens, equal ones as they come: a row's place is the number of longer
 * ones, plus those before it of its own length. */
size_t tr_pack(struct tr_packing *p, const struct tr_sequence *s, const float *x, uint32_t rows,
	       int32_t *in, int32_t *out)
{
	const uint32_t length = s->length;
	const size_t width = (size_t)length + 1;

	memset(p->active, 0, width * sizeof(*p->active));
	for (uint32_t row = 0; row < rows; row++) {
		p->tokens[row] = tr_row_tokens(x + row * width, length);
		for (uint32_t t = 0; t < p->tokens[row]; t++)
			p->active[t]++;
	}
	p->step_count = 0;
	p->first[0] = 0;
	for (; p->step_count < length && p->active[p->step_count] > 0; p->step_count++)
		p->first[p->step_count + 1] = p->first[p->step_count] + p->active[p->step_count];
	for (uint32_t row = 0, *next = p->active; row < rows; row++)
		p->order[next[p->tokens[row]]++] = row;
	for (uint32_t t = 0; t < p->step_count; t++) { /* The counts were moved: */
		p->active[t] = (uint32_t)(p->first[t + 1] - p->first[t]);
		for (uint32_t j = 0; j < p->active[t]; j++) {
			const float *token = x + p->order[j] * width + t;

			in[p->first[t] + j] = (int32_t)token[0];
			out[p->first[t] + j] = (int32_t)token[1];
		}
	}
	return p->first[p->step_count];
}
