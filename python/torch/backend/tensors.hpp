/*
 * tensors.hpp -- how tensors become what the library takes: an address, a count and a type.
 *
 * Types that the library does not have travel as ones of the same width where elements are only
 * moved; to reduce them is an error that names them.
 */
#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <rubato.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace rubato_torch
{

/* An element of a tensor is `each` elements of this type. */
struct Elements {
	rubato_type type;
	uint64_t each;
};

struct Reduction {
	Elements elements;
	rubato_operator op;
};

/* ValueError, TypeError or NotImplementedError, with the operation's name, on what is not the
 * within reach, not dense, or of no width. */
void tensor_check(const char *name, const at::Tensor &tensor);
/* What one vector of one tensor holds, which is how c10d passes it. */
at::Tensor only(const char *name, const std::vector<at::Tensor> &tensors);

Elements elements_of(at::ScalarType type);
Reduction reduction_of(const char *name, at::ScalarType type, const c10d::ReduceOp &op);

/* A communicator, and what it reads and writes by itself beside the host's memory: that of one
 * device, at most. */
struct Reach {
	rubato_comm *comm;
	std::optional<c10::Device> device;

	operator rubato_comm *() const
	{
		return comm;
	}
};

/* A tensor as memory without gaps that is within reach: its own, or a copy that is brought back by
 * keep(). What is on a device is copied as the current streams of the thread have it; a copy there
 * is waited for. */
class Dense
{
      public:
	/* `filled`: it is read, so a copy starts as the tensor is. */
	Dense(const Reach &reach, const at::Tensor &tensor, bool filled);
	void *data() const
	{
		return dense_.data_ptr();
	}
	void keep();

      private:
	at::Tensor tensor_, dense_;
	bool copy_;
};

/* Several tensors as blocks of one vector, one after the other: in place where they lie so
 * within reach. */
class Blocks
{
      public:
	Blocks(const Reach &reach, const std::vector<at::Tensor> &tensors, bool filled);
	void *data() const
	{
		return data_;
	}
	void keep();

      private:
	std::vector<at::Tensor> tensors_;
	at::Tensor flat_;
	void *data_;
};

/* Elements of the library in each of them. */
std::vector<uint64_t> counts_of(const std::vector<at::Tensor> &tensors);
bool all_equal(const std::vector<uint64_t> &counts);

} // namespace rubato_torch
