/* order.cpp -- see order.hpp. */
#include "order.hpp"

#include <ATen/core/ivalue.h>

#include "devices.hpp"
#include "failure.hpp"

namespace rubato_torch
{

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/* As PyTorch's profiler knows the operations of its own backends. */
static const char *profile_title(c10d::OpType type)
{
	using c10d::OpType;

	switch (type) {
	case OpType::ALLREDUCE:
	case OpType::ALLREDUCE_COALESCED:
		return "rubato:all_reduce";
	case OpType::ALLGATHER:
	case OpType::_ALLGATHER_BASE:
	case OpType::ALLGATHER_COALESCED:
		return "rubato:all_gather";
	case OpType::REDUCE_SCATTER:
	case OpType::_REDUCE_SCATTER_BASE:
		return "rubato:reduce_scatter";
	case OpType::ALLTOALL:
	case OpType::ALLTOALL_BASE:
		return "rubato:all_to_all";
	case OpType::BROADCAST:
		return "rubato:broadcast";
	case OpType::REDUCE:
		return "rubato:reduce";
	case OpType::GATHER:
		return "rubato:gather";
	case OpType::SCATTER:
		return "rubato:scatter";
	case OpType::BARRIER:
		return "rubato:barrier";
	case OpType::SEND:
		return "rubato:send";
	case OpType::RECV:
		return "rubato:recv";
	case OpType::RECVANYSOURCE:
		return "rubato:recvAnySource";
	default:
		return "rubato:other";
	}
}

Work::Work(int rank, c10d::OpType type, std::vector<at::Tensor> inputs,
	   std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type, profile_title(type), inputs), outputs_(std::move(outputs))
{
}

Work::Work(int rank, c10d::OpType type, std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type), outputs_(std::move(outputs))
{
	completed_ = true;
}

static void future_set(c10::ivalue::Future &future, const std::vector<at::Tensor> &outputs,
		       const std::exception_ptr &failure)
{
	if (failure != nullptr)
		future.setError(failure);
	else
		future.markCompleted(at::IValue(outputs));
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
	bool over;

	{
		std::lock_guard<std::mutex> lock(mutex_);

		if (future_ != nullptr)
			return future_;
		future_ = c10::make_intrusive<c10::ivalue::Future>(
			c10::ListType::create(c10::TensorType::get()), devices_of(outputs_));
		over = future_over_ = completed_;
	}
	if (over)
		future_set(*future_, outputs_, exception_);
	return future_;
}

std::vector<at::Tensor> Work::result()
{
	TORCH_CHECK(isCompleted(), "rubato: the result of an operation that is not complete: wait "
				   "for it first");
	return outputs_;
}

void Work::rethrow()
{
	std::exception_ptr failure = exception();

	if (failure != nullptr)
		std::rethrow_exception(failure);
}

void Work::end(std::exception_ptr failure)
{
	finish(std::move(failure));
}

void Work::future_end()
{
	{
		std::lock_guard<std::mutex> lock(mutex_);

		if (future_ == nullptr || future_over_)
			return;
		future_over_ = true;
	}
	future_set(*future_, outputs_, exception_);
}

Call::Call(std::shared_ptr<Order> order, std::function<void()> body, int rank, c10d::OpType type,
	   const char *title, std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
	   uint64_t number, milliseconds timeout)
    : Work(rank, type, std::move(inputs), std::move(outputs)), order_(std::move(order)),
      body_(std::move(body)), title_(title), number_(number), timeout_(timeout)
{
}

Call::Call(int rank, c10d::OpType type, const char *title, std::vector<at::Tensor> outputs,
	   uint64_t number, milliseconds timeout)
    : Work(rank, type, std::move(outputs)), title_(title), number_(number), timeout_(timeout)
{
}

void Call::run()
{
	std::exception_ptr failure;

	try {
		body_();
	} catch (...) {
		failure = std::current_exception();
	}
	body_ = nullptr; /* It holds tensors. */
	end(failure);
}

bool Call::wait(milliseconds timeout)
{
	if (!isCompleted() && !order_->wait(*this, timeout))
		fail(RUBATO_ERR_TIMEOUT, std::string(title_) + ", call " + std::to_string(number_) +
						 ": not done after " + seconds(timeout) +
						 "; it goes on");
	rethrow();
	return true;
}

void Order::add(const c10::intrusive_ptr<Call> &call, bool now)
{
	std::unique_lock<std::mutex> lock(mutex_);

	if (closed_)
		fail(RUBATO_ERR_CANCELLED,
		     std::string(call->title_) + ": its process group has been shut down");
	calls_.push_back(call);
	if (!now) {
		thread_for_more();
		return;
	}
	lock.unlock();
	(void)wait(*call, kNoTimeout);
}

/* What follows a call may wait for the next one, so it does not count as a thread. */
void Order::thread_for_more()
{
	if (calls_.empty())
		return;
	if (threads_.size() == following_)
		threads_.emplace_back(&Order::work, this);
	else
		more_.notify_one();
}

bool Order::begin()
{
	std::lock_guard<std::mutex> lock(mutex_);

	if (closed_ || running_ || !calls_.empty())
		return false;
	running_ = true;
	return true;
}

void Order::over()
{
	running_ = false;
	done_.notify_all();
	thread_for_more();
}

Turn::~Turn()
{
	if (!mine_)
		return;
	std::lock_guard<std::mutex> lock(order_.mutex_);
	order_.over();
}

void Order::first(std::unique_lock<std::mutex> &lock, bool own)
{
	c10::intrusive_ptr<Call> call = calls_.front();

	calls_.pop_front();
	running_ = true;
	lock.unlock();
	call->run();
	lock.lock();
	following_ += own;
	over();
	lock.unlock();
	call->future_end();
	call.reset();
	lock.lock();
	following_ -= own;
}

bool Order::wait(Call &call, milliseconds timeout)
{
	steady_clock::time_point deadline = steady_clock::now() + timeout;
	std::unique_lock<std::mutex> lock(mutex_);

	while (!call.isCompleted()) {
		if (timeout != kNoTimeout) {
			if (done_.wait_until(lock, deadline) == std::cv_status::timeout)
				return call.isCompleted();
		} else if (running_) {
			done_.wait(lock);
		} else {
			first(lock, false);
		}
	}
	return true;
}

void Order::work()
{
	std::unique_lock<std::mutex> lock(mutex_);

	while (!over_)
		if (running_ || calls_.empty())
			more_.wait(lock);
		else
			first(lock, true);
}

bool Order::drain(steady_clock::time_point deadline)
{
	std::unique_lock<std::mutex> lock(mutex_);

	closed_ = true;
	while (running_ || !calls_.empty()) {
		thread_for_more();
		if (done_.wait_until(lock, deadline) == std::cv_status::timeout)
			return !running_ && calls_.empty();
	}
	return true;
}

void Order::end()
{
	std::vector<std::thread> threads;

	{
		std::lock_guard<std::mutex> lock(mutex_);

		over_ = true;
		more_.notify_all();
		threads.swap(threads_);
	}
	for (std::thread &thread : threads)
		if (thread.get_id() == std::this_thread::get_id())
			thread.detach(); /* What follows a call has dropped the group. */
		else
			thread.join();
}

} // namespace rubato_torch
