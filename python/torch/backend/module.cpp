/* module.cpp -- what Python sees of the backend. */
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "backend.hpp"

namespace
{

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank,
					 int size, std::chrono::milliseconds timeout,
					 const std::string &group_name,
					 std::vector<uint64_t> global_ranks)
{
	auto options = c10::make_intrusive<rubato_torch::Backend::Options>(timeout);

	options->group_name = group_name;
	options->global_ranks_in_group = std::move(global_ranks);
	return c10::make_intrusive<rubato_torch::Backend>(store, rank, size, options);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
	py::module::import("torch._C._distributed_c10d");
	module.attr("TORCH_VERSION") = TORCH_VERSION;
	module.def("create", &create, py::call_guard<py::gil_scoped_release>());
	module.def("end_all", &rubato_torch::Backend::end_all,
		   py::call_guard<py::gil_scoped_release>());
	module.def("version", &rubato_version);
}
