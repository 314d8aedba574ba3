/*
 * backend.hpp -- one rank's end of one process group: a communicator of the library behind the
 * interface of c10d.
 */
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "devices.hpp"
#include "memory.hpp"
#include "messages.hpp"
#include "order.hpp"
#include "tensors.hpp"

namespace rubato_torch
{

using Timeout = std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Splits = std::vector<int64_t>;

class Backend : public c10d::Backend
{
      public:
	struct Options : c10d::Backend::Options {
		explicit Options(Timeout timeout) : c10d::Backend::Options("rubato", timeout)
		{
		}
		virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const
		{
			return c10::make_intrusive<Options>(*this);
		}
	};

	/* Collective. Ranks meet by what rank 0 leaves in the store. */
	Backend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
		const c10::intrusive_ptr<Options> &options);
	~Backend() override;

	/* Ends every group of this process that is still open: aborts it, or waits a little for the
	 * others. For when the interpreter ends. */
	static void end_all(bool aborting);

	const std::string getBackendName() const override
	{
		return "rubato";
	}
	c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override
	{
		return options_;
	}
	bool supportsSplitting() const override
	{
		return true;
	}
	c10::intrusive_ptr<c10d::Backend> split(
		const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
		const c10::intrusive_ptr<c10d::Backend::Options> &options) override;
	void setTimeout(Timeout timeout) override
	{
		options_->timeout = timeout;
	}
	uint64_t getSequenceNumberForGroup() override
	{
		return calls_;
	}
	c10d::ErrorType getError() override;
	void abort() override;
	void shutdown() override;
	bool supportsTensorAlloc(at::DeviceIndex device) override
	{
		return device < 0; /* Of the host. */
	}
	/* Memory that other ranks of the node read and write in place. */
	at::Tensor allocateTensor(long size, at::TensorOptions options) override;

	/* ---- collectives.cpp; by the older names, to which PyTorch forwards the newer ones ---- */
	WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &o) override;
	WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &o) override;
	WorkPtr allreduce_coalesced(Tensors &tensors,
				    const c10d::AllreduceCoalescedOptions &o) override;
	WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &o) override;
	WorkPtr allgather(std::vector<Tensors> &outs, Tensors &ins,
			  const c10d::AllgatherOptions &o) override;
	WorkPtr allgather_coalesced(std::vector<Tensors> &outs, Tensors &ins,
				    const c10d::AllgatherOptions &o) override;
	WorkPtr _allgather_base(at::Tensor &out, at::Tensor &in,
				const c10d::AllgatherOptions &o) override;
	WorkPtr allgather_into_tensor_coalesced(Tensors &outs, Tensors &ins,
						const c10d::AllgatherOptions &o) override;
	WorkPtr gather(std::vector<Tensors> &outs, Tensors &ins,
		       const c10d::GatherOptions &o) override;
	virtual WorkPtr gather_single(at::Tensor &out, at::Tensor &in,
				      const c10d::GatherOptions &o); /* Not before 2.15. */
	WorkPtr scatter(Tensors &outs, std::vector<Tensors> &ins,
			const c10d::ScatterOptions &o) override;
	WorkPtr reduce_scatter(Tensors &outs, std::vector<Tensors> &ins,
			       const c10d::ReduceScatterOptions &o) override;
	WorkPtr _reduce_scatter_base(at::Tensor &out, at::Tensor &in,
				     const c10d::ReduceScatterOptions &o) override;
	WorkPtr reduce_scatter_tensor_coalesced(Tensors &outs, Tensors &ins,
						const c10d::ReduceScatterOptions &o) override;
	WorkPtr alltoall_base(at::Tensor &out, at::Tensor &in, Splits &out_splits,
			      Splits &in_splits, const c10d::AllToAllOptions &o) override;
	WorkPtr alltoall(Tensors &outs, Tensors &ins, const c10d::AllToAllOptions &o) override;
	WorkPtr barrier(const c10d::BarrierOptions &o) override;

	/* ---- sparse.cpp: c10d calls allreduce ---- */
	WorkPtr sparse_allreduce(Tensors &tensors, const c10d::AllreduceOptions &o);

	/* ---- point_to_point.cpp ---- */
	WorkPtr send(Tensors &tensors, int peer, int tag) override;
	WorkPtr recv(Tensors &tensors, int peer, int tag) override;
	WorkPtr recvAnysource(Tensors &tensors, int tag) override;
	void monitoredBarrier(const c10d::BarrierOptions &o, bool wait_all_ranks) override;

      private:
	/* Throws what went wrong. */
	using Body = std::function<void(const Reach &comm, const std::string &name)>;
	struct What {
		c10d::OpType type;
		const char *name;
		Timeout timeout;
		bool async;
	};

	void open(const c10::intrusive_ptr<c10d::Store> &store);
	void settings_check(c10d::Store &store);
	void others_await(c10d::Store &store);
	rubato_id id_exchange(c10d::Store &store);
	rubato_comm *comm(const char *name) const;
	Reach reach(const Moment &moment);
	WorkPtr call(const What &what, const Tensors &ins, const Tensors &outs, Body body);
	void carry_out(const std::string &name, Timeout timeout, const Moment &moment,
		       const Body &body);
	WorkPtr message(const char *name, c10d::OpType type, const Tensors &tensors,
			std::vector<uint32_t> peers, int tag);
	void root_check(const char *name, int64_t root) const;
	void blocks_check(const char *name, const Tensors &blocks, const at::Tensor &like) const;
	void monitor(bool wait_all_ranks, Timeout timeout, uint32_t tag);
	void report(Timeout timeout, uint32_t tag);
	void close(Timeout patience);
	rubato_status leave();

	const c10::intrusive_ptr<Options> options_;
	std::string where_; /* Which ranks the numbers are of, where they are not the world's. */
	rubato_comm *comm_ = nullptr;
	const int process_;
	std::shared_ptr<Order> order_;
	std::shared_ptr<Messages> messages_;
	std::shared_ptr<Memory> memory_;
	std::mutex end_; /* Of those that abort and close. */
	std::atomic<uint64_t> calls_ { 0 };
	std::atomic<bool> failed_ { false };
	uint32_t barriers_ = 0; /* Monitored ones. */
	Timeout timeout_ { 0 }; /* The communicator's own; 0: it is not known. */
	bool device_asked_ = false;
	std::optional<c10::Device> device_; /* Whose memory the communicator takes. */
};

} // namespace rubato_torch
