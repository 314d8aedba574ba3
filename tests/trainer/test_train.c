/*
 * test_train.c -- training by real processes of rubato-train (argument 1): N ranks with batches of
 * B walk the path of one rank with batches of N * B; the same run again gives the same bits; a lost
 * rank ends the job.
 */
#include <dirent.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/trainer/support.h"
#include "trainer/base/npy.h"
#include "trainer/models/model.h"

#define STEPS "100"

static const char *train[] = { NULL, "--data", "npy:data", "--quiet", NULL };

static struct tr_npy trained(const char *model, const char *ranks, const char *batch,
			     const char *save)
{
	struct tr_npy array;
	struct tr_error error = { 0 };
	char line[512];

	snprintf(line, sizeof(line),
		 "--model %s --ranks %s --batch %s --steps " STEPS " --lr 0.05 --momentum 0.9 "
		 "--weight-decay 1e-3 --lr-schedule warmup:5,cosine --seed 4 --out out --save %s",
		 model, ranks, batch, save);
	line_succeed(train, line);
	ck_assert_msg(tr_npy_read(save, &array, &error) == RUBATO_OK, "%s", error.text);
	return array;
}

static const struct {
	enum tr_model_kind kind;
	const char *ranks, *batch;
} splits[] = {
	{ TR_LOGISTIC, "2", "6" }, { TR_LOGISTIC, "3", "4" }, { TR_LOGISTIC, "4", "3" },
	{ TR_MLP, "2", "6" },      { TR_MLP, "3", "4" },      { TR_MLP, "4", "3" },
	{ TR_CNN, "2", "6" },      { TR_CNN, "3", "4" },      { TR_CNN, "4", "3" },
};
#define SPLIT_COUNT ((int)(sizeof(splits) / sizeof(splits[0])))

START_TEST(ranks_share_one_path)
{
	const struct tr_shape shape = { 1, IMAGES_SIDE, IMAGES_SIDE };
	const char *name = tr_model_names[splits[_i].kind];
	struct tr_npy one = trained(name, "1", "12", "one.npy");
	struct tr_npy many = trained(name, splits[_i].ranks, splits[_i].batch, "many.npy");
	const float *a = one.bytes, *b = many.bytes;
	struct tr_model model;
	struct tr_error error;

	ck_assert_int_eq(tr_model_build(&model, splits[_i].kind, TR_CROSS_ENTROPY, shape,
					IMAGES_CLASSES, 64, &error),
			 RUBATO_OK);
	ck_assert_uint_eq(one.count, model.parameter_count);
	ck_assert_uint_eq(many.count, model.parameter_count);
	float *first = calloc(model.parameter_count, sizeof(float));
	ck_assert_ptr_nonnull(first);
	tr_model_init(&model, 4, first);
	for (uint32_t l = 0; l < model.layer_count; l++) {
		const struct tr_layer *layer = &model.layers[l];
		double difference = 0.0, norm = 0.0, moved = 0.0;

		for (size_t i = layer->weight_offset; i < layer->bias_offset + layer->bias_count;
		     i++) {
			difference += pow((double)a[i] - (double)b[i], 2);
			moved += pow((double)a[i] - (double)first[i], 2);
			norm += pow((double)a[i], 2);
		}
		ck_assert_msg(sqrt(difference) <= 1e-4 * sqrt(norm), "%s on %s ranks, %s: %g", name,
			      splits[_i].ranks, layer->name == NULL ? "-" : layer->name,
			      sqrt(difference / norm));
		/* It was a path: the parameters have gone a hundred times further than that. */
		ck_assert(layer->name == NULL || sqrt(moved) > 1e-2 * sqrt(norm));
	}
	free(first);
	free(one.bytes);
	free(many.bytes);
}
END_TEST

START_TEST(a_run_repeats_bit_by_bit)
{
	static const char *const models[] = { "logistic", "mlp", "cnn" };
	struct tr_npy first = trained(models[_i], "3", "4", "first.npy");
	struct tr_npy again = trained(models[_i], "3", "4", "again.npy");

	ck_assert_uint_eq(first.count, again.count);
	ck_assert_int_eq(memcmp(first.bytes, again.bytes, first.count * sizeof(float)), 0);
	free(first.bytes);
	free(again.bytes);
}
END_TEST

START_TEST(it_learns)
{
	free(trained("cnn", "2", "6", "w.npy").bytes);
	ck_assert_double_gt(summary_number("test_accuracy"), 0.9);
}
END_TEST

