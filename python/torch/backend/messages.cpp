/* messages.cpp -- see messages.hpp. */
#include "messages.hpp"

#include "failure.hpp"

namespace rubato_torch
{

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/* Between two looks, where several are waited for, or nobody waits. */
static constexpr auto PAUSE_SHORT = std::chrono::microseconds(20);
static constexpr auto PAUSE = milliseconds(1);
static constexpr int LOOKS_SHORT = 200;

Message::Message(std::shared_ptr<Messages> messages, std::string name, c10d::OpType type, int rank,
		 const at::Tensor &tensor, std::vector<uint32_t> peers, uint32_t tag,
		 milliseconds timeout)
    : Work(rank, type, { tensor }, { tensor }), messages_(std::move(messages)),
      name_(std::move(name)), tensor_(tensor), moment_({ &outputs_ }), peers_(std::move(peers)),
      tag_(tag), timeout_(timeout), deadline_(steady_clock::now() + timeout)
{
	Behind behind(moment_, name_, timeout_);

	memory_ = std::make_unique<Dense>(Reach { messages_->comm_, {} }, tensor_,
					  type == c10d::OpType::SEND);
	behind.finish();
}

/* Messages keeps it while it is in flight, so only one that could not be started has some. */
Message::~Message()
{
	for (const Way &way : ways_)
		rubato_op_free(way.op);
}

/* A message that a receive from any rank had got besides another one. */
bool Message::take_kept()
{
	std::lock_guard<std::mutex> lock(messages_->kept_mutex_);

	for (uint32_t peer : peers_) {
		auto found = messages_->kept_.find({ peer, tag_ });

		if (found == messages_->kept_.end())
			continue;
		at::Tensor room = found->second.front();
		if (room.scalar_type() != tensor_.scalar_type() || room.numel() != tensor_.numel())
			fail(RUBATO_ERR_MISMATCH,
			     name_ + ": rank " + std::to_string(peer) + " has sent " +
				     std::to_string(room.numel()) + " elements of " +
				     c10::toString(room.scalar_type()) + ", and " +
				     std::to_string(tensor_.numel()) + " of " +
				     c10::toString(tensor_.scalar_type()) + " are expected");
		found->second.pop_front();
		if (found->second.empty())
			messages_->kept_.erase(found);
		bring(room.view(tensor_.sizes()));
		memory_.reset();
		source_ = int(peer);
		return true;
	}
	return false;
}

void Message::start()
{
	bool sends = opType_ == c10d::OpType::SEND;
	Elements elements = elements_of(tensor_.scalar_type());
	uint64_t count = uint64_t(tensor_.numel()) * elements.each;

	for (uint32_t peer : peers_) {
		Way way = { peer, nullptr, {} };
		void *data = memory_->data();

		if (peers_.size() > 1) {
			way.room = at::empty(tensor_.sizes(), tensor_.options().device(at::kCPU));
			data = way.room.data_ptr();
		}
		check(sends ? rubato_op_send(messages_->comm_, data, count, elements.type, peer,
					     tag_, &way.op)
			    : rubato_op_recv(messages_->comm_, data, count, elements.type, peer,
					     tag_, &way.op),
		      name_);
		ways_.push_back(way);
		check(rubato_start(way.op), name_);
	}
}

/* What has come goes to where it belongs: from its own memory, or from room. */
void Message::bring(const at::Tensor &room)
{
	at::AutoDispatchBelowADInplaceOrView plain;
	Behind behind(moment_, name_, timeout_);

	if (room.defined())
		tensor_.copy_(room);
	else
		memory_->keep();
	behind.finish();
}

/* Ends it: with what came by one way, or with a failure. Behind the gate. */
void Message::arrived(size_t which, rubato_status status, const std::string &text)
{
	std::exception_ptr failure;

	for (size_t i = 0; i < ways_.size(); i++) {
		Way &way = ways_[i];

		/* Another one that has come all the same. */
		if (i != which && rubato_cancel(way.op) == RUBATO_OK && way.room.defined() &&
		    rubato_wait(way.op, RUBATO_NO_WAIT) == RUBATO_OK) {
			std::lock_guard<std::mutex> lock(messages_->kept_mutex_);

			messages_->kept_[{ way.peer, tag_ }].push_back(way.room);
		}
		rubato_op_free(way.op);
	}
	try {
		if (status != RUBATO_OK)
			fail(status, text);
		source_ = int(ways_[which].peer);
		if (opType_ != c10d::OpType::SEND)
			bring(ways_[which].room);
	} catch (...) {
		failure = std::current_exception();
	}
	ways_.clear();
	memory_.reset();
	over_ = true;
	end(failure);
}

void Message::give_up(rubato_status status, const std::string &text)
{
	/* It may have come at the last moment. */
	for (size_t i = 0; i < ways_.size(); i++)
		if (rubato_cancel(ways_[i].op) == RUBATO_OK &&
		    rubato_wait(ways_[i].op, RUBATO_NO_WAIT) == RUBATO_OK)
			return arrived(i, RUBATO_OK, "");
	arrived(ways_.size(), status, text);
}

/* Behind the gate. Whether it is over. */
bool Message::look()
{
	for (size_t i = 0; i < ways_.size() && !over_; i++) {
		bool done = false;
		rubato_status status = rubato_test(ways_[i].op, &done);

		if (done || status != RUBATO_OK)
			arrived(i, status,
				status == RUBATO_OK ? "" : name_ + ": " + rubato_error_text());
	}
	if (!over_ && steady_clock::now() >= deadline_)
		give_up(RUBATO_ERR_TIMEOUT,
			name_ + ": rank " + std::to_string(rank_) + " waited " + seconds(timeout_));
	return over_;
}

bool Message::probe()
{
	std::unique_lock<std::timed_mutex> gate(gate_, std::defer_lock);
	bool over = over_;

	if (!over && gate.try_lock()) {
		over = over_ || look();
		gate.unlock();
		if (over)
			future_end();
	}
	return over;
}

bool Message::isCompleted()
{
	if (over_ || !probe())
		return over_;
	messages_->drop(this);
	return true;
}

bool Message::isSuccess() const
{
	return over_ && exception() == nullptr;
}

/* Behind the gate. */
bool Message::wait_until(steady_clock::time_point until, std::string *text)
{
	int looks = 0;

	if (ways_.size() == 1) {
		rubato_status status = rubato_wait(
			ways_[0].op, nanoseconds(std::min(until, deadline_) - steady_clock::now()));

		*text = name_ + ": " + rubato_error_text();
		if (status != RUBATO_ERR_TIMEOUT)
			arrived(0, status, *text);
		else if (steady_clock::now() >= deadline_)
			give_up(status, *text);
		return over_;
	}
	*text = name_ + ": not there yet";
	while (!look() && steady_clock::now() < until)
		if (looks++ < LOOKS_SHORT)
			std::this_thread::sleep_for(PAUSE_SHORT);
		else
			std::this_thread::sleep_for(PAUSE);
	return over_;
}

bool Message::wait(milliseconds timeout)
{
	steady_clock::time_point until = timeout == kNoTimeout ? steady_clock::time_point::max()
							       : steady_clock::now() + timeout;
	std::string text = name_ + ": another thread waits for it";

	if (!over_) {
		std::unique_lock<std::timed_mutex> gate(gate_, std::defer_lock);
		bool over;

		if (timeout == kNoTimeout)
			gate.lock();
		else if (!gate.try_lock_until(until))
			fail(RUBATO_ERR_TIMEOUT, text);
		over = over_ || wait_until(until, &text);
		gate.unlock();
		if (!over)
			fail(RUBATO_ERR_TIMEOUT, text);
		future_end();
		messages_->drop(this);
	}
	rethrow();
	return true;
}

void Message::abort()
{
	{
		std::lock_guard<std::timed_mutex> gate(gate_);

		if (!over_)
			give_up(RUBATO_ERR_CANCELLED, name_ + ": aborted");
	}
	future_end();
	messages_->drop(this);
}

int Message::sourceRank() const
{
	return source_;
}

c10::intrusive_ptr<c10::ivalue::Future> Message::getFuture()
{
	c10::intrusive_ptr<c10::ivalue::Future> future = Work::getFuture();

	if (!isCompleted())
		messages_->watch();
	return future;
}

void Messages::add(const c10::intrusive_ptr<Message> &message)
{
	std::lock_guard<std::mutex> lock(mutex_);

	if (closed_)
		fail(RUBATO_ERR_CANCELLED,
		     message->name_ + ": its process group has been shut down");
	/* Nobody asks about those that only this list has. */
	for (auto at = in_flight_.begin(); at != in_flight_.end();)
		if ((*at)->over_ || (at->use_count() == 1 && (*at)->probe()))
			at = in_flight_.erase(at);
		else
			at++;
	if (message->opType_ != c10d::OpType::SEND && message->take_kept()) {
		message->over_ = true;
		message->end(nullptr);
		return;
	}
	message->start();
	in_flight_.push_back(message);
}

/* Its reference may be the last one but the caller's. */
void Messages::drop(const Message *message)
{
	std::lock_guard<std::mutex> lock(mutex_);

	in_flight_.remove_if([message](const auto &other) { return other.get() == message; });
}

void Messages::watch()
{
	std::lock_guard<std::mutex> lock(mutex_);

	if (!watcher_.joinable() && !closed_)
		watcher_ = std::thread(&Messages::work, this);
	changed_.notify_all();
}

void Messages::work()
{
	std::unique_lock<std::mutex> lock(mutex_);

	while (!closed_) {
		std::list<c10::intrusive_ptr<Message>> some = in_flight_;

		if (some.empty()) {
			changed_.wait(lock);
			continue;
		}
		lock.unlock();
		for (const c10::intrusive_ptr<Message> &message : some)
			(void)message->probe();
		some.clear();
		std::this_thread::sleep_for(PAUSE);
		lock.lock();
		in_flight_.remove_if([](const auto &message) { return bool(message->over_); });
	}
}

void Messages::end()
{
	std::list<c10::intrusive_ptr<Message>> left;

	{
		std::lock_guard<std::mutex> lock(mutex_);

		closed_ = true;
		left.swap(in_flight_);
		changed_.notify_all();
	}
	if (watcher_.joinable()) {
		if (watcher_.get_id() == std::this_thread::get_id())
			watcher_.detach();
		else
			watcher_.join();
	}
	for (const c10::intrusive_ptr<Message> &message : left)
		message->abort();
}

} // namespace rubato_torch
