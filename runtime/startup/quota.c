/* quota.c -- see quota.h. */
#include "runtime/startup/quota.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rng.h"

#define MILLI_MAX 1000000000.0

struct search {
	const char *root;
	struct rb_quota found;
};

static bool line_read(const char *path, char *line, size_t line_bytes)
{
	FILE *file = fopen(path, "re");
	bool there = file != NULL && fgets(line, (int)line_bytes, file) != NULL;

	if (file != NULL)
		(void)fclose(file);
	return there;
}

static bool number_read(const char *folder, const char *name, int64_t *out)
{
	char path[PATH_MAX + 32], line[64];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return line_read(path, line, sizeof(line)) && sscanf(line, "%" SCNd64, out) == 1;
}

/* "max 100000" is no limit, and no number. */
static bool limit_read(const char *folder, int64_t *quota, int64_t *period)
{
	char path[PATH_MAX + 32], line[64];

	(void)snprintf(path, sizeof(path), "%s/cpu.max", folder);
	if (line_read(path, line, sizeof(line)))
		return sscanf(line, "%" SCNd64 " %" SCNd64, quota, period) == 2;
	return number_read(folder, "cpu.cfs_quota_us", quota) &&
	       number_read(folder, "cpu.cfs_period_us", period);
}

static void group_look(struct search *s, const char *folder)
{
	int64_t quota, period;
	struct stat status;
	double milli;

	if (!limit_read(folder, &quota, &period) || quota <= 0 || period <= 0)
		return;
	milli = (double)quota / (double)period * 1000;
	milli = milli < 1 ? 1 : milli > MILLI_MAX ? MILLI_MAX : milli;
	if ((s->found.milli != 0 && milli >= s->found.milli) || stat(folder, &status) != 0)
		return;
	s->found.milli = (uint32_t)milli;
	s->found.group = rb_mix(rb_mix(status.st_dev) ^ status.st_ino) | 1;
}

/* The group, those around it, and the uppermost that can be seen. */
static void groups_look(struct search *s, const char *mount, const char *group)
{
	char folder[PATH_MAX];
	int top = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s", s->root, mount);
	char *end;

	if (top < 0 || (size_t)top + strlen(group) >= sizeof(folder))
		return;
	memcpy(folder + top, group, strlen(group) + 1);
	end = folder + strlen(folder);
	while (end > folder + top) {
		group_look(s, folder);
		while (end > folder + top && *--end != '/')
			;
		*end = '\0';
	}
	group_look(s, folder);
}

static bool lists_cpu(const char *controllers)
{
	while (controllers != NULL) {
		size_t length = strcspn(controllers, ",");

		if (length == 3 && strncmp(controllers, "cpu", 3) == 0)
			return true;
		controllers = controllers[length] == ',' ? controllers + length + 1 : NULL;
	}
	return false;
}

/* "4:cpu,cpuacct:/docker/5e1..." of version 1, "0::/user.slice/..." of version 2. */
static void line_take(struct search *s, char *line)
{
	char *controllers = strchr(line, ':');
	char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
	char mount[128];

	if (group == NULL)
		return;
	*group++ = '\0';
	controllers++;
	group[strcspn(group, "\n")] = '\0';
	if (strcmp(group, "/") == 0)
		group[0] = '\0';
	if (*controllers == '\0') {
		groups_look(s, "", group);
		groups_look(s, "/unified", group); /* Where version 1 is mounted, too. */
	} else if (lists_cpu(controllers)) {
		groups_look(s, "/cpu", group);
		(void)snprintf(mount, sizeof(mount), "/%s", controllers);
		groups_look(s, mount, group);
	}
}

struct rb_quota rb_quota_find(const char *root)
{
	struct search s = { .root = root };
	char line[PATH_MAX + 64];
	FILE *file;

	(void)snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
	file = fopen(line, "re");
	if (file == NULL)
		return s.found;
	while (fgets(line, sizeof(line), file) != NULL)
		line_take(&s, line);
	(void)fclose(file);
	return s.found;
}
