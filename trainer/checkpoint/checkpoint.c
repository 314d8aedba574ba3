/* checkpoint.c -- who writes what, in which order, and when it counts. */
#include "trainer/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/agree.h"

#define MANIFEST UINT32_MAX /* In place of a rank. */

struct head { /* The first piece of every file. */
	uint64_t step, settings, network;
	uint32_t rank, rank_count;
};

static rubato_status path_of(const struct tr_checkpoints *c, uint64_t step, uint32_t rank,
			     char path[TR_PATH_BYTES], struct tr_error *error)
{
	char name[32] = "manifest";

	if (rank != MANIFEST)
		snprintf(name, sizeof(name), "rank-%u", rank);
	return tr_path(path, error, "%s/step-%llu/%s.ckpt", c->folder, (unsigned long long)step,
		       name);
}

/* ---- What is there ---- */

/* Keeps the newest. */
static void add_step(struct tr_checkpoints *c, uint64_t step)
{
	uint32_t at = c->count;

	if (c->count == TR_CHECKPOINTS_KEPT + 1) {
		if (step < c->steps[0])
			return;
		memmove(c->steps, c->steps + 1, sizeof(c->steps) - sizeof(c->steps[0]));
		at--;
	} else {
		c->count++;
	}
	for (; at > 0 && c->steps[at - 1] > step; at--)
		c->steps[at] = c->steps[at - 1];
	c->steps[at] = step;
}

static bool is_step(const char *name, uint64_t *step)
{
	char *end;

	if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
		return false;
	*step = strtoull(name + 5, &end, 10);
	return *end == '\0';
}

static rubato_status scan(struct tr_checkpoints *c, struct tr_error *error)
{
	char path[TR_PATH_BYTES];
	struct dirent *entry;
	DIR *dir = opendir(c->folder);

	if (dir == NULL && errno != ENOENT)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "--checkpoint %s: %s", c->folder,
			       strerror(errno));
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		uint64_t step;

		if (is_step(entry->d_name, &step) &&
		    path_of(c, step, MANIFEST, path, error) == RUBATO_OK && access(path, F_OK) == 0)
			add_step(c, step);
	}
	if (dir != NULL)
		closedir(dir);
	if (c->resume && c->count == 0)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "--resume: there is no complete checkpoint in %s", c->folder);
	if (!c->resume && c->count > 0)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "--checkpoint: %s holds checkpoints of another run (--resume "
			       "continues it)",
			       c->folder);
	return RUBATO_OK;
}

uint64_t tr_checkpoints_step(const struct tr_checkpoints *c)
{
	return c->resume && c->count > 0 ? c->steps[c->count - 1] : 0;
}

/* Rank 0. Of two runs at once each would remove and replace what the other one wrote. Where locks
 * are not known, and where the folder is not there yet, it is as good as locked. */
static rubato_status lock(struct tr_checkpoints *c, struct tr_error *error)
{
	int fd = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return RUBATO_OK;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
		close(fd);
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "--checkpoint: another run is at work in %s", c->folder);
	}
	c->lock = fd;
	c->locked = true;
	return RUBATO_OK;
}

/* ---- Which one to go on from ---- */

/* MISMATCH: the checkpoint is whole, and of another run; an older one would be, too. */
static rubato_status check_head(const struct tr_checkpoints *c, struct tr_archive *archive,
				const char *path, uint64_t step, uint32_t rank,
				struct tr_error *error)
{
	struct head head;

	TR_TRY(tr_archive_value(archive, "head", head, error));
	if (head.rank_count != rubato_size(c->comm))
		return tr_fail(error, RUBATO_ERR_MISMATCH, "%s: written by %u ranks, here are %u",
			       path, head.rank_count, rubato_size(c->comm));
	if (head.settings != c->settings)
		return tr_fail(error, RUBATO_ERR_MISMATCH,
			       "%s: written by a run with other options or data", path);
	if (head.network != c->network && head.network != 0 && c->network != 0)
		return tr_fail(error, RUBATO_ERR_MISMATCH,
			       "%s: written by a run with other options of its simulated network",
			       path);
	if (head.step != step || head.rank != rank)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: another step's, or another rank's",
			       path);
	return RUBATO_OK;
}

