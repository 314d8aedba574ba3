/*
 * memory.hpp -- memory of the library's that tensors hold: other ranks of the node read and write
 * it in place. It lives as long as its tensors, which may outlive their group, and so does the
 * communicator that it is of.
 */
#pragma once

#include <memory>
#include <mutex>

#include <ATen/ATen.h>
#include <rubato.h>

namespace rubato_torch
{

class Memory : public std::enable_shared_from_this<Memory>
{
      public:
	explicit Memory(rubato_comm *comm);
	at::Tensor tensor(int64_t count, const at::TensorOptions &options);
	/* Tensors that are there. */
	uint64_t held();
	/* The communicator is not used any more, on any rank: it ends with the last tensor. */
	void inherit();

      private:
	void give_back(void *place);

	rubato_comm *const comm_;
	const int process_;
	std::mutex mutex_;
	uint64_t held_ = 0;
	bool inherited_ = false;
};

} // namespace rubato_torch
