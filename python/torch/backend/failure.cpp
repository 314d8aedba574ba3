/* failure.cpp -- see failure.hpp. */
#include "failure.hpp"

#include <algorithm>

#include <c10/util/Exception.h>

namespace rubato_torch
{

void fail(rubato_status status, const std::string &text)
{
	switch (status) {
	case RUBATO_ERR_ARGUMENT:
		C10_THROW_ERROR(ValueError, text);
	case RUBATO_ERR_UNSUPPORTED:
		C10_THROW_ERROR(NotImplementedError, text);
	default:
		C10_THROW_ERROR(DistBackendError, text);
	}
}

void check(rubato_status status, const std::string &what)
{
	if (status != RUBATO_OK)
		fail(status,
		     what + ": " + rubato_error_text() + " (" + rubato_status_name(status) + ")");
}

uint64_t nanoseconds(std::chrono::nanoseconds time)
{
	constexpr std::chrono::nanoseconds least = std::chrono::milliseconds(1);

	return uint64_t(std::max(time, least).count());
}

std::string seconds(std::chrono::nanoseconds time)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%.3g s", double(time.count()) * 1e-9);
	return text;
}

} // namespace rubato_torch
