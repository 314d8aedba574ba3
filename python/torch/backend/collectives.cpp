/*
 * collectives.cpp -- c10d's collectives as the library's: arguments are checked at the call, memory
 * is looked at when its turn comes.
 */
#include <numeric>

#include "backend.hpp"
#include "failure.hpp"

namespace rubato_torch
{

using c10d::OpType;

void Backend::root_check(const char *name, int64_t root) const
{
	TORCH_CHECK_VALUE(root >= 0 && root < size_, "rubato: ", name, ": root ", root, " of ",
			  size_, " ranks");
}

/* One tensor for each rank, all of one type. */
void Backend::blocks_check(const char *name, const Tensors &blocks, const at::Tensor &like) const
{
	TORCH_CHECK_VALUE(blocks.size() == size_t(size_), "rubato: ", name, ": ", blocks.size(),
			  " tensors for ", size_, " ranks");
	for (const at::Tensor &block : blocks) {
		tensor_check(name, block);
		TORCH_CHECK_TYPE(block.scalar_type() == like.scalar_type(), "rubato: ", name,
				 ": tensors of ", block.scalar_type(), " and of ",
				 like.scalar_type());
	}
}

static void type_check(const char *name, const at::Tensor &a, const at::Tensor &b)
{
	TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), "rubato: ", name, ": tensors of ",
			 a.scalar_type(), " and of ", b.scalar_type());
}

/* `whole` is `part` for each of `size` ranks. */
static void whole_check(const char *name, const at::Tensor &whole, const at::Tensor &part, int size)
{
	type_check(name, whole, part);
	TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "rubato: ", name, ": ",
			  whole.numel(), " elements for ", size, " ranks with ", part.numel(),
			  " each");
}

static void count_check(const char *name, int64_t has, int64_t wants)
{
	TORCH_CHECK_VALUE(has == wants, "rubato: ", name, ": a tensor of ", has,
			  " elements where the others need ", wants);
}

static uint64_t count_of(const at::Tensor &tensor)
{
	return uint64_t(tensor.numel()) * elements_of(tensor.scalar_type()).each;
}

static rubato_type type_of(const at::Tensor &tensor)
{
	return elements_of(tensor.scalar_type()).type;
}

/* ---- From all to all ---- */

static void allreduce_one(const Reach &comm, const std::string &name, const at::Tensor &tensor,
			  const Reduction &reduction)
{
	Dense dense(comm, tensor, true);

	check(rubato_allreduce(comm, dense.data(), dense.data(), count_of(tensor),
			       reduction.elements.type, reduction.op),
	      name);
	dense.keep();
}

WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &o)
{
	if (tensors.size() == 1 && tensors[0].layout() == at::kSparse && within_reach(tensors[0]))
		return sparse_allreduce(tensors, o);

	at::Tensor tensor = only("allreduce", tensors);
	Reduction reduction = reduction_of("allreduce", tensor.scalar_type(), o.reduceOp);

	return call({ OpType::ALLREDUCE, "allreduce", o.timeout, o.asyncOp }, tensors, tensors,
		    [=](const Reach &comm, const std::string &name) {
			    allreduce_one(comm, name, tensor, reduction);
		    });
}

WorkPtr Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &o)
{
	static const char *const word = "allreduce_coalesced";
	std::vector<Reduction> reductions;

	for (const at::Tensor &tensor : tensors) {
		tensor_check(word, tensor);
		reductions.push_back(reduction_of(word, tensor.scalar_type(), o.reduceOp));
	}
	return call({ OpType::ALLREDUCE_COALESCED, word, o.timeout, o.asyncOp }, tensors, tensors,
		    [=](const Reach &comm, const std::string &name) {
			    for (size_t i = 0; i < tensors.size(); i++)
				    allreduce_one(comm, name, tensors[i], reductions[i]);
		    });
}

WorkPtr Backend::barrier(const c10d::BarrierOptions &o)
{
	return call({ OpType::BARRIER, "barrier", o.timeout, o.asyncOp }, {}, {},
		    [](const Reach &comm, const std::string &name) {
			    check(rubato_barrier(comm), name);
		    });
}