/* Of an error no archive is left open. */
static rubato_status open_file(const struct tr_checkpoints *c, uint64_t step, uint32_t rank,
			       struct tr_archive **out, struct tr_error *error)
{
	struct tr_archive *archive;
	char path[TR_PATH_BYTES];
	rubato_status err;

	TR_TRY(path_of(c, step, rank, path, error));
	TR_TRY(tr_archive_open(&archive, path, error));
	err = check_head(c, archive, path, step, rank, error);
	if (err)
		tr_archive_close(archive);
	else
		*out = archive;
	return err;
}

/* The manifest first: its complaint is that of all. */
static rubato_status open_files(const struct tr_checkpoints *c, uint64_t step,
				struct tr_archive **out, struct tr_error *error)
{
	struct tr_archive *manifest = NULL;

	if (rubato_rank(c->comm) == 0)
		TR_TRY(open_file(c, step, MANIFEST, &manifest, error));
	tr_archive_close(manifest);
	return open_file(c, step, rubato_rank(c->comm), out, error);
}

/* The complaint of one rank, which is no reason to end: all go on. */
static void warn(struct tr_error *error, const char *consequence, uint64_t step)
{
	struct tr_error line = { .text = "" };

	if (error->text[0] != '\0') {
		(void)tr_fail(&line, RUBATO_OK, "%.400s: %s %llu", error->text, consequence,
			      (unsigned long long)step);
		tr_error_print(&line, STDERR_FILENO);
	}
	*error = (struct tr_error) { .exit_code = error->exit_code };
}

/* Whether another may be whole where this one is not. */
static bool is_damage(rubato_status err)
{
	return err == RUBATO_ERR_ARGUMENT || err == RUBATO_ERR_SYSTEM;
}

static rubato_status choose(struct tr_checkpoints *c, struct tr_error *error)
{
	for (;;) {
		uint64_t step = tr_checkpoints_step(c);
		rubato_status err = open_files(c, step, &c->archive, error);

		err = tr_agree(c->comm, err, error);
		if (err == RUBATO_OK)
			return RUBATO_OK;
		tr_archive_close(c->archive);
		c->archive = NULL;
		if (!is_damage(err) || !error->shared || c->count == 1)
			return err;
		c->damaged[c->damaged_count++] = step;
		c->count--;
		warn(error, "going on from step", tr_checkpoints_step(c));
	}
}

rubato_status tr_checkpoints_open(struct tr_checkpoints *c, rubato_comm *comm, const char *folder,
				  bool resume, uint64_t settings, uint64_t network,
				  uint64_t step_count, struct tr_error *error)
{
	uint64_t found[TR_CHECKPOINTS_KEPT + 2];
	rubato_status err = RUBATO_OK;

	*c = (struct tr_checkpoints) {
		.folder = folder,
		.comm = comm,
		.settings = settings,
		.network = network,
		.resume = resume,
	};
	if (folder == NULL)
		return RUBATO_OK;
	if (rubato_rank(comm) == 0)
		err = lock(c, error);
	if (rubato_rank(comm) == 0 && err == RUBATO_OK)
		err = scan(c, error);
	TR_TRY(tr_agree(comm, err, error));
	found[0] = c->count;
	memcpy(found + 1, c->steps, sizeof(c->steps));
	TR_TRY(tr_check(error,
			rubato_broadcast(comm, found, TR_CHECKPOINTS_KEPT + 2, RUBATO_UINT64, 0),
			"broadcast of the checkpoints"));
	c->count = (uint32_t)found[0];
	memcpy(c->steps, found + 1, sizeof(c->steps));
	if (!resume)
		return RUBATO_OK;
	TR_TRY(choose(c, error));
	if (tr_checkpoints_step(c) > step_count) /* All ranks say so; the first one aloud. */
		err = tr_fail(error, RUBATO_ERR_MISMATCH,
			      "--resume: the checkpoint is of step %llu, the run is to end at %llu",
			      (unsigned long long)tr_checkpoints_step(c),
			      (unsigned long long)step_count);
	return tr_agree(comm, err, error);
}