/* Starts a run far longer than the test, and waits for its first lines of metrics. */
static pid_t start_long_run(int err_fd)
{
	struct command command;
	char *tmp;
	pid_t pid;

	ck_assert_int_eq(mkdir("tmp", 0777), 0);
	tmp = realpath("tmp", NULL);
	ck_assert_ptr_nonnull(tmp);
	ck_assert_int_eq(setenv("TMPDIR", tmp, 1), 0);
	free(tmp);
	line_split(train,
		   "--model logistic --ranks 3 --batch 2 --steps 2000000000 --lr 0.001 --out out "
		   "--save w.npy",
		   &command);
	pid = process_start(command.argv, STDOUT_FILENO, err_fd);
	for (;;) {
		struct stat st;

		if (stat("out/metrics.jsonl", &st) == 0 && st.st_size > 0)
			return pid;
		ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
		sched_yield();
	}
}

/* The children of a process, from the kernel's list. */
static unsigned children_of(pid_t pid, pid_t *out, unsigned out_max)
{
	char path[64];
	unsigned count = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	while (count < out_max && fscanf(file, "%d", &out[count]) == 1)
		count++;
	fclose(file);
	return count;
}

static int ending(pid_t pid, int err_fd, char *err, size_t err_bytes)
{
	int status;
	ssize_t got;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	got = pread(err_fd, err, err_bytes - 1, 0);
	ck_assert_int_ge(got, 0);
	err[got] = '\0';
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(a_killed_rank_ends_the_job)
{
	FILE *err_file = tmpfile();
	char err[2048];
	pid_t pid, children[8];
	int status;

	ck_assert_ptr_nonnull(err_file);
	pid = start_long_run(fileno(err_file));
	ck_assert_uint_eq(children_of(pid, children, 8), 3);
	ck_assert_int_eq(kill(children[1], SIGKILL), 0);
	status = ending(pid, fileno(err_file), err, sizeof(err));
	ck_assert_int_eq(status, 128 + SIGKILL);
	ck_assert_uint_eq(line_count(err), 1);
	ck_assert_ptr_nonnull(strstr(err, "signal 9"));
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(kill(children[i], 0), -1); /* Reaped: nobody is left. */
	ck_assert_ptr_null(file_read("out/summary.json", &(size_t) { 0 }));
	ck_assert_ptr_null(file_read("w.npy", &(size_t) { 0 }));
	fclose(err_file);
}
END_TEST

/* How many a process holds: files that only their owner may open, in memory. */
static uint32_t secrets_of(pid_t pid)
{
	char path[300], name[300];
	uint32_t found = 0;
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		ssize_t bytes = readlinkat(dirfd(dir), entry->d_name, name, sizeof(name) - 1);

		name[bytes > 0 ? bytes : 0] = '\0';
		if (strncmp(name, "/memfd:rubato-secret", 20) != 0)
			continue;
		ck_assert_int_eq(fstatat(dirfd(dir), entry->d_name, &st, 0), 0);
		ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
		ck_assert_int_eq(st.st_size, 64);
		found++;
	}
	closedir(dir);
	return found;
}

START_TEST(a_killed_job_leaves_nothing)
{
	pid_t pid = start_long_run(STDERR_FILENO), children[8];
	int ranks[3], status;

	ck_assert_uint_eq(children_of(pid, children, 8), 3);
	for (int i = 0; i < 3; i++) {
		ranks[i] = (int)syscall(SYS_pidfd_open, children[i], 0);
		ck_assert_int_ge(ranks[i], 0);
	}
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 3; i++) {
		struct pollfd end = { .fd = ranks[i], .events = POLLIN };

		ck_assert_int_eq(poll(&end, 1, 60000), 1);
		close(ranks[i]);
	}
	ck_assert_uint_eq(folder_count("tmp"), 0);
}
END_TEST

START_TEST(a_signal_ends_the_job)
{
	static const int numbers[] = { SIGINT, SIGTERM };
	FILE *err_file = tmpfile();
	char err[2048];
	pid_t pid, children[8];

	ck_assert_ptr_nonnull(err_file);
	pid = start_long_run(fileno(err_file));
	ck_assert_uint_eq(children_of(pid, children, 8), 3);
	/* The launcher's alone: ranks have read it, and no folder has it. */
	ck_assert_uint_eq(secrets_of(pid), 1);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(secrets_of(children[i]), 0);
	ck_assert_uint_eq(folder_count("tmp"), 0);
	ck_assert_int_eq(kill(pid, numbers[_i]), 0);
	ck_assert_int_eq(ending(pid, fileno(err_file), err, sizeof(err)), 128 + numbers[_i]);
	ck_assert_uint_eq(line_count(err), 1);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(kill(children[i], 0), -1);
	ck_assert_uint_eq(folder_count("tmp"), 0);
	fclose(err_file);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("train");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_loop_test(tests, ranks_share_one_path, 0, SPLIT_COUNT);
	tcase_add_loop_test(tests, a_run_repeats_bit_by_bit, 0, 3);
	tcase_add_test(tests, it_learns);
	tcase_add_test(tests, a_killed_rank_ends_the_job);
	tcase_add_loop_test(tests, a_signal_ends_the_job, 0, 2);
	tcase_add_test(tests, a_killed_job_leaves_nothing);
	return check_main("train", tests);
}
