/* support.c -- see support.h. A helper that fails ends the test. */
#include "tests/trainer/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "programs/rng.h"
#include "tests/check_main.h"
#include "tests/limit.h"

#define PROCESS_SECONDS_MAX 240 /* A guard against hangs only. */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

void folder_remove(const char *folder)
{
	ck_assert_int_eq(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static char entered[32];

void folder_enter(void)
{
	snprintf(entered, sizeof(entered), "/tmp/rubato-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(entered));
	ck_assert_int_eq(chdir(entered), 0);
}

void folder_leave(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	folder_remove(entered);
}

unsigned folder_count(const char *folder)
{
	unsigned count = 0;
	struct dirent *entry;
	DIR *dir = opendir(folder);

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		count += entry->d_name[0] != '.';
	if (dir != NULL)
		closedir(dir);
	return count;
}

void file_write(const char *path, const void *bytes, size_t size_bytes)
{
	FILE *file = fopen(path, "wb");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, size_bytes, file), size_bytes);
	ck_assert_int_eq(fclose(file), 0);
}

void file_write_gz(const char *path, const void *bytes, size_t size_bytes)
{
	gzFile file = gzopen(path, "wb");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(gzwrite(file, bytes, (unsigned)size_bytes), (int)size_bytes);
	ck_assert_int_eq(gzclose(file), Z_OK);
}

void *file_read(const char *path, size_t *size_bytes)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	void *bytes;

	if (file == NULL)
		return NULL;
	ck_assert_int_eq(fstat(fileno(file), &st), 0);
	*size_bytes = (size_t)st.st_size;
	bytes = malloc(*size_bytes + 1);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_eq(fread(bytes, 1, *size_bytes, file), *size_bytes);
	((char *)bytes)[*size_bytes] = '\0';
	fclose(file);
	return bytes;
}

bool file_holds(const char *path, const char *text)
{
	size_t size_bytes;
	char *all = file_read(path, &size_bytes);
	bool holds;

	ck_assert_msg(all != NULL, "no %s", path);
	holds = strstr(all, text) != NULL;
	free(all);
	return holds;
}

void files_compare(const char *a, const char *b)
{
	size_t a_bytes, b_bytes;
	void *a_text = file_read(a, &a_bytes), *b_text = file_read(b, &b_bytes);

	ck_assert_msg(a_text != NULL && b_text != NULL, "no %s, or no %s", a, b);
	ck_assert_msg(a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0,
		      "%s and %s differ", a, b);
	free(a_text);
	free(b_text);
}

static double number_in(const char *path, const char *key, bool the_last)
{
	char quoted[64], *text, *at, *found = NULL;
	size_t size_bytes;
	double number;

	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	text = file_read(path, &size_bytes);
	ck_assert_msg(text != NULL, "no %s", path);
	for (at = strstr(text, quoted); at != NULL; at = strstr(at + 1, quoted))
		if (found == NULL || the_last)
			found = at;
	ck_assert_msg(found != NULL, "no %s in %s", key, path);
	number = strtod(found + strlen(quoted), NULL);
	free(text);
	return number;
}

double number_first(const char *path, const char *key)
{
	return number_in(path, key, false);
}

double number_last(const char *path, const char *key)
{
	return number_in(path, key, true);
}

double summary_number(const char *key)
{
	return number_first("out/summary.json", key);
}

void npy_write(const char *path, unsigned version, const char *dictionary, const void *data,
	       size_t data_bytes)
{
	size_t text_bytes = strlen(dictionary) + 1, head_bytes = version == 1 ? 10 : 12;
	uint8_t *all = calloc(1, head_bytes + text_bytes + data_bytes);

	ck_assert_ptr_nonnull(all);
	memcpy(all, "\x93NUMPY", 6);
	all[6] = (uint8_t)version;
	all[8] = (uint8_t)text_bytes;
	all[9] = (uint8_t)(text_bytes >> 8);
	memcpy(all + head_bytes, dictionary, text_bytes - 1);
	all[head_bytes + text_bytes - 1] = '\n';
	if (data_bytes > 0)
		memcpy(all + head_bytes + text_bytes, data, data_bytes);
	file_write(path, all, head_bytes + text_bytes + data_bytes);
	free(all);
}

