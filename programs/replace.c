/* replace.c -- see replace.h. */
#include "programs/replace.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool replacement_fits(const char *path)
{
	struct stat there;

	return lstat(path, &there) != 0 || S_ISREG(there.st_mode);
}

bool replacement_open(struct replacement *r, const char *path)
{
	if (strlen(path) >= sizeof(r->path)) {
		errno = ENAMETOOLONG;
		return false;
	}
	(void)snprintf(r->path, sizeof(r->path), "%s", path);
	r->beside[0] = '\0';
	if (!replacement_fits(path)) {
		r->file = fopen(path, "we");
		return r->file != NULL;
	}
	(void)snprintf(r->beside, sizeof(r->beside), "%s.%ld.part", path, (long)getpid());
	(void)unlink(r->beside); /* A process of this number's that was killed. */
	r->file = fopen(r->beside, "wxe");
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