/* All ranks know all counts, so they agree on which of the two it is. */
static void allgather_blocks(const Reach &comm, const std::string &name, const Tensors &outs,
			     const at::Tensor &in)
{
	std::vector<uint64_t> counts = counts_of(outs);
	Dense from(comm, in, true);
	Blocks to(comm, outs, false);

	check(all_equal(counts)
		      ? rubato_allgather(comm, from.data(), to.data(), counts[0], type_of(in))
		      : rubato_allgatherv(comm, from.data(), to.data(), counts.data(), nullptr,
					  type_of(in)),
	      name);
	to.keep();
}

WorkPtr Backend::allgather(std::vector<Tensors> &outs, Tensors &ins,
			   const c10d::AllgatherOptions &o)
{
	at::Tensor in = only("allgather", ins);

	TORCH_CHECK_VALUE(outs.size() == 1, "rubato: allgather: ", outs.size(),
			  " lists of tensors: expected one");
	blocks_check("allgather", outs[0], in);
	count_check("allgather", in.numel(), outs[0][size_t(rank_)].numel());
	return call({ OpType::ALLGATHER, "allgather", o.timeout, o.asyncOp }, ins, outs[0],
		    [in, to = outs[0]](const Reach &comm, const std::string &name) {
			    allgather_blocks(comm, name, to, in);
		    });
}

/* outs[rank][i] gets ins[i] of that rank. */
WorkPtr Backend::allgather_coalesced(std::vector<Tensors> &outs, Tensors &ins,
				     const c10d::AllgatherOptions &o)
{
	static const char *const word = "allgather_coalesced";
	std::vector<Tensors> by_input(ins.size());
	Tensors all;

	TORCH_CHECK_VALUE(outs.size() == size_t(size_), "rubato: ", word, ": ", outs.size(),
			  " lists of tensors for ", size_, " ranks");
	for (const Tensors &list : outs) {
		TORCH_CHECK_VALUE(list.size() == ins.size(), "rubato: ", word, ": a list of ",
				  list.size(), " tensors for ", ins.size());
		for (size_t i = 0; i < ins.size(); i++)
			by_input[i].push_back(list[i]);
		all.insert(all.end(), list.begin(), list.end());
	}
	for (size_t i = 0; i < ins.size(); i++) {
		tensor_check(word, ins[i]);
		blocks_check(word, by_input[i], ins[i]);
		count_check(word, ins[i].numel(), by_input[i][size_t(rank_)].numel());
	}
	return call({ OpType::ALLGATHER_COALESCED, word, o.timeout, o.asyncOp }, ins, all,
		    [by_input, from = ins](const Reach &comm, const std::string &name) {
			    for (size_t i = 0; i < from.size(); i++)
				    allgather_blocks(comm, name, by_input[i], from[i]);
		    });
}

static void allgather_whole(const Reach &comm, const std::string &name, const at::Tensor &out,
			    const at::Tensor &in)
{
	Dense from(comm, in, true), to(comm, out, false);

	check(rubato_allgather(comm, from.data(), to.data(), count_of(in), type_of(in)), name);
	to.keep();
}

WorkPtr Backend::_allgather_base(at::Tensor &out, at::Tensor &in, const c10d::AllgatherOptions &o)
{
	tensor_check("allgather", in);
	tensor_check("allgather", out);
	whole_check("allgather", out, in, size_);
	return call({ OpType::_ALLGATHER_BASE, "allgather", o.timeout, o.asyncOp }, { in }, { out },
		    [out, in](const Reach &comm, const std::string &name) {
			    allgather_whole(comm, name, out, in);
		    });
}

