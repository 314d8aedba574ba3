/*
 * archive.h -- a checkpoint of one rank: named pieces of bytes, whole or absent.
 *
 * The same calls save and load, so that what is written is what is read: code passes its variables
 * through tr_archive_bytes(), which copies them out when saving and in when loading.
 */
#ifndef TR_ARCHIVE_H
#define TR_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/note.h"

struct tr_archive;

bool tr_archive_loading(const struct tr_archive *archive);
/* Errors when loading: ARGUMENT (no such piece, or of another size), SYSTEM. */
rubato_status tr_archive_bytes(struct tr_archive *archive, const char *name, void *bytes,
			       size_t size_bytes, struct tr_note *note);

#endif