static void archive_close(struct tr_checkpoints *c)
{
	tr_archive_close(c->archive);
	c->archive = NULL;
}

void tr_checkpoints_close(struct tr_checkpoints *c)
{
	archive_close(c);
	if (c->locked)
		close(c->lock);
	c->locked = false;
}

/* ---- Load ---- */

static rubato_status load(struct tr_checkpoints *c, tr_keep keep, void *arg, struct tr_error *error)
{
	rubato_status err = keep(arg, c->archive);

	if (err == RUBATO_OK)
		err = tr_agree(c->comm, tr_archive_finish(c->archive, error), error);
	archive_close(c);
	return err;
}

/* They must not pass for whole when this run comes to their steps and overwrites their files. */
static rubato_status set_aside(const struct tr_checkpoints *c, struct tr_error *error)
{
	char path[TR_PATH_BYTES], aside[TR_PATH_BYTES + 8];

	for (uint32_t i = 0; i < c->damaged_count && rubato_rank(c->comm) == 0; i++) {
		TR_TRY(path_of(c, c->damaged[i], MANIFEST, path, error));
		snprintf(aside, sizeof(aside), "%s.damaged", path);
		if (rename(path, aside) != 0)
			return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	}
	return RUBATO_OK;
}

/* ---- Remove ---- */

/* This rank's file. What cannot be removed stays: it does no harm. */
static void remove_file(const struct tr_checkpoints *c, uint64_t step)
{
	struct tr_error error;
	char path[TR_PATH_BYTES];

	if (path_of(c, step, rubato_rank(c->comm), path, &error) != RUBATO_OK)
		return;
	(void)unlink(path);
	*strrchr(path, '/') = '\0';
	(void)rmdir(path); /* The last to come succeeds. */
}

/* Its manifest goes first, so that what is left halfway is no checkpoint. */
static rubato_status remove_oldest(struct tr_checkpoints *c, struct tr_error *error)
{
	uint64_t step = c->steps[0];
	char path[TR_PATH_BYTES];

	c->count--;
	memmove(c->steps, c->steps + 1, c->count * sizeof(c->steps[0]));
	TR_TRY(path_of(c, step, MANIFEST, path, error));
	if (rubato_rank(c->comm) == 0)
		(void)unlink(path);
	TR_TRY(tr_check(error, rubato_barrier(c->comm), "barrier"));
	remove_file(c, step);
	return RUBATO_OK;
}

/* What a rank that is killed leaves there: its file, whole or not. */
static void remove_halves(const char *folder)
{
	char path[TR_PATH_BYTES];
	struct dirent *entry;
	DIR *dir = opendir(folder);

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (strncmp(entry->d_name, "rank-", 5) == 0 &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) <
			    sizeof(path))
			(void)unlink(path);
	if (dir != NULL)
		closedir(dir);
	(void)rmdir(folder);
}

/* Rank 0: folders older than what the run goes on from that are no checkpoints, since a run was
 * killed while it wrote or removed them. No later step comes to them. */
