/* crossing.c -- see crossing.h. */
#include "collectives/crossing.h"

double rb_crossing_byte_us(const struct rb_link *link, double call_bytes)
{
	double late = call_bytes - link->burst_bytes; /* What the rate bounds. */

	if (link->burst_bytes <= 0)
		return link->byte_us;
	return late > 0 ? link->byte_us * late / call_bytes : 0;
}
