/* replace.h -- a file that appears whole or not at all: written beside, and renamed. */
#ifndef PROGRAMS_REPLACE_H
#define PROGRAMS_REPLACE_H

#include <stdbool.h>
#include <stdio.h>

#define REPLACE_PATH_BYTES 4200

struct replacement {
	FILE *file;
	char path[REPLACE_PATH_BYTES];
	char beside[REPLACE_PATH_BYTES + 32]; /* "": `path` is written as it is. */
};

/* Whether `path` is, or will be, a regular file. What is none stays what it is: who is root and
 * names a device would have a file in its place, and who names a link has a reason to. The regular
 * file that a link leads to is replaced, where its folder allows that; all else is written as it
 * is, and not whole or not at all. */
bool replacement_fits(const char *path);
/* False: errno says why, and there is nothing to close. */
bool replacement_open(struct replacement *replacement, const char *path);
/* `keep`: complete; otherwise nothing stays, and what was there is as it was. 0, or the errno: not
 * everything could be written (EIO: an earlier write had failed, and its caller knows why). */
int replacement_close(struct replacement *replacement, bool keep);

#endif
