/* names.c -- the public enums as text and in bytes. */
#include "rubato.h"

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

static const struct {
	const char *name;
	size_t bytes;
} types[RUBATO_TYPE_COUNT] = {
	[RUBATO_FLOAT32] = { "float32", 4 }, [RUBATO_FLOAT64] = { "float64", 8 },
	[RUBATO_INT32] = { "int32", 4 },     [RUBATO_INT64] = { "int64", 8 },
	[RUBATO_FLOAT16] = { "float16", 2 }, [RUBATO_BFLOAT16] = { "bfloat16", 2 },
	[RUBATO_INT8] = { "int8", 1 },       [RUBATO_INT16] = { "int16", 2 },
	[RUBATO_UINT8] = { "uint8", 1 },     [RUBATO_UINT16] = { "uint16", 2 },
	[RUBATO_UINT32] = { "uint32", 4 },   [RUBATO_UINT64] = { "uint64", 8 },
};
static const char *const operator_names[RUBATO_OPERATOR_COUNT] = {
	[RUBATO_SUM] = "sum", [RUBATO_MAX] = "max",   [RUBATO_MIN] = "min",
	[RUBATO_AVG] = "avg", [RUBATO_PROD] = "prod",
};

const char *rubato_type_name(rubato_type type)
{
	return (unsigned)type < RUBATO_TYPE_COUNT ? types[type].name : "unknown";
}

size_t rubato_type_bytes(rubato_type type)
{
	return (unsigned)type < RUBATO_TYPE_COUNT ? types[type].bytes : 0;
}

const char *rubato_operator_name(rubato_operator op)
{
	return (unsigned)op < RUBATO_OPERATOR_COUNT ? operator_names[op] : "unknown";
}

const char *rubato_wire_name(rubato_wire wire)
{
	static const char *const names[RUBATO_WIRE_COUNT] = {
		[RUBATO_WIRE_SAME] = "float32",
		[RUBATO_WIRE_BFLOAT16] = "bfloat16",
		[RUBATO_WIRE_INT8] = "int8",
	};

	return (unsigned)wire < RUBATO_WIRE_COUNT ? names[wire] : "unknown";
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
