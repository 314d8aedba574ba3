/*
 * archive.c -- the file of one rank's checkpoint: eight bytes of magic, then records.
 *
 *   crc32 of all that follows of the record | length of the name | length of the piece
 *   | name | piece
 *
 * The last record has no name, and the number of the others for a length: a file that was cut short
 * has none. Everything is little endian, as the machines that this runs on. Saving writes beside
 * the path, syncs, and renames.
 */
#include "trainer/checkpoint/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define MAGIC "RBCKPT2\n"
#define MAGIC_BYTES 8
#define NAME_BYTES_MAX 256

struct record {
	uint32_t crc, name_bytes;
	uint64_t size_bytes;
};

struct piece { /* Of a file that is being loaded. */
	const uint8_t *name, *bytes;
	uint32_t name_bytes;
	uint64_t size_bytes;
	bool taken;
};

struct tr_archive {
	char path[TR_PATH_BYTES], beside[TR_PATH_BYTES];
	FILE *file; /* Saving. */
	int reason; /* Saving: the first errno. */
	bool loading;
	uint8_t *all; /* Loading: the file, */
	size_t all_bytes;
	struct piece *pieces; /* what is in it, */
	uint64_t count;       /* (saving: how many were written) */
	uint64_t next;        /* and which is likely to be asked for. */
};

static uint32_t checksum(const struct record *record, const void *name, const void *bytes)
{
	uLong crc = crc32_z(0, (const Bytef *)&record->name_bytes, 4);

	crc = crc32_z(crc, (const Bytef *)&record->size_bytes, 8);
	crc = crc32_z(crc, name, record->name_bytes);
	if (bytes != NULL)
		crc = crc32_z(crc, bytes, record->size_bytes);
	return (uint32_t)crc;
}

bool tr_archive_loading(const struct tr_archive *archive)
{
	return archive->loading;
}

void tr_archive_close(struct tr_archive *archive)
{
	if (archive == NULL)
		return;
	if (archive->file != NULL) {
		fclose(archive->file);
		unlink(archive->beside);
	}
	free(archive->pieces);
	free(archive->all);
	free(archive);
}

static rubato_status make(struct tr_archive **out, const char *path, bool loading,
			  struct tr_error *error)
{
	struct tr_archive *archive = calloc(1, sizeof(*archive));

	if (archive == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", path);
	archive->loading = loading;
	snprintf(archive->path, TR_PATH_BYTES, "%s", path);
	if ((size_t)snprintf(archive->beside, TR_PATH_BYTES, "%s.part", path) >= TR_PATH_BYTES) {
		free(archive);
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%.200s...: the name is too long", path);
	}
	*out = archive;
	return RUBATO_OK;
}

/* ---- Saving ---- */

static void put(struct tr_archive *archive, const void *bytes, size_t size_bytes)
{
	if (archive->reason == 0 && size_bytes > 0 &&
	    fwrite(bytes, 1, size_bytes, archive->file) != size_bytes)
		archive->reason = errno;
}

static void put_record(struct tr_archive *archive, const char *name, const void *bytes,
		       uint64_t size_bytes)
{
	struct record record = { 0, (uint32_t)strlen(name), size_bytes };

	record.crc = checksum(&record, name, bytes);
	put(archive, &record, sizeof(record));
	put(archive, name, record.name_bytes);
	if (bytes != NULL)
		put(archive, bytes, size_bytes);
}

rubato_status tr_archive_create(struct tr_archive **out, const char *path, struct tr_error *error)
{
	struct tr_archive *archive = NULL;

	TR_TRY(make(&archive, path, false, error));
	archive->file = fopen(archive->beside, "wbe");
	if (archive->file == NULL) {
		tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", archive->beside, strerror(errno));
		tr_archive_close(archive);
		return RUBATO_ERR_SYSTEM;
	}
	put(archive, MAGIC, MAGIC_BYTES);
	*out = archive;
	return RUBATO_OK;
}

/* A rename is on the disk when its folder is. */
static int sync_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char folder[TR_PATH_BYTES] = ".";
	int fd, reason = 0;

	if (slash != NULL)
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path + 1), path);
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: this file system does without. */
		reason = errno;
	close(fd);
	return reason;
}

static rubato_status finish_saving(struct tr_archive *archive, struct tr_error *error)
{
	int reason;

	put_record(archive, "", NULL, archive->count);
	reason = archive->reason;
	if (reason == 0 && (fflush(archive->file) != 0 || fsync(fileno(archive->file)) != 0))
		reason = errno;
	if (fclose(archive->file) != 0 && reason == 0)
		reason = errno;
	archive->file = NULL;
	if (reason == 0 && rename(archive->beside, archive->path) != 0)
		reason = errno;
	if (reason != 0)
		unlink(archive->beside);
	else
		reason = sync_folder(archive->path);
	if (reason != 0)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", archive->path, strerror(reason));
	return RUBATO_OK;
}

/* ---- Loading ---- */

static rubato_status read_all(struct tr_archive *archive, struct tr_error *error)
{
	FILE *file = fopen(archive->path, "rbe");
	struct stat st;
	int reason = 0;

	if (file == NULL)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", archive->path, strerror(errno));
	if (fstat(fileno(file), &st) != 0) {
		reason = errno;
	} else {
		archive->all_bytes = (size_t)st.st_size;
		archive->all = malloc(archive->all_bytes + 1);
		if (archive->all == NULL)
			reason = ENOMEM;
		else if (fread(archive->all, 1, archive->all_bytes, file) != archive->all_bytes)
			reason = ferror(file) ? errno : EIO;
	}
	fclose(file);
	if (reason != 0)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", archive->path, strerror(reason));
	return RUBATO_OK;
}

