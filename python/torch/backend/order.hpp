/*
 * order.hpp -- a group's collectives, carried out one after the other in the order of the calls.
 *
 * Who waits for one carries out what is in front of it, and then itself: no thread is between a
 * call that blocks and the library. Where nobody waits, a thread does. Only one runs at a time.
 * A call that blocks and has nothing in front of it takes a turn, without being put in line.
 */
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace rubato_torch
{

class Order;

/* Work that can tell when it is done in one more way: by a future, made when it is asked for. */
class Work : public c10d::Work
{
      public:
	Work(int rank, c10d::OpType type, std::vector<at::Tensor> inputs,
	     std::vector<at::Tensor> outputs);
	/* Over from the start, and not the profiler's. */
	Work(int rank, c10d::OpType type, std::vector<at::Tensor> outputs);
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
	std::vector<at::Tensor> result() override;
	void synchronize() override
	{
	}

      protected:
	void rethrow();
	/* The last one of these two, in this order: what waits, then what was to follow. */
	void end(std::exception_ptr failure);
	void future_end();

	std::vector<at::Tensor> outputs_;

      private:
	c10::intrusive_ptr<c10::ivalue::Future> future_;
	bool future_over_ = false;
};

/* One collective. */
class Call : public Work
{
      public:
	Call(std::shared_ptr<Order> order, std::function<void()> body, int rank, c10d::OpType type,
	     const char *title, std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
	     uint64_t number, std::chrono::milliseconds timeout);
	/* One that has been carried out. */
	Call(int rank, c10d::OpType type, const char *title, std::vector<at::Tensor> outputs,
	     uint64_t number, std::chrono::milliseconds timeout);
	bool wait(std::chrono::milliseconds timeout) override;
	uint64_t getSequencenumber() const override
	{
		return number_;
	}
	virtual std::chrono::milliseconds getTimeout() const /* c10d's since 2.15. */
	{
		return timeout_;
	}

      private:
	friend class Order;
	void run();

	std::shared_ptr<Order> order_;
	std::function<void()> body_; /* Throws what went wrong. */
	const char *title_;
	const uint64_t number_;
	const std::chrono::milliseconds timeout_;
};

class Order
{
      public:
	/* `now`: carried out before it returns. */
	void add(const c10::intrusive_ptr<Call> &call, bool now);
	/* False: not done in time. 0: however long it takes. */
	bool wait(Call &call, std::chrono::milliseconds timeout);
	/* Nothing is added any more. False: some are left at the deadline. */
	bool drain(std::chrono::steady_clock::time_point deadline);
	void end(); /* After a drain. Its threads end. */

      private:
	friend class Turn;
	bool begin(); /* False: others are in front. */
	void over();  /* Under the lock. */
	void work();
	void first(std::unique_lock<std::mutex> &lock, bool own_thread);
	void thread_for_more();

	std::mutex mutex_;
	std::condition_variable more_, done_;
	std::deque<c10::intrusive_ptr<Call>> calls_;
	std::vector<std::thread> threads_;
	size_t following_ = 0; /* Threads that carry out what follows a call, and may wait there. */
	bool running_ = false, closed_ = false, over_ = false;
};

/* While it lives nothing else of the order runs; false: others are in front. */
class Turn
{
      public:
	explicit Turn(Order &order) : order_(order), mine_(order.begin())
	{
	}
	~Turn();
	Turn(const Turn &) = delete;
	Turn &operator=(const Turn &) = delete;
	explicit operator bool() const
	{
		return mine_;
	}

      private:
	Order &order_;
	const bool mine_;
};

} // namespace rubato_torch
