/* replace.c -- see replace.h. */
#include "programs/replace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool replacement_fits(const char *path)
{
	struct stat there;

	return lstat(path, &there) != 0 || S_ISREG(there.st_mode);
}

/* Of a link: it stays, and the regular file that it leads to is replaced, if there is one. But one
 * like /dev/stdout leads to what is open, and written by others, too. */
static void lead(char *path, size_t path_bytes)
{
	bool open = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
	char *end = open ? NULL : realpath(path, NULL);

	if (end != NULL && strlen(end) < path_bytes && replacement_fits(end))
		(void)snprintf(path, path_bytes, "%s", end);
	free(end);
}

bool replacement_open(struct replacement *r, const char *path)
{
	bool fits = replacement_fits(path);

	if (strlen(path) >= sizeof(r->path)) {
		errno = ENAMETOOLONG;
		return false;
	}
	(void)snprintf(r->path, sizeof(r->path), "%s", path);
	if (!fits)
		lead(r->path, sizeof(r->path));
	r->file = NULL;
	if (replacement_fits(r->path)) {
		(void)snprintf(r->beside, sizeof(r->beside), "%s.%ld.part", r->path,
			       (long)getpid());
		(void)unlink(r->beside); /* A process of this number's that was killed. */
		r->file = fopen(r->beside, "wxe");
	}
	if (r->file == NULL && !fits) { /* Nor may a link's folder be ours. */
		r->beside[0] = '\0';
		r->file = fopen(path, "we");
	}
	return r->file != NULL;
}

int replacement_close(struct replacement *r, bool keep)
{
	int reason = 0;

	if (ferror(r->file) != 0)
		reason = EIO;
	if (fclose(r->file) != 0 && reason == 0)
		reason = errno;
	if (r->beside[0] == '\0') {
		r->file = NULL;
		return reason;
	}
	if (keep && reason == 0 && rename(r->beside, r->path) != 0)
		reason = errno;
	if (!keep || reason != 0)
		(void)unlink(r->beside);
	r->file = NULL;
	return reason;
}
