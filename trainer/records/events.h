/*
 * events.h -- what metrics.jsonl says, as a file that TensorBoard shows: of each line an event, and
 * in it each number under its key.
 *
 * Events bear the time of the run, in place of that of the day, so "relative" is the time of
 * training, also where that is virtual, and equal runs leave equal files.
 */
#ifndef TR_EVENTS_H
#define TR_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

#define TR_EVENTS_NAME "events.out.tfevents.rubato" /* TensorBoard looks for the middle of it. */

/* Both write to a descriptor, each whole with one write(). False: errno says why. */
bool tr_events_begin(int fd);
bool tr_events_line(int fd, const char *line, size_t line_bytes);

#endif