static void lists_check(const char *name, const Tensors &outs, const Tensors &ins)
{
	TORCH_CHECK_VALUE(outs.size() == ins.size(), "rubato: ", name, ": ", outs.size(),
			  " outputs for ", ins.size(), " inputs");
	for (const Tensors *list : { &outs, &ins })
		for (const at::Tensor &tensor : *list)
			tensor_check(name, tensor);
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outs, Tensors &ins,
						 const c10d::AllgatherOptions &o)
{
	static const char *const word = "allgather_into_tensor_coalesced";

	lists_check(word, outs, ins);
	for (size_t i = 0; i < ins.size(); i++)
		whole_check(word, outs[i], ins[i], size_);
	return call({ OpType::_ALLGATHER_BASE, word, o.timeout, o.asyncOp }, ins, outs,
		    [to = outs, from = ins](const Reach &comm, const std::string &name) {
			    for (size_t i = 0; i < from.size(); i++)
				    allgather_whole(comm, name, to[i], from[i]);
		    });
}

WorkPtr Backend::reduce_scatter(Tensors &outs, std::vector<Tensors> &ins,
				const c10d::ReduceScatterOptions &o)
{
	at::Tensor out = only("reduce_scatter", outs);
	Reduction reduction = reduction_of("reduce_scatter", out.scalar_type(), o.reduceOp);

	TORCH_CHECK_VALUE(ins.size() == 1, "rubato: reduce_scatter: ", ins.size(),
			  " lists of tensors: expected one");
	blocks_check("reduce_scatter", ins[0], out);
	count_check("reduce_scatter", out.numel(), ins[0][size_t(rank_)].numel());
	return call({ OpType::REDUCE_SCATTER, "reduce_scatter", o.timeout, o.asyncOp }, ins[0],
		    outs,
		    [out, blocks = ins[0], reduction](const Reach &comm, const std::string &name) {
			    std::vector<uint64_t> counts = counts_of(blocks);
			    Blocks from(comm, blocks, true);
			    Dense to(comm, out, false);
			    rubato_type type = reduction.elements.type;

			    check(all_equal(counts)
					  ? rubato_reduce_scatter(comm, from.data(), to.data(),
								  counts[0], type, reduction.op)
					  : rubato_reduce_scatterv(comm, from.data(), to.data(),
								   counts.data(), nullptr, type,
								   reduction.op),
				  name);
			    to.keep();
		    });
}

