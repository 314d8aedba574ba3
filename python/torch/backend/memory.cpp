/* memory.cpp -- see memory.hpp. */
#include "memory.hpp"

#include <unistd.h>

#include "failure.hpp"
#include "tensors.hpp"

namespace rubato_torch
{

Memory::Memory(rubato_comm *comm) : comm_(comm), process_(getpid())
{
}

at::Tensor Memory::tensor(int64_t count, const at::TensorOptions &options)
{
	at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
	void *place;

	TORCH_CHECK_VALUE(count >= 0, "rubato: allocate_tensor: ", count, " elements");
	TORCH_CHECK_NOT_IMPLEMENTED(options.device().is_cpu(),
				    "rubato: allocate_tensor: memory of ", options.device());
	if (count == 0)
		return at::empty({ 0 }, options);
	{
		std::lock_guard<std::mutex> lock(mutex_);

		check(rubato_alloc(comm_, size_t(count) * c10::elementSize(type), &place),
		      "rubato: allocate_tensor");
		held_++;
	}
	return at::from_blob(
		place, { count },
		[self = shared_from_this()](void *data) { self->give_back(data); }, options);
}

uint64_t Memory::held()
{
	std::lock_guard<std::mutex> lock(mutex_);

	return held_;
}

/* To abort tells the others, who use it no more; so nobody waits for anybody. */
static void end(rubato_comm *comm)
{
	(void)rubato_abort(comm);
	(void)rubato_finalize(comm);
}

void Memory::inherit()
{
	std::lock_guard<std::mutex> lock(mutex_);

	inherited_ = true;
	if (held_ == 0)
		end(comm_);
}

void Memory::give_back(void *place)
{
	std::lock_guard<std::mutex> lock(mutex_);

	if (process_ != getpid()) /* A child that was forked: the communicator is not its own. */
		return;
	(void)rubato_free(comm_, place);
	held_--;
	if (inherited_ && held_ == 0)
		end(comm_);
}

} // namespace rubato_torch
