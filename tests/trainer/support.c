/* support.c -- see support.h. A helper that fails ends the test. */
#include "tests/trainer/support.h"

#include <check.h>
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

#include "trainer/rng.h"

#define PROCESS_SECONDS_MAX 240 /* A guard against hangs only. */

void folder_make(char folder[PATH_BYTES])
{
	snprintf(folder, PATH_BYTES, "/tmp/rubato-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

const char *path_join(char path[PATH_BYTES], const char *folder, const char *name)
{
	int count = snprintf(path, PATH_BYTES, "%s/%s", folder, name);

	ck_assert_int_lt(count, PATH_BYTES);
	return path;
}

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

void images_make(const char *folder_name)
{
	static const char x_head[] =
		"{'descr': '<f4', 'fortran_order': False, 'shape': (130, 8, 8), }";
	static const char y_head[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (130,), }";
	static float centre[IMAGES_CLASSES][IMAGES_SIDE * IMAGES_SIDE];
	static float x[IMAGES_ROWS][IMAGES_SIDE * IMAGES_SIDE];
	static int32_t y[IMAGES_ROWS];
	struct tr_rng rng = { 11 };
	char path[PATH_BYTES];

	ck_assert_int_eq(mkdir(folder_name, 0777), 0);
	for (int c = 0; c < IMAGES_CLASSES; c++)
		for (int k = 0; k < IMAGES_SIDE * IMAGES_SIDE; k++)
			centre[c][k] = (float)tr_rng_unit(&rng) - 0.5f;
	for (int row = 0; row < IMAGES_ROWS; row++) {
		y[row] = (int32_t)tr_rng_below(&rng, IMAGES_CLASSES);
		for (int k = 0; k < IMAGES_SIDE * IMAGES_SIDE; k++)
			x[row][k] = centre[y[row]][k] + 2.0f * ((float)tr_rng_unit(&rng) - 0.5f);
	}
	npy_write(path_join(path, folder_name, "x.npy"), 1, x_head, x, sizeof(x));
	npy_write(path_join(path, folder_name, "y.npy"), 2, y_head, y, sizeof(y));
	npy_write(path_join(path, folder_name, "x_test.npy"), 1, x_head, x, sizeof(x));
	npy_write(path_join(path, folder_name, "y_test.npy"), 2, y_head, y, sizeof(y));
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

void process_run(const char *const *argv, struct outcome *outcome)
{
	int out = scratch_file(), err = scratch_file(), status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		alarm(PROCESS_SECONDS_MAX);
		dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(99);
	}
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