void images_enter(void)
{
	static const char x_head[] =
		"{'descr': '<f4', 'fortran_order': False, 'shape': (130, 8, 8), }";
	static const char y_head[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (130,), }";
	static float centre[IMAGES_CLASSES][IMAGES_SIDE * IMAGES_SIDE];
	static float x[IMAGES_ROWS][IMAGES_SIDE * IMAGES_SIDE];
	static int32_t y[IMAGES_ROWS];
	struct rng rng = { 11 };

	folder_enter();
	ck_assert_int_eq(mkdir("data", 0777), 0);
	for (int c = 0; c < IMAGES_CLASSES; c++)
		for (int k = 0; k < IMAGES_SIDE * IMAGES_SIDE; k++)
			centre[c][k] = (float)rng_unit(&rng) - 0.5f;
	for (int row = 0; row < IMAGES_ROWS; row++) {
		y[row] = (int32_t)rng_below(&rng, IMAGES_CLASSES);
		for (int k = 0; k < IMAGES_SIDE * IMAGES_SIDE; k++)
			x[row][k] = centre[y[row]][k] + 2.0f * ((float)rng_unit(&rng) - 0.5f);
	}
	npy_write("data/x.npy", 1, x_head, x, sizeof(x));
	npy_write("data/y.npy", 2, y_head, y, sizeof(y));
	npy_write("data/x_test.npy", 1, x_head, x, sizeof(x));
	npy_write("data/y_test.npy", 2, y_head, y, sizeof(y));
}

static void read_start(int fd, char *text, size_t text_bytes)
{
	ssize_t got = pread(fd, text, text_bytes - 1, 0);

	ck_assert_int_ge(got, 0);
	text[got] = '\0';
	close(fd);
}

static int scratch_file(void)
{
	char path[] = "/tmp/rubato-test-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	return fd;
}

pid_t process_start(const char *const *argv, int out_fd, int err_fd)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	limit_start(PROCESS_SECONDS_MAX);
	dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
	dup2(out_fd, STDOUT_FILENO);
	dup2(err_fd, STDERR_FILENO);
	execv(argv[0], (char *const *)(uintptr_t)argv);
	_exit(99);
}

void process_run(const char *const *argv, struct outcome *outcome)
{
	int out = scratch_file(), err = scratch_file(), status;
	pid_t pid = process_start(argv, out, err);

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	outcome->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	read_start(out, outcome->out, sizeof(outcome->out));
	read_start(err, outcome->err, sizeof(outcome->err));
}

unsigned line_count(const char *text)
{
	unsigned count = 0;

	for (; *text != '\0'; text++)
		count += *text == '\n';
	return count;
}

void line_split(const char *const *first, const char *line, struct command *command)
{
	char *at = command->text, *word;
	int count = 0, text_bytes = snprintf(at, sizeof(command->text), "%s", line);

	ck_assert_int_lt(text_bytes, (int)sizeof(command->text));
	for (; *first != NULL; first++)
		command->argv[count++] = *first;
	while ((word = strsep(&at, " ")) != NULL) {
		if (word[0] == '\0')
			continue;
		ck_assert_int_lt(count, WORDS_MAX);
		command->argv[count++] = strcmp(word, "''") == 0 ? "" : word;
	}
	command->argv[count] = NULL;
}

void line_run(const char *const *first, const char *line, struct outcome *outcome)
{
	struct command command;

	line_split(first, line, &command);
	process_run(command.argv, outcome);
}

void line_succeed(const char *const *first, const char *line)
{
	struct outcome got;

	line_run(first, line, &got);
	ck_assert_msg(got.status == 0 && got.err[0] == '\0', "'%s': status %d: '%s'", line,
		      got.status, got.err);
	ck_assert_msg(line_count(got.out) == 1, "'%s': '%s'", line, got.out);
}

void line_fail(const char *const *first, const char *line, int status, const char *word)
{
	struct outcome got;

	line_run(first, line, &got);
	ck_assert_msg(got.status == status, "'%s': status %d: '%s'", line, got.status, got.err);
	ck_assert_msg(line_count(got.err) == 1, "'%s': '%s'", line, got.err);
	ck_assert_msg(strncmp(got.err, "rubato-train: ", 14) == 0 && strstr(got.err, word) != NULL,
		      "'%s': '%s' lacks '%s'", line, got.err, word);
	ck_assert_str_eq(got.out, "");
}
