/*
 * sparse.cpp -- sums of sparse tensors (layout COO), as gradients of embeddings are. Each rank has
 * elements at places of its own, so all get all ranks' places and elements, in the order of ranks,
 * and add up for themselves: the same bits everywhere.
 */
#include "backend.hpp"
#include "failure.hpp"

namespace rubato_torch
{

/* What all ranks must have alike: numbers of sparse and dense dimensions, and their lengths. */
static std::vector<uint64_t> shape_of(const at::Tensor &tensor)
{
	std::vector<uint64_t> shape { uint64_t(tensor.sparse_dim()), uint64_t(tensor.dense_dim()) };

	shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
	return shape;
}

/* How many elements each rank has. */
static std::vector<uint64_t> gather_counts(rubato_comm *comm, const std::string &name,
					   const at::Tensor &tensor)
{
	std::vector<uint64_t> mine = shape_of(tensor), all;
	std::vector<uint64_t> counts(rubato_size(comm));

	mine.push_back(uint64_t(tensor._nnz()));
	all.resize(mine.size() * counts.size());
	check(rubato_allgather(comm, mine.data(), all.data(), mine.size(), RUBATO_UINT64), name);
	for (size_t rank = 0; rank < counts.size(); rank++) {
		auto theirs = all.begin() + ptrdiff_t(rank * mine.size());

		if (!std::equal(mine.begin(), mine.end() - 1, theirs))
			fail(RUBATO_ERR_MISMATCH, name + ": rank " + std::to_string(rank) +
							  " has a sparse tensor of another shape");
		counts[rank] = theirs[ptrdiff_t(mine.size()) - 1];
	}
	return counts;
}

/* All ranks' rows, one below the other. */
static at::Tensor gather_rows(rubato_comm *comm, const std::string &name, const at::Tensor &mine,
			      std::vector<uint64_t> counts)
{
	at::Tensor rows = mine.to(at::kCPU).contiguous();
	std::vector<int64_t> shape = rows.sizes().vec();
	Elements elements = elements_of(rows.scalar_type());
	uint64_t each = elements.each, total = 0;

	for (size_t i = 1; i < shape.size(); i++)
		each *= uint64_t(shape[i]);
	for (uint64_t &count : counts) {
		total += count;
		count *= each;
	}
	shape[0] = int64_t(total);

	at::Tensor all = at::empty(shape, rows.options());
	check(rubato_allgatherv(comm, rows.data_ptr(), all.data_ptr(), counts.data(), nullptr,
				elements.type),
	      name);
	return all;
}

static void add_up(rubato_comm *comm, const std::string &name, const at::Tensor &tensor,
		   bool average)
{
	at::AutoDispatchBelowADInplaceOrView plain;
	at::Tensor own = tensor.coalesce();
	std::vector<uint64_t> counts = gather_counts(comm, name, own);
	at::Tensor places = gather_rows(comm, name, own.indices().t(), counts);
	at::Tensor elements = gather_rows(comm, name, own.values(), counts);
	at::Tensor sum =
		at::_sparse_coo_tensor_unsafe(places.t(), elements, tensor.sizes()).coalesce();

	if (average)
		sum.values().div_(int64_t(counts.size()));
	tensor.copy_(sum);
}

/* dist.all_reduce hands on torch.view_as_real of a complex tensor. Of a sparse one that has places of
 * its own, to which no sum comes back; so it is the complex one that is summed. Nothing: it is real. */
static at::Tensor complex_of(const at::Tensor &tensor)
{
	if (!tensor.is_view())
		return at::Tensor();

	at::Tensor base(tensor._base());
	std::vector<int64_t> shape = base.sizes().vec();
	shape.push_back(2);
	if (!base.is_sparse() || !base.is_complex() || tensor.sizes() != shape)
		return at::Tensor();
	return base;
}

WorkPtr Backend::sparse_allreduce(Tensors &tensors, const c10d::AllreduceOptions &o)
{
	static const char *const word = "allreduce";
	at::Tensor tensor = tensors[0], whole = complex_of(tensor);
	rubato_operator op = reduction_of(word, tensor.scalar_type(), o.reduceOp).op;

	TORCH_CHECK_NOT_IMPLEMENTED(
		(op == RUBATO_SUM || op == RUBATO_AVG) && tensor.scalar_type() != at::kBool,
		"rubato: ", word, ": of sparse tensors only sums and averages are supported");
	return call({ c10d::OpType::ALLREDUCE, word, o.timeout, o.asyncOp }, tensors, tensors,
		    [=](const Reach &comm, const std::string &name) {
			    add_up(comm, name, whole.defined() ? whole : tensor, op == RUBATO_AVG);
			    if (whole.defined()) {
				    at::AutoDispatchBelowADInplaceOrView plain;

				    tensor.copy_(at::view_as_real(whole));
			    }
		    });
}

} // namespace rubato_torch