static void remove_left(const struct tr_checkpoints *c)
{
	char path[TR_PATH_BYTES], damaged[TR_PATH_BYTES + 8];
	struct tr_error error;
	struct dirent *entry;
	DIR *dir = opendir(c->folder);

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		uint64_t step;

		if (!is_step(entry->d_name, &step) || step >= tr_checkpoints_step(c) ||
		    path_of(c, step, MANIFEST, path, &error) != RUBATO_OK)
			continue;
		snprintf(damaged, sizeof(damaged), "%s.damaged", path);
		if (access(path, F_OK) == 0 || access(damaged, F_OK) == 0)
			continue;
		*strrchr(path, '/') = '\0';
		remove_halves(path);
	}
	if (dir != NULL)
		closedir(dir);
}

/* A run may have been killed when a checkpoint was there and the oldest one was not yet gone. */
static rubato_status removals_end(struct tr_checkpoints *c, struct tr_error *error)
{
	if (c->count > TR_CHECKPOINTS_KEPT)
		TR_TRY(remove_oldest(c, error));
	if (rubato_rank(c->comm) == 0)
		remove_left(c);
	return RUBATO_OK;
}

rubato_status tr_checkpoints_begin(struct tr_checkpoints *c, tr_keep keep, void *arg,
				   struct tr_error *error)
{
	rubato_status err = RUBATO_OK;

	if (c->folder == NULL)
		return RUBATO_OK;
	if (c->resume) {
		TR_TRY(tr_agree(c->comm, set_aside(c, error), error));
		TR_TRY(load(c, keep, arg, error));
		return removals_end(c, error);
	}
	if ((mkdir(c->folder, 0777) != 0 && errno != EEXIST) || access(c->folder, W_OK | X_OK) != 0)
		err = tr_fail(error, RUBATO_ERR_SYSTEM, "--checkpoint %s: %s", c->folder,
			      strerror(errno));
	else if (rubato_rank(c->comm) == 0 && !c->locked)
		err = lock(c, error);
	return tr_agree(c->comm, err, error);
}

/* ---- Save ---- */

static rubato_status create_file(const struct tr_checkpoints *c, uint64_t step, uint32_t rank,
				 struct tr_archive **out, struct tr_error *error)
{
	struct head head = { step, c->settings, c->network, rank, rubato_size(c->comm) };
	char path[TR_PATH_BYTES], folder[TR_PATH_BYTES];

	TR_TRY(path_of(c, step, rank, path, error));
	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
	if (mkdir(folder, 0777) != 0 && errno != EEXIST)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", folder, strerror(errno));
	TR_TRY(tr_archive_create(out, path, error));
	return tr_archive_value(*out, "head", head, error);
}

/* `keep` NULL: its head is all that is in it. */
static rubato_status write_file(const struct tr_checkpoints *c, uint64_t step, uint32_t rank,
				tr_keep keep, void *arg, struct tr_error *error)
{
	struct tr_archive *archive = NULL;
	rubato_status err = create_file(c, step, rank, &archive, error);

	if (err == RUBATO_OK && keep != NULL)
		err = keep(arg, archive);
	if (err == RUBATO_OK)
		err = tr_archive_finish(archive, error);
	tr_archive_close(archive);
	return err;
}

rubato_status tr_checkpoints_save(struct tr_checkpoints *c, uint64_t step, tr_keep keep, void *arg,
				  struct tr_error *error)
{
	uint32_t rank = rubato_rank(c->comm);
	rubato_status err = tr_agree(c->comm, write_file(c, step, rank, keep, arg, error), error);

	if (err == RUBATO_OK && rank == 0)
		err = tr_agree(c->comm, write_file(c, step, MANIFEST, NULL, NULL, error), error);
	else if (err == RUBATO_OK)
		err = tr_agree(c->comm, RUBATO_OK, error);
	if (err == RUBATO_ERR_SYSTEM && error->shared) {
		remove_file(c, step);
		warn(error, "the run goes on without a checkpoint of step", step);
		return RUBATO_OK;
	}
	TR_TRY(err);
	add_step(c, step);
	return c->count > TR_CHECKPOINTS_KEPT ? remove_oldest(c, error) : RUBATO_OK;
}
