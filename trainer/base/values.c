/* values.c -- see values.h. */
#include "trainer/base/values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rubato_status tr_parse_count(const char *name, const char *text, uint64_t least, uint64_t most,
			     uint64_t *out, struct tr_error *error)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value < least ||
	    value > most)
		return tr_refuse(error, "%s: '%s' is not a whole number from %llu to %llu", name,
				 text, (unsigned long long)least, (unsigned long long)most);
	*out = value;
	return RUBATO_OK;
}

rubato_status tr_parse_number(const char *name, const char *text, double least, double most,
			      double *out, struct tr_error *error)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(value) ||
	    value < least || value > most)
		return tr_refuse(error, "%s: '%s' is not a number from %g to %g", name, text, least,
				 most);
	*out = value;
	return RUBATO_OK;
}

char *tr_choices_join(const char *const *choices, char *text, size_t text_bytes)
{
	text[0] = '\0';
	for (size_t i = 0; choices[i] != NULL; i++) {
		size_t used = strlen(text);

		snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ", choices[i]);
	}
	return text;
}

rubato_status tr_parse_choice(const char *name, const char *text, const char *const *choices,
			      unsigned *index, const char **value, struct tr_error *error)
{
	char all[TR_CHOICES_BYTES];

	for (unsigned i = 0; choices[i] != NULL; i++) {
		size_t length = strcspn(choices[i], ":[");
		char after = choices[i][length];

		if (strncmp(text, choices[i], length) != 0)
			continue;
		if ((text[length] == '\0' && after != ':') ||
		    (text[length] == ':' && after != '\0')) {
			*index = i;
			*value = text[length] == ':' ? text + length + 1 : NULL;
			return RUBATO_OK;
		}
	}
	return tr_refuse(error, "%s: '%s' is unknown; it takes %s", name, text,
			 tr_choices_join(choices, all, sizeof(all)));
}

rubato_status tr_parse_bytes(const char *name, const char *text, uint64_t *out,
			     struct tr_error *error)
{
	static const char units[] = "KMG";
	bool good = isdigit((unsigned char)text[0]);
	unsigned long long value = 0;
	unsigned shift = 0;
	char *end = NULL;

	errno = 0;
	if (good)
		value = strtoull(text, &end, 10);
	if (good && *end != '\0') {
		const char *unit = strchr(units, toupper((unsigned char)*end));

		good = unit != NULL && end[1] == '\0';
		shift = good ? 10 * (unsigned)(unit - units + 1) : 0;
	}
	if (!good || errno != 0 || value > UINT64_MAX >> shift)
		return tr_refuse(error, "%s: '%s' is not a size such as 4096, 256K or 1M", name,
				 text);
	*out = (uint64_t)value << shift;
	return RUBATO_OK;
}

struct unit {
	const char *name;
	double factor;
};

/* A number and one of three units; negative: it is something else. */
static double measure(const char *text, const struct unit units[3])
{
	char *end = NULL;
	double number = isdigit((unsigned char)text[0]) ? strtod(text, &end) : -1.0;

	for (int i = 0; number >= 0.0 && i < 3; i++)
		if (strcmp(end, units[i].name) == 0)
			return number * units[i].factor;
	return -1.0;
}

rubato_status tr_parse_time(const char *name, const char *text, uint64_t *out_ns,
			    struct tr_error *error)
{
	static const struct unit units[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	double ns = measure(text, units);

	if (!(ns >= 1.0 && ns < 1e18))
		return tr_refuse(error, "%s: '%s' is not a time such as 250us, 1.5ms or 30s", name,
				 text);
	*out_ns = (uint64_t)ns;
	return RUBATO_OK;
}

rubato_status tr_parse_bandwidth(const char *name, const char *text, double *out,
				 struct tr_error *error)
{
	static const struct unit units[] = { { "Mbit", 1e6 / 8 },
					     { "Gbit", 1e9 / 8 },
					     { "GB/s", 1e9 } };
	double bandwidth = measure(text, units);

	if (!(bandwidth > 0.0 && bandwidth < 1e18))
		return tr_refuse(error, "%s: '%s' is not one such as 800Mbit, 10Gbit or 12.5GB/s",
				 name, text);
	*out = bandwidth;
	return RUBATO_OK;
}