static bool add_piece(struct tr_archive *archive, const struct piece *piece)
{
	struct piece *more;

	if ((archive->count & (archive->count + 1)) == 0 || archive->pieces == NULL) {
		more = realloc(archive->pieces, (2 * archive->count + 2) * sizeof(*more));
		if (more == NULL)
			return false;
		archive->pieces = more;
	}
	archive->pieces[archive->count++] = *piece;
	return true;
}

/* One record at *at, which moves on. False: it is damaged. */
static bool take_record(struct tr_archive *archive, size_t *at, struct piece *piece)
{
	size_t left = archive->all_bytes - *at;
	struct record record;
	bool last;

	if (left < sizeof(record))
		return false;
	memcpy(&record, archive->all + *at, sizeof(record));
	left -= sizeof(record);
	last = record.name_bytes == 0;
	if (record.name_bytes > NAME_BYTES_MAX || record.name_bytes > left ||
	    (!last && record.size_bytes > left - record.name_bytes))
		return false;
	*piece = (struct piece) { .name = archive->all + *at + sizeof(record),
				  .name_bytes = record.name_bytes,
				  .size_bytes = record.size_bytes };
	piece->bytes = piece->name + record.name_bytes;
	*at += sizeof(record) + record.name_bytes + (last ? 0 : (size_t)record.size_bytes);
	return checksum(&record, piece->name, last ? NULL : piece->bytes) == record.crc;
}

static rubato_status take_records(struct tr_archive *archive, struct tr_error *error)
{
	size_t at = MAGIC_BYTES;
	struct piece piece;

	if (archive->all_bytes < MAGIC_BYTES || memcmp(archive->all, MAGIC, MAGIC_BYTES) != 0)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: no checkpoint of this version",
			       archive->path);
	for (;;) {
		if (!take_record(archive, &at, &piece))
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s: damaged: piece %llu is cut short or changed",
				       archive->path, (unsigned long long)archive->count);
		if (piece.name_bytes == 0)
			break;
		if (!add_piece(archive, &piece))
			return tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory",
				       archive->path);
	}
	if (piece.size_bytes != archive->count || at != archive->all_bytes)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: damaged: pieces are missing",
			       archive->path);
	return RUBATO_OK;
}

rubato_status tr_archive_open(struct tr_archive **out, const char *path, struct tr_error *error)
{
	struct tr_archive *archive = NULL;
	rubato_status err;

	TR_TRY(make(&archive, path, true, error));
	err = read_all(archive, error);
	if (err == RUBATO_OK)
		err = take_records(archive, error);
	if (err) {
		tr_archive_close(archive);
		return err;
	}
	*out = archive;
	return RUBATO_OK;
}

/* They are asked for in the order in which they were saved, or nearly. */
static struct piece *find_piece(struct tr_archive *archive, const char *name)
{
	size_t name_bytes = strlen(name);

	for (uint64_t i = 0; i < archive->count; i++) {
		uint64_t place = (archive->next + i) % archive->count;
		struct piece *piece = &archive->pieces[place];

		if (piece->name_bytes == name_bytes && memcmp(piece->name, name, name_bytes) == 0) {
			archive->next = place + 1;
			return piece;
		}
	}
	return NULL;
}

rubato_status tr_archive_bytes(struct tr_archive *archive, const char *name, void *bytes,
			       size_t size_bytes, struct tr_error *error)
{
	struct piece *piece;

	if (!archive->loading) {
		put_record(archive, name, size_bytes == 0 ? NULL : bytes, size_bytes);
		archive->count++;
		return RUBATO_OK;
	}
	piece = find_piece(archive, name);
	if (piece == NULL)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: there is no '%s' in it",
			       archive->path, name);
	if (piece->size_bytes != size_bytes)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: '%s' has %llu bytes, and %zu are wanted", archive->path, name,
			       (unsigned long long)piece->size_bytes, size_bytes);
	if (size_bytes > 0)
		memcpy(bytes, piece->bytes, size_bytes);
	piece->taken = true;
	return RUBATO_OK;
}

rubato_status tr_archive_vector(struct tr_archive *archive, const char *name,
				const struct tr_vectors *vectors, float *vector, size_t count,
				struct tr_error *error)
{
	rubato_status err;
	float *host;

	TR_TRY(tr_vectors_map(vectors, vector, count, &host, error));
	err = tr_archive_bytes(archive, name, host, count * sizeof(float), error);
	tr_vectors_unmap(vectors, vector, count, host, err == RUBATO_OK && archive->loading);
	return err;
}

rubato_status tr_archive_finish(struct tr_archive *archive, struct tr_error *error)
{
	if (!archive->loading)
		return finish_saving(archive, error);
	for (uint64_t i = 0; i < archive->count; i++)
		if (!archive->pieces[i].taken)
			return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: nothing reads its '%.*s'",
				       archive->path, (int)archive->pieces[i].name_bytes,
				       (const char *)archive->pieces[i].name);
	return RUBATO_OK;
}
