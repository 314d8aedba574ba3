/* support.h -- files, folders and processes for the trainer's tests. */
#ifndef TESTS_TRAINER_SUPPORT_H
#define TESTS_TRAINER_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct outcome {
	int status;     /* Exit status; -1: ended by a signal, or cut off by the time limit. */
	char out[8192]; /* The first bytes of standard output, */
	char err[8192]; /* and of standard error. */
};

/* Fixtures: each test works in a fresh folder, which goes with all that the test left there. */
void folder_enter(void);
void folder_leave(void);
/* In a fresh folder, too, `data` with a training and an equal test set for npy:...: noisy images
 * around one random image for each class. Steps of 12 samples leave 10 of an epoch out. */
#define IMAGES_ROWS 130
#define IMAGES_SIDE 8
#define IMAGES_CLASSES 3
void images_enter(void);

void folder_remove(const char *folder);
unsigned folder_count(const char *folder); /* Entries in it; 0 where it does not exist. */

void file_write(const char *path, const void *bytes, size_t size_bytes);
void file_write_gz(const char *path, const void *bytes, size_t size_bytes);
/* The whole file, for free(); NULL where there is none. */
void *file_read(const char *path, size_t *size_bytes);
bool file_holds(const char *path, const char *text);
void files_compare(const char *a, const char *b); /* They must have the same bytes. */

/* The number behind the first or the last `"key":` of a file, which must have one. */
double number_first(const char *path, const char *key);
double number_last(const char *path, const char *key);
double summary_number(const char *key); /* The first of out/summary.json. */

/* A .npy file with this dictionary and data; version 1 or 2. */
void npy_write(const char *path, unsigned version, const char *dictionary, const void *data,
	       size_t data_bytes);

/* Runs argv[0] with a time limit; argv ends with NULL. It has nothing to read. */
pid_t process_start(const char *const *argv, int out_fd, int err_fd);
void process_run(const char *const *argv, struct outcome *outcome);
unsigned line_count(const char *text);

#define WORDS_MAX 64

struct command {
	const char *argv[WORDS_MAX + 1];
	char text[1024];
};

/* The words of `first`, which ends with NULL, and then those of `line`, with spaces between them;
 * '' stands for an empty word. */
void line_split(const char *const *first, const char *line, struct command *command);
void line_run(const char *const *first, const char *line, struct outcome *outcome);
/* rubato-train must end with status 0, one line on standard output and none on standard error; */
void line_succeed(const char *const *first, const char *line);
/* or with this status, one line on standard error, which says whose it is and holds `word`, and
 * none on standard output. */
void line_fail(const char *const *first, const char *line, int status, const char *word);

#endif