static void reduce_scatter_whole(const Reach &comm, const std::string &name, const at::Tensor &out,
				 const at::Tensor &in, const Reduction &reduction)
{
	Dense from(comm, in, true), to(comm, out, false);

	check(rubato_reduce_scatter(comm, from.data(), to.data(), count_of(out),
				    reduction.elements.type, reduction.op),
	      name);
	to.keep();
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor &out, at::Tensor &in,
				      const c10d::ReduceScatterOptions &o)
{
	tensor_check("reduce_scatter", in);
	tensor_check("reduce_scatter", out);
	whole_check("reduce_scatter", in, out, size_);
	Reduction reduction = reduction_of("reduce_scatter", in.scalar_type(), o.reduceOp);

	return call({ OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", o.timeout, o.asyncOp },
		    { in }, { out },
		    [out, in, reduction](const Reach &comm, const std::string &name) {
			    reduce_scatter_whole(comm, name, out, in, reduction);
		    });
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outs, Tensors &ins,
						 const c10d::ReduceScatterOptions &o)
{
	static const char *const word = "reduce_scatter_tensor_coalesced";
	std::vector<Reduction> reductions;

	lists_check(word, outs, ins);
	for (size_t i = 0; i < ins.size(); i++) {
		whole_check(word, ins[i], outs[i], size_);
		reductions.push_back(reduction_of(word, ins[i].scalar_type(), o.reduceOp));
	}
	return call(
		{ OpType::_REDUCE_SCATTER_BASE, word, o.timeout, o.asyncOp }, ins, outs,
		[to = outs, from = ins, reductions](const Reach &comm, const std::string &name) {
			for (size_t i = 0; i < from.size(); i++)
				reduce_scatter_whole(comm, name, to[i], from[i], reductions[i]);
		});
}

/* ---- Each to each ---- */

WorkPtr Backend::alltoall(Tensors &outs, Tensors &ins, const c10d::AllToAllOptions &o)
{
	TORCH_CHECK_VALUE(!ins.empty(), "rubato: alltoall: no tensors");
	blocks_check("alltoall", ins, ins[0]);
	blocks_check("alltoall", outs, ins[0]);
	/* A rank knows its own counts only, so even ones go this way, too. */
	return call({ OpType::ALLTOALL, "alltoall", o.timeout, o.asyncOp }, ins, outs,
		    [out_list = outs, in_list = ins](const Reach &comm, const std::string &name) {
			    std::vector<uint64_t> sent = counts_of(in_list);
			    std::vector<uint64_t> received = counts_of(out_list);
			    Blocks from(comm, in_list, true), to(comm, out_list, false);

			    check(rubato_alltoallv(comm, from.data(), sent.data(), nullptr,
						   to.data(), received.data(), nullptr,
						   type_of(in_list[0])),
				  name);
			    to.keep();
		    });
}

/* Splits count along the first dimension. */
static std::vector<uint64_t> split_counts(const at::Tensor &tensor, const Splits &splits, int size)
{
	int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
	uint64_t row = rows > 0 ? count_of(tensor) / uint64_t(rows) : 0;
	std::vector<uint64_t> counts;

	if (splits.empty()) {
		TORCH_CHECK_VALUE(rows % size == 0, "rubato: alltoall: ", rows,
				  " rows cannot be split evenly over ", size, " ranks");
		counts.assign(size_t(size), uint64_t(rows / size) * row);
		return counts;
	}
	TORCH_CHECK_VALUE(splits.size() == size_t(size), "rubato: alltoall: ", splits.size(),
			  " splits for ", size, " ranks");
	TORCH_CHECK_VALUE(std::accumulate(splits.begin(), splits.end(), int64_t(0)) == rows,
			  "rubato: alltoall: splits do not add up to ", rows, " rows");
	for (int64_t split : splits) {
		TORCH_CHECK_VALUE(split >= 0, "rubato: alltoall: a split of ", split);
		counts.push_back(uint64_t(split) * row);
	}
	return counts;
}

WorkPtr Backend::alltoall_base(at::Tensor &out, at::Tensor &in, Splits &out_splits,
			       Splits &in_splits, const c10d::AllToAllOptions &o)
{
	bool even = out_splits.empty() && in_splits.empty();

	tensor_check("alltoall", in);
	tensor_check("alltoall", out);
	type_check("alltoall", out, in);
	if (even)
		count_check("alltoall", out.numel(), in.numel());
	std::vector<uint64_t> sent = split_counts(in, in_splits, size_);
	std::vector<uint64_t> received = split_counts(out, out_splits, size_);

	return call({ OpType::ALLTOALL_BASE, "alltoall", o.timeout, o.asyncOp }, { in }, { out },
		    [=](const Reach &comm, const std::string &name) {
			    Dense from(comm, in, true), to(comm, out, false);

			    check(even ? rubato_alltoall(comm, from.data(), to.data(), sent[0],
							 type_of(in))
				       : rubato_alltoallv(comm, from.data(), sent.data(), nullptr,
							  to.data(), received.data(), nullptr,
							  type_of(in)),
				  name);
			    to.keep();
		    });
}

/* ---- From and to a root ---- */

WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &o)
{
	at::Tensor tensor = only("broadcast", tensors);
	uint32_t root = uint32_t(o.rootRank);

	root_check("broadcast", o.rootRank);
	return call({ OpType::BROADCAST, "broadcast", o.timeout, o.asyncOp }, tensors, tensors,
		    [=](const Reach &comm, const std::string &name) {
			    Dense dense(comm, tensor, rubato_rank(comm) == root);

			    check(rubato_broadcast(comm, dense.data(), count_of(tensor),
						   type_of(tensor), root),
				  name);
			    dense.keep();
		    });
}

WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &o)
{
	at::Tensor tensor = only("reduce", tensors);
	Reduction reduction = reduction_of("reduce", tensor.scalar_type(), o.reduceOp);
	uint32_t root = uint32_t(o.rootRank);

	root_check("reduce", o.rootRank);
	return call({ OpType::REDUCE, "reduce", o.timeout, o.asyncOp }, tensors, tensors,
		    [=](const Reach &comm, const std::string &name) {
			    Dense dense(comm, tensor, true);

			    check(rubato_reduce(comm, dense.data(), dense.data(), count_of(tensor),
						reduction.elements.type, reduction.op, root),
				  name);
			    if (rubato_rank(comm) == root)
				    dense.keep();
		    });
}

WorkPtr Backend::gather(std::vector<Tensors> &outs, Tensors &ins, const c10d::GatherOptions &o)
{
	at::Tensor in = only("gather", ins);
	uint32_t root = uint32_t(o.rootRank);
	Tensors to;

	root_check("gather", o.rootRank);
	if (o.rootRank == rank_) {
		TORCH_CHECK_VALUE(outs.size() == 1, "rubato: gather: ", outs.size(),
				  " lists of tensors at the root: expected one");
		to = outs[0];
		blocks_check("gather", to, in);
		for (const at::Tensor &block : to)
			count_check("gather", block.numel(), in.numel());
	}
	return call({ OpType::GATHER, "gather", o.timeout, o.asyncOp }, ins, to,
		    [=](const Reach &comm, const std::string &name) {
			    Dense from(comm, in, true);

			    if (to.empty())
				    return check(rubato_gather(comm, from.data(), nullptr,
							       count_of(in), type_of(in), root),
						 name);
			    Blocks blocks(comm, to, false);
			    check(rubato_gather(comm, from.data(), blocks.data(), count_of(in),
						type_of(in), root),
				  name);
			    blocks.keep();
		    });
}

WorkPtr Backend::gather_single(at::Tensor &out, at::Tensor &in, const c10d::GatherOptions &o)
{
	uint32_t root = uint32_t(o.rootRank);
	bool here = o.rootRank == rank_;

	root_check("gather", o.rootRank);
	tensor_check("gather", in);
	if (here) {
		tensor_check("gather", out);
		whole_check("gather", out, in, size_);
	}
	return call({ OpType::GATHER, "gather", o.timeout, o.asyncOp }, { in },
		    here ? Tensors { out } : Tensors {},
		    [=](const Reach &comm, const std::string &name) {
			    Dense from(comm, in, true), to(comm, here ? out : in, false);

			    check(rubato_gather(comm, from.data(), here ? to.data() : nullptr,
						count_of(in), type_of(in), root),
				  name);
			    if (here)
				    to.keep();
		    });
}

WorkPtr Backend::scatter(Tensors &outs, std::vector<Tensors> &ins, const c10d::ScatterOptions &o)
{
	at::Tensor out = only("scatter", outs);
	uint32_t root = uint32_t(o.rootRank);
	Tensors from;

	root_check("scatter", o.rootRank);
	if (o.rootRank == rank_) {
		TORCH_CHECK_VALUE(ins.size() == 1, "rubato: scatter: ", ins.size(),
				  " lists of tensors at the root: expected one");
		from = ins[0];
		blocks_check("scatter", from, out);
		for (const at::Tensor &block : from)
			count_check("scatter", block.numel(), out.numel());
	}
	return call({ OpType::SCATTER, "scatter", o.timeout, o.asyncOp }, from, outs,
		    [=](const Reach &comm, const std::string &name) {
			    Dense to(comm, out, false);

			    if (from.empty()) {
				    check(rubato_scatter(comm, nullptr, to.data(), count_of(out),
							 type_of(out), root),
					  name);
			    } else {
				    Blocks blocks(comm, from, true);

				    check(rubato_scatter(comm, blocks.data(), to.data(),
							 count_of(out), type_of(out), root),
					  name);
			    }
			    to.keep();
		    });
}

} // namespace rubato_torch
