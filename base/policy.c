/* policy.c -- policies of partial allreduces as texts: one table of their words for programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"

/* A row for each: its word, what may follow (a colon and a value; in brackets, where it may be left
 * out), and which of the options that value is. */
#define POLICIES(ROW)                                                                              \
	ROW(RUBATO_POLICY_SOLO, "solo", "", VALUE_NONE)                                            \
	ROW(RUBATO_POLICY_MAJORITY, "majority", "", VALUE_NONE)                                    \
	ROW(RUBATO_POLICY_QUORUM, "quorum", ":K", VALUE_QUORUM)                                    \
	ROW(RUBATO_POLICY_DEADLINE, "deadline", ":T", VALUE_DEADLINE)                              \
	ROW(RUBATO_POLICY_ADAPTIVE, "adaptive", "[:K]", VALUE_QUORUM)                              \
	ROW(RUBATO_POLICY_WAGMA, "wagma", ":S", VALUE_GROUP)

enum value { VALUE_NONE, VALUE_QUORUM, VALUE_GROUP, VALUE_DEADLINE };

#define NAME(policy, word, after, value) [policy] = (word),
#define FORM(policy, word, after, value) [policy] = word after,
#define VALUE(policy, word, after, value) [policy] = (value),
static const char *const names[RUBATO_POLICY_COUNT] = { POLICIES(NAME) };
static const char *const forms[RUBATO_POLICY_COUNT + 1] = { POLICIES(FORM) };
static const enum value values[] = { POLICIES(VALUE) };
_Static_assert(sizeof(values) / sizeof(values[0]) == RUBATO_POLICY_COUNT, "a row for each");

const char *rubato_policy_name(rubato_policy policy)
{
	return (unsigned)policy < RUBATO_POLICY_COUNT ? names[policy] : "unknown";
}

const char *const *rubato_policy_forms(void)
{
	return forms;
}

static rubato_status unknown(const char *text)
{
	char all[128] = "";

	for (size_t i = 0; forms[i] != NULL; i++) {
		if (i > 0)
			strncat(all, ", ", sizeof(all) - strlen(all) - 1);
		strncat(all, forms[i], sizeof(all) - strlen(all) - 1);
	}
	return RB_FAIL(RUBATO_ERR_ARGUMENT, "'%.64s' is unknown; it takes %s", text, all);
}

static rubato_status count_read(const char *text, const char *value, uint32_t *count)
{
	char *end = NULL;
	unsigned long long number = 0;

	if (value[0] >= '0' && value[0] <= '9')
		number = strtoull(value, &end, 10);
	if (end == NULL || *end != '\0' || number < 1 || number >= UINT32_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "'%.64s' takes a number of ranks, at least 1",
			       text);
	*count = (uint32_t)number;
	return RUBATO_OK;
}

static rubato_status time_read(const char *text, const char *value, uint64_t *deadline_ns)
{
	if (rb_parse_time(value, deadline_ns) == RUBATO_OK && *deadline_ns > 0)
		return RUBATO_OK;
	return RB_FAIL(RUBATO_ERR_ARGUMENT, "'%.64s' takes a time such as 250us, 1.5ms or 30s",
		       text);
}

static rubato_status read_as(rubato_policy policy, const char *text, const char *value,
			     rubato_partial_options *options)
{
	char after = forms[policy][strlen(names[policy])];
	uint64_t deadline_ns = 0;
	uint32_t count = 0;

	if (value == NULL ? after == ':' : after == '\0')
		return unknown(text);
	if (value != NULL && values[policy] == VALUE_DEADLINE)
		RB_TRY(time_read(text, value, &deadline_ns));
	else if (value != NULL)
		RB_TRY(count_read(text, value, &count));
	options->policy = policy;
	options->deadline_ns = deadline_ns;
	options->group = values[policy] == VALUE_GROUP ? count : 0;
	options->quorum = values[policy] == VALUE_QUORUM ? count : 0;
	return RUBATO_OK;
}

char *rubato_policy_format(const rubato_partial_options *options, char *text, size_t text_bytes)
{
	enum value kind = VALUE_NONE;
	char value[32] = "";
	uint32_t count;

	if (text == NULL || options == NULL) {
		if (text != NULL && text_bytes > 0)
			text[0] = '\0';
		return text;
	}
	if ((unsigned)options->policy < RUBATO_POLICY_COUNT)
		kind = values[options->policy];
	count = kind == VALUE_GROUP ? options->group : options->quorum;
	if (kind == VALUE_DEADLINE)
		rb_print_time(options->deadline_ns, value, sizeof(value));
	else if (kind != VALUE_NONE && count > 0)
		(void)snprintf(value, sizeof(value), "%u", count);
	(void)snprintf(text, text_bytes, "%s%s%s", rubato_policy_name(options->policy),
		       value[0] != '\0' ? ":" : "", value);
	return text;
}

rubato_status rubato_policy_parse(const char *text, rubato_partial_options *options)
{
	size_t length;

	if (text == NULL || options == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "policy parse: NULL");
	length = strcspn(text, ":");
	for (int i = 0; i < RUBATO_POLICY_COUNT; i++)
		if (strlen(names[i]) == length && strncmp(text, names[i], length) == 0)
			return read_as((rubato_policy)i, text,
				       text[length] == ':' ? text + length + 1 : NULL, options);
	return unknown(text);
}
