/* streams.h -- what the trainer draws at random, each from a stream of its own: rng_open(). */
#ifndef TR_STREAMS_H
#define TR_STREAMS_H

#include "programs/rng.h"

enum tr_stream {
	TR_STREAM_SHUFFLE = 1,
	TR_STREAM_INIT = 2,
	TR_STREAM_DELAY = 3,
	TR_STREAM_SYNTHETIC = 11,
	TR_STREAM_AUGMENT = 12,
};

#endif
