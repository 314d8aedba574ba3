/* names.c -- the public enums as text and in bytes. */
#include "rubato.h"

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

static const char *const type_names[RUBATO_TYPE_COUNT] = { "float32", "float64", "int32", "int64" };
static const uint8_t type_bytes[RUBATO_TYPE_COUNT] = { 4, 8, 4, 8 };
static const char *const operator_names[RUBATO_OPERATOR_COUNT] = { "sum", "max", "min", "avg" };

const char *rubato_type_name(rubato_type type)
{
	return (unsigned)type < RUBATO_TYPE_COUNT ? type_names[type] : "unknown";
}

size_t rubato_type_bytes(rubato_type type)
{
	return (unsigned)type < RUBATO_TYPE_COUNT ? type_bytes[type] : 0;
}

const char *rubato_operator_name(rubato_operator op)
{
	return (unsigned)op < RUBATO_OPERATOR_COUNT ? operator_names[op] : "unknown";
}

const char *rubato_version(void)
{
	return VERSION(0, 1, 0);
}

const char *rubato_status_name(rubato_status status)
{
	switch (status) {
	case RUBATO_OK:
		return "ok";
	case RUBATO_ERR_ARGUMENT:
		return "argument";
	case RUBATO_ERR_MEMORY:
		return "memory";
	case RUBATO_ERR_TIMEOUT:
		return "timeout";
	case RUBATO_ERR_PEER:
		return "peer";
	case RUBATO_ERR_MISMATCH:
		return "mismatch";
	case RUBATO_ERR_UNSUPPORTED:
		return "unsupported";
	case RUBATO_ERR_SYSTEM:
		return "system";
	case RUBATO_ERR_AUTH:
		return "auth";
	case RUBATO_ERR_CANCELLED:
		return "cancelled";
	case RUBATO_ERR_INTERNAL:
		return "internal";
	}
	return "unknown";
}
