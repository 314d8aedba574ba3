/* identity.c -- operators' identities, as bits: one table of types. */
#include "collectives/reduce/identity.h"

#include <string.h>

/* The bits of least, greatest and one, low bytes first: identities of max, min and prod. */
static const uint64_t identities[RUBATO_TYPE_COUNT][3] = {
	[RUBATO_FLOAT32] = { 0xff800000, 0x7f800000, 0x3f800000 },
	[RUBATO_FLOAT64] = { 0xfff0000000000000, 0x7ff0000000000000, 0x3ff0000000000000 },
	[RUBATO_FLOAT16] = { 0xfc00, 0x7c00, 0x3c00 },
	[RUBATO_BFLOAT16] = { 0xff80, 0x7f80, 0x3f80 },
	[RUBATO_INT8] = { 0x80, INT8_MAX, 1 },
	[RUBATO_INT16] = { 0x8000, INT16_MAX, 1 },
	[RUBATO_INT32] = { 0x80000000, INT32_MAX, 1 },
	[RUBATO_INT64] = { 0x8000000000000000, INT64_MAX, 1 },
	[RUBATO_UINT8] = { 0, UINT8_MAX, 1 },
	[RUBATO_UINT16] = { 0, UINT16_MAX, 1 },
	[RUBATO_UINT32] = { 0, UINT32_MAX, 1 },
	[RUBATO_UINT64] = { 0, UINT64_MAX, 1 },
};

void rb_reduce_identity(rubato_type type, rubato_operator op, void *to, uint64_t count)
{
	static const uint8_t columns[RUBATO_OPERATOR_COUNT] = {
		[RUBATO_MIN] = 1, [RUBATO_PROD] = 2
	};
	const size_t size = rubato_type_bytes(type);
	const bool adding = op == RUBATO_SUM || op == RUBATO_AVG;
	const uint64_t element = adding ? 0 : identities[type][columns[op]];

	if (element == 0) {
		memset(to, 0, (size_t)(count * size));
		return;
	}
	for (uint64_t i = 0; i < count; i++)
		memcpy((uint8_t *)to + i * size, &element, size);
}
