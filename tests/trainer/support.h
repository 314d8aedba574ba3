/* support.h -- files, folders and processes for the trainer's tests. */
#ifndef TESTS_TRAINER_SUPPORT_H
#define TESTS_TRAINER_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#define PATH_BYTES 512

struct outcome {
	int status;     /* Exit status; -1: ended by a signal, or cut off by the time limit. */
	char out[8192]; /* The first bytes of standard output, */
	char err[8192]; /* and of standard error. */
};

/* A fresh folder; each test program removes all of its own at the end. */
void folder_make(char folder[PATH_BYTES]);
void folder_remove(const char *folder);
const char *path_join(char path[PATH_BYTES], const char *folder, const char *name);
unsigned folder_count(const char *folder); /* Entries in it; 0 where it does not exist. */

void file_write(const char *path, const void *bytes, size_t size_bytes);
void file_write_gz(const char *path, const void *bytes, size_t size_bytes);
/* The whole file, for free(); NULL where there is none. */
void *file_read(const char *path, size_t *size_bytes);

/* A .npy file with this dictionary and data; version 1 or 2. */
void npy_write(const char *path, unsigned version, const char *dictionary, const void *data,
	       size_t data_bytes);

/* Makes `folder_name` with a training and an equal test set for npy:...: noisy images around one
 * random image for each class. Steps of 12 samples leave 10 of an epoch out. */
#define IMAGES_ROWS 130
#define IMAGES_SIDE 8
#define IMAGES_CLASSES 3
void images_make(const char *folder_name);

/* Runs argv[0] with a time limit; argv ends with NULL. */
void process_run(const char *const *argv, struct outcome *outcome);
unsigned line_count(const char *text);

#endif
