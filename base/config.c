/*
 * config.c -- the table of config.h made into a parser.
 *
 * A row says all there is to know about a setting, so nothing here names one, except for the two
 * whose texts are words from a list.
 */
#include "base/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"

#define PREFIX "RUBATO_"
#define NAME_BYTES_MAX 64 /* Of a variable that we look for a neighbour of. */
#define CHOICES_MAX 6

enum kind { U, S, T, B };

struct row {
	const char *variable;
	enum kind kind;
	const char *default_value;
	uint64_t min, max;
	const char *help;
	size_t value_offset, source_offset;
};

static const struct row rows[] = {
#define X(field, variable, kind, default_value, min, max, help)                                    \
	{ variable,                                                                                \
	  kind,                                                                                    \
	  default_value,                                                                           \
	  min,                                                                                     \
	  max,                                                                                     \
	  help,                                                                                    \
	  offsetof(struct rb_config, field),                                                       \
	  offsetof(struct rb_config, source.field) },
	RB_CONFIG_TABLE(X)
#undef X
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
_Static_assert(ROW_COUNT <= 30, "the thirty-first setting must replace one");

static const struct {
	const char *variable;
	bool several; /* Separated by commas. */
	const char *choices[CHOICES_MAX];
} words[] = {
	{ "RUBATO_TRANSPORT", true, { "auto", "shm", "ucx", "tcp", "verbs" } },
	/* As enum rb_log_level. */
	{ "RUBATO_LOG", false, { "none", "warn", "info", "debug", "data" } },
	{ "RUBATO_ATTACH", false, { "auto", "never", "offer" } },
	{ "RUBATO_VERBS_CONNECT", false, { "auto", "exchange", "rdmacm" } },
};

struct unit {
	const char *suffix;
	uint64_t factor;
};

/* Largest last, so that printing can look for the largest that divides. */
static const struct unit byte_units[] = {
	{ "", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
};
static const struct unit time_units[] = {
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000000 },
	{ "s", 1000000000 },
};
#define BYTE_UNIT_COUNT (sizeof(byte_units) / sizeof(byte_units[0]))
#define TIME_UNIT_COUNT (sizeof(time_units) / sizeof(time_units[0]))

/* ---- Numbers ---- */

const char *rb_parse_decimal(const char *text, uint64_t *digits, uint64_t *scale)
{
	bool point = false;
	uint32_t count = 0, digit;

	*digits = 0;
	*scale = 1;
	for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point && count > 0); text++) {
		if (*text == '.') {
			point = true;
			continue;
		}
		digit = (uint32_t)(*text - '0');
		if (*digits > (UINT64_MAX - digit) / 10 || (point && *scale > UINT64_MAX / 10))
			return NULL;
		count++;
		*digits = *digits * 10 + digit;
		if (point)
			*scale *= 10;
	}
	return count > 0 && text[-1] != '.' ? text : NULL;
}

/* Exact in 64 bits, or false. `bare` tells whether a number without a unit is fine. */
static bool quantity_read(const char *text, const struct unit *units, size_t unit_count, bool bare,
			  uint64_t *value)
{
	uint64_t digits, scale;
	const char *suffix = rb_parse_decimal(text, &digits, &scale);

	if (suffix == NULL)
		return false;
	for (size_t i = 0; i < unit_count; i++) {
		if (strcmp(suffix, units[i].suffix) != 0)
			continue;
		rb_u128 product = (rb_u128)digits * units[i].factor;

		if (product % scale != 0 || product / scale > UINT64_MAX)
			return false;
		*value = (uint64_t)(product / scale);
		return true;
	}
	*value = digits;
	return *suffix == '\0' && scale == 1 && (bare || digits == 0);
}

rubato_status rb_parse_bytes(const char *text, uint64_t *bytes)
{
	uint64_t value;

	if (!quantity_read(text, byte_units, BYTE_UNIT_COUNT, true, &value))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "\"%.64s\" is not a size: expected a number of bytes, such as 64, "
			       "256K, 1.5M or 2G",
			       text);
	*bytes = value;
	return RUBATO_OK;
}

rubato_status rb_parse_time(const char *text, uint64_t *time_ns)
{
	uint64_t value;

	if (!quantity_read(text, time_units, TIME_UNIT_COUNT, false, &value))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "\"%.64s\" is not a time: expected a number with its unit, such as "
			       "250us, 1.5ms or 3s",
			       text);
	*time_ns = value;
	return RUBATO_OK;
}

