/* options.c -- see options.h. */
#include "tools/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void option_fail(const char *program, const char *format, ...)
{
	va_list args;

	(void)fprintf(stderr, "%s: ", program);
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fputc('\n', stderr);
	exit(EXIT_USAGE);
}

int option_next(const char *program, int argc, char **argv, const char *shorts,
		const struct option *longs)
{
	opterr = 0;
	int found = getopt_long(argc, argv, shorts, longs, NULL);

	if (found == ':')
		option_fail(program, "%s needs a value", argv[optind - 1]);
	if (found == '?' && optopt != 0 && strchr(shorts, optopt) == NULL && optopt < 128)
		option_fail(program, "unknown option -%c; --help lists them", optopt);
	if (found == '?')
		option_fail(program, "unknown option or value in %s; --help lists the options",
			    argv[optind - 1]);
	return found;
}

/* Digits only (no sign, no blanks), below 2^64; *end is set to what follows. */
static bool digits(const char *text, uint64_t *number, char **end)
{
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*number = strtoull(text, end, 10);
	return errno == 0;
}

uint64_t option_number(const char *program, const char *option, const char *text, uint64_t min,
		       uint64_t max)
{
	uint64_t number = 0;
	char *end = NULL;

	if (!digits(text, &number, &end) || *end != '\0' || number < min || number > max)
		option_fail(program, "%s takes a number from %llu to %llu, not '%s'", option,
			    (unsigned long long)min, (unsigned long long)max, text);
	return number;
}

uint64_t option_bytes(const char *program, const char *option, const char *text)
{
	static const char units[] = "KMG";
	uint64_t number = 0;
	unsigned shift = 0;
	char *end = NULL;
	bool good = digits(text, &number, &end);

	if (good && *end != '\0') {
		const char *unit = strchr(units, toupper((unsigned char)*end));

		good = unit != NULL && end[1] == '\0';
		shift = good ? 10 * (unsigned)(unit - units + 1) : 0;
	}
	if (!good || number > UINT64_MAX >> shift)
		option_fail(program, "%s takes a size such as 8, 64K, 1M or 2G, not '%s'", option,
			    text);
	return number << shift;
}

uint64_t option_time_ns(const char *program, const char *option, const char *text)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;

	for (size_t i = 0; number >= 0 && i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0 && number * units[i].ns < 1e18)
			return (uint64_t)(number * units[i].ns);
	option_fail(program, "%s takes a time such as 250us, 1.5ms or 30s, not '%s'", option, text);
}

uint32_t option_choice(const char *program, const char *option, const char *text,
		       const char *const *names)
{
	char all[256] = "";

	for (uint32_t i = 0; names[i] != NULL; i++) {
		size_t used = strlen(all);

		if (strcmp(text, names[i]) == 0)
			return i;
		(void)snprintf(all + used, sizeof(all) - used, "%s%s", i == 0 ? "" : ", ",
			       names[i]);
	}
	option_fail(program, "%s takes one of %s, not '%s'", option, all, text);
}
