/* augment.c -- see augment.h. */
#include "trainer/data/augment.h"

#include <string.h>

#include "trainer/base/streams.h"

rubato_status tr_augment_check(const struct tr_data *data, struct tr_error *error)
{
	if (data->train.pixels != NULL && data->shape.height > 1)
		return RUBATO_OK;
	return tr_refuse(error, "--augment: for images of fashion-mnist and cifar10 only");
}

struct move {
	int32_t down, right;
	bool mirrored;
};

static float moved_pixel(const float *plane, struct tr_shape s, struct move m, int32_t y, int32_t x,
			 float black)
{
	int32_t height = (int32_t)s.height, width = (int32_t)s.width;
	int32_t from_y = y - m.down, from_x = x - m.right;

	if (from_y < 0 || from_y >= height || from_x < 0 || from_x >= width)
		return black;
	if (m.mirrored)
		from_x = width - 1 - from_x;
	return plane[from_y * width + from_x];
}

static void move_image(const struct tr_data *data, struct move m, float *image, float *spare)
{
	struct tr_shape s = data->shape;
	size_t plane = (size_t)s.height * s.width, at = 0;

	memcpy(spare, image, tr_shape_count(s) * sizeof(*image));
	for (uint32_t c = 0; c < s.channels; c++)
		for (int32_t y = 0; y < (int32_t)s.height; y++)
			for (int32_t x = 0; x < (int32_t)s.width; x++)
				image[at++] = moved_pixel(spare + c * plane, s, m, y, x,
							  data->pixel[c][0]);
}

void tr_augment(const struct tr_data *data, uint64_t seed, uint64_t first_place, uint32_t rows,
		float *x, float *spare)
{
	const uint64_t span = 2 * TR_AUGMENT_SHIFT + 1;

	for (uint32_t i = 0; i < rows; i++) {
		struct rng rng = rng_open(seed, TR_STREAM_AUGMENT, first_place + i);
		struct move m;

		m.down = (int32_t)rng_below(&rng, span) - TR_AUGMENT_SHIFT;
		m.right = (int32_t)rng_below(&rng, span) - TR_AUGMENT_SHIFT;
		m.mirrored = rng_below(&rng, 2) == 1;
		move_image(data, m, x + i * tr_shape_count(data->shape), spare);
	}
}