static bool number_read(enum kind kind, const char *text, uint64_t *value)
{
	static const struct unit none = { "", 1 };

	switch (kind) {
	case U:
		return strchr(text, '.') == NULL && quantity_read(text, &none, 1, true, value);
	case T:
		return quantity_read(text, time_units, TIME_UNIT_COUNT, false, value);
	case B:
		return quantity_read(text, byte_units, BYTE_UNIT_COUNT, true, value);
	case S:
		break;
	}
	return false;
}

/* With the largest unit that leaves a whole number. */
static void number_print(enum kind kind, uint64_t value, char *text, size_t text_bytes)
{
	const struct unit *units = kind == T ? time_units : byte_units;
	size_t at = kind == T ? TIME_UNIT_COUNT : kind == B ? BYTE_UNIT_COUNT : 1;

	for (at--; at > 0 && value % units[at].factor != 0; at--)
		;
	if (value == 0)
		(void)snprintf(text, text_bytes, "0");
	else
		(void)snprintf(text, text_bytes, "%llu%s",
			       (unsigned long long)(value / units[at].factor), units[at].suffix);
}

void rb_print_time(uint64_t time_ns, char *text, size_t text_bytes)
{
	number_print(T, time_ns, text, text_bytes);
}

/* ---- Rows ---- */

/* A number, or the first byte of a text. */
static void *value_of(struct rb_config *config, const struct row *row)
{
	return (char *)config + row->value_offset;
}

static uint8_t *source_of(struct rb_config *config, const struct row *row)
{
	return (uint8_t *)config + row->source_offset;
}

static rubato_status number_set(const struct row *row, const char *text, uint64_t *value)
{
	static const char *const nouns[] = { "a whole number", "", "a time", "a size" };
	bool zero = strcmp(row->default_value, "0") == 0; /* Outside of the range, too. */
	char low[32], high[32];
	uint64_t number;

	if (!number_read(row->kind, text, &number) ||
	    ((number < row->min || number > row->max) && !(number == 0 && zero))) {
		number_print(row->kind, row->min, low, sizeof(low));
		number_print(row->kind, row->max, high, sizeof(high));
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s=\"%.64s\": expected %s from %s to %s%s",
			       row->variable, text, nouns[row->kind], low, high,
			       zero && row->min > 0 ? ", or 0" : "");
	}
	*value = number;
	return RUBATO_OK;
}

static bool is_choice(size_t word, const char *text, size_t size_bytes)
{
	for (size_t c = 0; c < CHOICES_MAX && words[word].choices[c] != NULL; c++)
		if (strlen(words[word].choices[c]) == size_bytes &&
		    memcmp(words[word].choices[c], text, size_bytes) == 0)
			return true;
	return false;
}

static bool are_choices(size_t word, const char *text)
{
	size_t size_bytes = strcspn(text, words[word].several ? "," : "");

	while (is_choice(word, text, size_bytes) && text[size_bytes] == ',') {
		text += size_bytes + 1;
		size_bytes = strcspn(text, ",");
	}
	return text[size_bytes] == '\0' && is_choice(word, text, size_bytes);
}

static rubato_status text_set(const struct row *row, const char *text, char *value)
{
	size_t size_bytes = strlen(text);

	if (size_bytes < row->min || size_bytes > row->max)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "%s=\"%.64s...\": %zu characters, expected %llu to %llu",
			       row->variable, text, size_bytes, (unsigned long long)row->min,
			       (unsigned long long)row->max);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i].variable, row->variable) == 0 && !are_choices(i, text))
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s=\"%.64s\": expected %s",
				       row->variable, text, row->help);
	memcpy(value, text, size_bytes + 1);
	return RUBATO_OK;
}

static rubato_status row_set(const struct row *row, const char *text, void *value)
{
	return row->kind == S ? text_set(row, text, value) : number_set(row, text, value);
}

rubato_status rb_config_set(struct rb_config *config, const char *variable, const char *text)
{
	size_t i = 0;

	while (i < ROW_COUNT && strcmp(rows[i].variable, variable) != 0)
		i++;
	RB_ASSERT(i < ROW_COUNT);
	RB_TRY(row_set(&rows[i], text, value_of(config, &rows[i])));
	*source_of(config, &rows[i]) = RB_CONFIG_OPTIONS;
	return RUBATO_OK;
}

