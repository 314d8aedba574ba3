/*
 * messages.hpp -- send and receive: operations of the library, each in flight by itself, which its
 * background progress moves.
 */
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "devices.hpp"
#include "order.hpp"
#include "tensors.hpp"

namespace rubato_torch
{

class Messages;

/* A message, or one from whoever comes first: then `peers` has all others, each with room of its
 * own, and those that come second are kept for later receives. */
class Message : public Work
{
      public:
	struct Way {
		uint32_t peer;
		rubato_op *op;
		at::Tensor room; /* Undefined: the message's own. */
	};

	Message(std::shared_ptr<Messages> messages, std::string name, c10d::OpType type, int rank,
		const at::Tensor &tensor, std::vector<uint32_t> peers, uint32_t tag,
		std::chrono::milliseconds timeout);
	~Message() override;
	bool isCompleted() override;
	bool isSuccess() const override;
	bool wait(std::chrono::milliseconds timeout) override;
	void abort() override;
	int sourceRank() const override;
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
	virtual std::chrono::milliseconds getTimeout() const /* c10d's since 2.15. */
	{
		return timeout_;
	}

      private:
	friend class Messages;
	void start();
	bool take_kept();
	bool look();
	bool probe();
	bool wait_until(std::chrono::steady_clock::time_point until, std::string *text);
	void arrived(size_t way, rubato_status status, const std::string &text);
	void bring(const at::Tensor &room);
	void give_up(rubato_status status, const std::string &text);

	std::shared_ptr<Messages> messages_;
	const std::string name_;
	const at::Tensor tensor_;
	const Moment moment_;
	std::unique_ptr<Dense> memory_;
	std::vector<uint32_t> peers_;
	const uint32_t tag_;
	const std::chrono::milliseconds timeout_;
	const std::chrono::steady_clock::time_point deadline_;
	std::timed_mutex
		gate_; /* Around the library's operations, which one thread at a time waits for. */
	std::vector<Way> ways_;
	std::atomic<bool> over_ { false };
	int source_ = -1;
};

/* Those of a group. */
class Messages
{
      public:
	explicit Messages(rubato_comm *comm) : comm_(comm)
	{
	}
	void add(const c10::intrusive_ptr<Message> &message);
	/* Has it looked at until it is over, as nobody may wait for it. */
	void watch();
	/* All that are in flight end as cancelled; none is added any more. */
	void end();

      private:
	friend class Message;
	void drop(const Message *message);
	void work();

	rubato_comm *const comm_;
	std::mutex mutex_, kept_mutex_;
	std::condition_variable changed_;
	std::list<c10::intrusive_ptr<Message>> in_flight_;
	/* Those that came second, by peer and tag, in the order in which they came. */
	std::map<std::pair<uint32_t, uint32_t>, std::deque<at::Tensor>> kept_;
	std::thread watcher_;
	bool closed_ = false;
};

} // namespace rubato_torch
