/* failure.hpp -- the library's status and sentence, as an exception that c10d knows. */
#pragma once

#include <chrono>
#include <string>

#include <rubato.h>

namespace rubato_torch
{

/* ValueError for the caller's mistakes, NotImplementedError for what is not supported, and
 * DistBackendError for the rest. */
[[noreturn]] void fail(rubato_status status, const std::string &text);
/* `what`: the operation, before the library's own sentence of this thread. */
void check(rubato_status status, const std::string &what);

/* A deadline in the library's terms: never one of its two special values. */
uint64_t nanoseconds(std::chrono::nanoseconds time);
std::string seconds(std::chrono::nanoseconds time);

} // namespace rubato_torch
