/*
 * archive.h -- a checkpoint of one rank: named pieces of bytes, whole or absent.
 *
 * The same calls save and load, so that what is written is what is read: code passes its variables
 * through tr_archive_bytes(), which copies them out when saving and in when loading. What loads a
 * vector of its own length passes the length first, under a name of its own.
 */
#ifndef TR_ARCHIVE_H
#define TR_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/base/vectors.h"

struct tr_archive;

bool tr_archive_loading(const struct tr_archive *archive);
/* Saving always returns RUBATO_OK, so that a rank whose disk is full stays in step with the others:
 * tr_archive_finish() says what went wrong. Names are used once in an archive. Errors when loading:
 * ARGUMENT (no such piece, or of another size). */
rubato_status tr_archive_bytes(struct tr_archive *archive, const char *name, void *bytes,
			       size_t size_bytes, struct tr_error *error);
/* The same of a variable. */
#define tr_archive_value(archive, name, value, error)                                              \
	tr_archive_bytes(archive, name, &(value), sizeof(value), error)

/* The same of a vector, which may lie elsewhere. Errors of saving: its own, at once. */
rubato_status tr_archive_vector(struct tr_archive *archive, const char *name,
				const struct tr_vectors *vectors, float *vector, size_t count,
				struct tr_error *error);

/* Saves to `path`, which appears (or is replaced) in tr_archive_finish(). */
rubato_status tr_archive_create(struct tr_archive **out, const char *path, struct tr_error *error);
/* Loads from `path`: reads all of it and verifies each piece. Errors: SYSTEM, ARGUMENT (no archive,
 * cut short or changed). */
rubato_status tr_archive_open(struct tr_archive **out, const char *path, struct tr_error *error);
/* Saving: all is on the disk now. Loading: every piece was taken. Errors: SYSTEM, ARGUMENT. */
rubato_status tr_archive_finish(struct tr_archive *archive, struct tr_error *error);
void tr_archive_close(struct tr_archive *archive); /* NULL is fine. */

#endif