static rubato_status row_read(struct rb_config *config, const struct row *row)
{
	const char *text = getenv(row->variable);
	uint8_t source = RB_CONFIG_ENVIRONMENT;

	if (text == NULL || *text == '\0') {
		text = row->default_value;
		source = RB_CONFIG_DEFAULT;
	}
	*source_of(config, row) = source;
	return *text == '\0' ? RUBATO_OK : row_set(row, text, value_of(config, row));
}

/* ---- Names that nobody knows ---- */

static uint32_t smallest(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Insertions, deletions and replacements that lead from a to b (Levenshtein 1965). */
static uint32_t edit_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
	uint32_t line[NAME_BYTES_MAX + 1];

	RB_ASSERT(b_size <= NAME_BYTES_MAX);
	for (size_t j = 0; j <= b_size; j++)
		line[j] = (uint32_t)j;
	for (size_t i = 1; i <= a_size; i++) {
		uint32_t corner = line[0];

		line[0] = (uint32_t)i;
		for (size_t j = 1; j <= b_size; j++) {
			uint32_t above = line[j];

			line[j] = smallest(above + 1, line[j - 1] + 1,
					   corner + (a[i - 1] != b[j - 1]));
			corner = above;
		}
	}
	return line[b_size];
}

/* The value is never printed: it may be a secret that somebody put where a path belongs. */
static void unknown_warn(const char *name, size_t name_size)
{
	const struct row *nearest = &rows[0];
	uint32_t best = UINT32_MAX;

	for (size_t i = 0; i < ROW_COUNT && name_size <= NAME_BYTES_MAX; i++) {
		const char *other = rows[i].variable;
		/* Half a name is nearer than another whole one: SECRET is not ROOT. */
		uint32_t distance = strncmp(name, other, name_size) == 0
					    ? 1
					    : edit_distance(name, name_size, other, strlen(other));

		if (distance < best) {
			best = distance;
			nearest = &rows[i];
		}
	}
	if (best == UINT32_MAX)
		RB_LOG(RB_LOG_WARN, "%.*s... is no setting and is ignored", NAME_BYTES_MAX, name);
	else
		RB_LOG(RB_LOG_WARN, "%.*s is no setting and is ignored; the nearest is %s",
		       (int)name_size, name, nearest->variable);
}

static void unknown_find(void)
{
	for (char **at = environ; at != NULL && *at != NULL; at++) {
		size_t name_size = strcspn(*at, "="), i = 0;

		if (strncmp(*at, PREFIX, sizeof(PREFIX) - 1) != 0)
			continue;
		while (i < ROW_COUNT && (strlen(rows[i].variable) != name_size ||
					 strncmp(rows[i].variable, *at, name_size) != 0))
			i++;
		if (i == ROW_COUNT)
			unknown_warn(*at, name_size);
	}
}

/* ---- The whole ---- */

static enum rb_log_level log_level(const struct rb_config *config)
{
	uint32_t level = 0;

	while (strcmp(words[1].choices[level], config->log.text) != 0)
		level++;
	return (enum rb_log_level)level;
}

rubato_status rb_config_read(struct rb_config *config)
{
	struct rb_config *fresh = calloc(1, sizeof(*fresh));
	rubato_status err = RUBATO_OK;

	if (fresh == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "settings: no %zu bytes", sizeof(*fresh));
	for (size_t i = 0; i < ROW_COUNT && err == RUBATO_OK; i++)
		err = row_read(fresh, &rows[i]);
	if (err == RUBATO_OK) {
		rb_log_level_set(log_level(fresh)); /* First: the warnings below heed it. */
		unknown_find();
		*config = *fresh;
	}
	free(fresh);
	return err;
}

const char *rb_config_foreign(const char *variable)
{
	return getenv(variable);
}

void rb_config_each(const struct rb_config *config,
		    void (*row)(void *arg, const char *variable, const char *value,
				const char *source, const char *help),
		    void *arg)
{
	static const char *const sources[] = { "default", "environment", "options" };

	for (size_t i = 0; i < ROW_COUNT; i++) {
		const char *base = (const char *)config;
		const void *value = base + rows[i].value_offset;
		uint8_t source = *(const uint8_t *)(base + rows[i].source_offset);
		bool unset = source == RB_CONFIG_DEFAULT && rows[i].default_value[0] == '\0';
		const char *text = value;
		char number[32] = "";

		if (rows[i].kind != S) {
			if (!unset)
				number_print(rows[i].kind, *(const uint64_t *)value, number,
					     sizeof(number));
			text = number;
		}
		row(arg, rows[i].variable, text, sources[source], rows[i].help);
	}
}
