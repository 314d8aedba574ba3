/* values.c -- see values.h. */
#include "programs/values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool option_refuse(struct option_error *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	for (char *c = error->text; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	return false;
}

/* Digits only, below 2^64; *end is set to what follows. */
static bool digits(const char *text, uint64_t *number, char **end)
{
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*number = strtoull(text, end, 10);
	return errno == 0;
}

bool value_count(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out,
		 struct option_error *error)
{
	uint64_t number = 0;
	char *end = NULL;

	if (!digits(text, &number, &end) || *end != '\0' || number < least || number > most)
		return option_refuse(error, "%s takes a number from %llu to %llu, not '%s'", option,
				     (unsigned long long)least, (unsigned long long)most, text);
	*out = number;
	return true;
}

bool value_count32(const char *option, const char *text, uint32_t least, uint32_t most,
		   uint32_t *out, struct option_error *error)
{
	uint64_t number = 0;

	if (!value_count(option, text, least, most, &number, error))
		return false;
	*out = (uint32_t)number;
	return true;
}

bool value_counts32(const char *option, const char *text, uint32_t least, uint32_t most,
		    uint32_t *out, uint32_t room, uint32_t *count, struct option_error *error)
{
	char *copy = strdup(text), *rest = copy, *word;
	bool good = copy != NULL || option_refuse(error, "out of memory");

	*count = 0;
	while (good && (word = strsep(&rest, ",")) != NULL)
		good = *count < room
			       ? value_count32(option, word, least, most, &out[(*count)++], error)
			       : option_refuse(error, "%s takes at most %u numbers", option, room);
	free(copy);
	return good;
}

bool value_real(const char *option, const char *text, double least, double most, double *out,
		struct option_error *error)
{
	char *end;
	double number = strtod(text, &end);

	if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(number) ||
	    number < least || number > most)
		return option_refuse(error, "%s takes a number from %g to %g, not '%s'", option,
				     least, most, text);
	*out = number;
	return true;
}

bool value_bytes(const char *option, const char *text, uint64_t *out, struct option_error *error)
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
		return option_refuse(error, "%s takes a size such as 8, 64K, 1M or 2G, not '%s'",
				     option, text);
	*out = number << shift;
	return true;
}

struct unit {
	const char *name;
	double factor;
};

/* A number and one of three units; negative: it is something else. */
static double measure(const char *text, const struct unit units[3])
{
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1;

	for (int i = 0; number >= 0 && i < 3; i++)
		if (strcmp(end, units[i].name) == 0)
			return number * units[i].factor;
	return -1;
}

bool value_time(const char *option, const char *text, uint64_t least_ns, uint64_t *out_ns,
		struct option_error *error)
{
	static const struct unit units[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	double ns = least_ns == 0 && strcmp(text, "0") == 0 ? 0 : measure(text, units);

	if (!(ns >= 0 && ns < 1e18))
		return option_refuse(error, "%s takes a time such as 250us, 1.5ms or 30s, not '%s'",
				     option, text);
	if ((uint64_t)ns < least_ns)
		return option_refuse(error, "%s takes a time above 0", option);
	*out_ns = (uint64_t)ns;
	return true;
}

bool value_bandwidth(const char *option, const char *text, double *out, struct option_error *error)
{
	static const struct unit units[] = { { "Mbit", 1e6 / 8 },
					     { "Gbit", 1e9 / 8 },
					     { "GB/s", 1e9 } };
	double bandwidth = measure(text, units);

	if (!(bandwidth > 0 && bandwidth < 1e18))
		return option_refuse(error,
				     "%s takes a bandwidth such as 800Mbit, 10Gbit or 12.5GB/s, "
				     "not '%s'",
				     option, text);
	*out = bandwidth;
	return true;
}

char *value_forms_join(const char *const *forms, char *text, size_t text_bytes)
{
	text[0] = '\0';
	for (uint32_t i = 0; forms[i] != NULL; i++) {
		size_t used = strlen(text);

		(void)snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ",
			       forms[i]);
	}
	return text;
}

bool value_choice(const char *option, const char *text, const char *const *forms, uint32_t *index,
		  const char **value, struct option_error *error)
{
	char all[VALUE_FORMS_BYTES];

	for (uint32_t i = 0; forms[i] != NULL; i++) {
		size_t length = strcspn(forms[i], ":[");
		char after = forms[i][length];

		if (strncmp(text, forms[i], length) != 0)
			continue;
		if ((text[length] == '\0' && after != ':') ||
		    (text[length] == ':' && after != '\0')) {
			*index = i;
			*value = text[length] == ':' ? text + length + 1 : NULL;
			return true;
		}
	}
	return option_refuse(error, "%s takes one of %s, not '%s'", option,
			     value_forms_join(forms, all, sizeof(all)), text);
}
