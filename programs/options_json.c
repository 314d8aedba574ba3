/* options_json.c -- see options.h: the rows of a run that its files name, as JSON. */
#include <string.h>

#include "programs/options.h"
#include "programs/results.h"

static json_t *value_json(const struct option *row, const void *from)
{
	const char *const *forms = options_forms(row);
	uint32_t index;

	switch (row->kind) {
	case OPTION_FLAG:
		return json_boolean(*(const bool *)from);
	case OPTION_TEXT:
		return results_text(from);
	case OPTION_STRING:
		return results_text(*(const char *const *)from);
	case OPTION_U32:
		return results_whole(*(const uint32_t *)from);
	case OPTION_U64:
	case OPTION_BYTES:
	case OPTION_TIME:
		return results_whole(*(const uint64_t *)from);
	case OPTION_REAL:
	case OPTION_BANDWIDTH:
		return results_real(*(const double *)from);
	case OPTION_CHOICE:
		index = *(const uint32_t *)from;
		return json_stringn(forms[index], strcspn(forms[index], ":["));
	case OPTION_OTHER:
		return row->json(from);
	}
	return NULL;
}

static bool row_add(json_t *object, const struct option *row, const void *from)
{
	json_t *value = value_json(row, (const char *)from + row->at);
	bool good = value != NULL;

	if (row->key[0] != '\0')
		return json_object_set_new(object, row->key, value) == 0;
	good = good && json_object_update(object, value) == 0;
	json_decref(value);
	return good;
}

json_t *options_json(const struct option *rows, const void *from)
{
	json_t *object = json_object();

	for (const struct option *row = rows; row->name != NULL; row++)
		if (row->key != NULL && !row_add(object, row, from)) {
			json_decref(object);
			return NULL;
		}
	return object;
}
