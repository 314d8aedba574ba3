/* backend.cpp -- see backend.hpp: how a group begins and ends, and what is around each call. */
#include "backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <rubato_cuda.h>

#include "devices.hpp"
#include "failure.hpp"

namespace rubato_torch
{

using std::chrono::steady_clock;

static constexpr const char *ID_KEY = "rubato/id";
static constexpr const char *HERE_KEY = "rubato/here/";    /* And the rank. */
static constexpr const char *FAILED_KEY = "rubato/failed"; /* Why, of another rank than 0. */
/* How long a group that nobody has destroyed waits for its other ranks, as its process ends. */
static constexpr Timeout PATIENCE_AT_EXIT = std::chrono::seconds(5);

/* Groups that are open, for end_all. Never destroyed: threads outlive static objects. */
struct Open {
	std::mutex mutex;
	std::set<Backend *> backends;
};

static Open &open_groups()
{
	static Open *open = new Open;

	return *open;
}

static std::string where_text(const Backend::Options &options)
{
	const std::vector<uint64_t> &ranks = options.global_ranks_in_group;
	std::string text = ", of a group of ranks";
	bool same = true;

	for (size_t i = 0; i < ranks.size(); i++) {
		same = same && ranks[i] == i;
		text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
	}
	return same ? "" : text + " of the world";
}

Backend::Backend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
		 const c10::intrusive_ptr<Options> &options)
    : c10d::Backend(rank, size), options_(options), where_(where_text(*options)),
      process_(getpid()), order_(std::make_shared<Order>())
{
	open(store);
	messages_ = std::make_shared<Messages>(comm_);
	memory_ = std::make_shared<Memory>(comm_);
	timeout_ = options_->timeout;
	init();

	std::lock_guard<std::mutex> lock(open_groups().mutex);
	open_groups().backends.insert(this);
}

Backend::~Backend()
{
	{
		std::lock_guard<std::mutex> lock(open_groups().mutex);

		open_groups().backends.erase(this);
	}
	close(PATIENCE_AT_EXIT);
}

static std::string listed(const std::vector<int> &ranks)
{
	std::string text = ranks.size() == 1 ? "rank " : "ranks ";

	for (size_t i = 0; i < ranks.size(); i++)
		text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
	return text;
}

/* Who has not been here. */
static std::vector<int> absent(c10d::Store &store, int size)
{
	std::vector<int> ranks;

	try {
		for (int rank = 1; rank < size; rank++)
			if (!store.check({ HERE_KEY + std::to_string(rank) }))
				ranks.push_back(rank);
	} catch (const c10::Error &) { /* It is gone. */
		ranks.clear();
	}
	return ranks;
}

/* Where rank 0 has left nothing. It may have come: PyTorch's store, where rank 0 has it, lets that
 * one go on when all have come to it. */
static std::string absent_text(c10d::Store &store, int size)
{
	std::vector<int> ranks = absent(store, size);

	if (ranks.empty())
		return "";
	return listed(ranks) + (ranks.size() == 1 ? " has" : " have") +
	       " not come either, and rank 0 may be waiting for " +
	       (ranks.size() == 1 ? "it" : "them") + ": ";
}

/* In place of an id, whose size it never has. It stays, for all to read. */
static void failure_leave(c10d::Store &store, const char *key, const std::string &why)
{
	std::string text = why.substr(0, sizeof(rubato_id::bytes) - 1);

	try {
		store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
	} catch (const c10::Error &) {
		LOG(INFO) << "rubato: the store does not take why this rank has failed";
	}
}

static std::string failure_text(int rank)
{
	return "rank " + std::to_string(rank) + " has failed: " + rubato_error_text();
}

static void no_row(void *, const char *, const char *, const char *, const char *)
{
}

/* Who fails here has come, too, so that rank 0 looks why. */
void Backend::settings_check(c10d::Store &store)
{
	rubato_status status = rubato_config_each(no_row, nullptr);

	if (status == RUBATO_OK || size_ == 1)
		return;
	failure_leave(store, rank_ == 0 ? ID_KEY : FAILED_KEY, failure_text(rank_));
	if (rank_ > 0)
		store.set(HERE_KEY + std::to_string(rank_), std::vector<uint8_t>());
	check(status, "rubato: start" + where_);
}

/* Rank 0 looks for the others first: what keeps one of them away, all are told. */
void Backend::others_await(c10d::Store &store)
{
	std::vector<std::string> keys;
	std::string why;

	for (int rank = 1; rank < size_; rank++)
		keys.push_back(HERE_KEY + std::to_string(rank));
	try {
		store.wait(keys, options_->timeout);
	} catch (const c10::DistNetworkError &) {
		throw;
	} catch (const c10::Error &error) {
		std::vector<int> ranks = absent(store, size_);

		why = (ranks.empty() ? "not all ranks came" : listed(ranks) + " did not come") +
		      " within " + seconds(options_->timeout);
		failure_leave(store, ID_KEY, why);
		fail(RUBATO_ERR_TIMEOUT,
		     "rubato: start: " + why + where_ + ": " + error.what_without_backtrace());
	}
	if (!store.check({ FAILED_KEY }))
		return;
	std::vector<uint8_t> bytes = store.get(FAILED_KEY);
	why = std::string(bytes.begin(), bytes.end());
	failure_leave(store, ID_KEY, why);
	fail(RUBATO_ERR_PEER, "rubato: start: " + why + where_);
}

/* The id holds the addresses of rank 0 and the job's secret: as safe as the store is. */
rubato_id Backend::id_exchange(c10d::Store &store)
{
	rubato_id id;

	settings_check(store);
	if (rank_ == 0) {
		if (size_ > 1)
			others_await(store);
		rubato_status status = rubato_id_create(&id);

		if (status != RUBATO_OK && size_ > 1)
			failure_leave(store, ID_KEY, failure_text(0));
		check(status, "rubato: start" + where_);
		if (size_ > 1)
			store.set(ID_KEY,
				  std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
		return id;
	}
	store.set(HERE_KEY + std::to_string(rank_), std::vector<uint8_t>());
	try {
		store.wait({ ID_KEY }, options_->timeout);
	} catch (const c10::DistNetworkError &) {
		throw;
	} catch (const c10::Error &error) {
		fail(RUBATO_ERR_TIMEOUT,
		     "rubato: start: rank " + std::to_string(rank_) +
			     " has found nothing of rank 0 in the store within " +
			     seconds(options_->timeout) + where_ + ": " +
			     absent_text(store, size_) + error.what_without_backtrace());
	}
	std::vector<uint8_t> bytes = store.get(ID_KEY);
	if (bytes.size() != sizeof(id.bytes))
		fail(RUBATO_ERR_PEER,
		     "rubato: start: " + std::string(bytes.begin(), bytes.end()) + where_);
	std::copy(bytes.begin(), bytes.end(), id.bytes);
	return id;
}

void Backend::open(const c10::intrusive_ptr<c10d::Store> &store)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	c10::intrusive_ptr<c10d::Store> own = store;
	rubato_id id;
	rubato_status status;

	try {
		if (size_ > 1)
			own = store->clone();
		id = id_exchange(*own);
	} catch (const c10::DistNetworkError &error) {
		fail(RUBATO_ERR_PEER,
		     "rubato: start: rank " + std::to_string(rank_) +
			     " has lost PyTorch's store, which ends with rank 0 or the "
			     "launcher" +
			     where_ + ": " + error.what_without_backtrace());
	}
	options.timeout_ns = nanoseconds(options_->timeout);
	status = rubato_init_id(&comm_, &id, uint32_t(rank_), uint32_t(size_), &options);
	if (size_ > 1) {
		/* All have read it, or none will: another group may use the store as this one does. */
		try {
			own->deleteKey(rank_ == 0 ? ID_KEY : HERE_KEY + std::to_string(rank_));
		} catch (const c10::Error &) {
			LOG(INFO) << "rubato: the store cannot delete a key";
		}
	}
	check(status, "rubato: start" + where_);
}

c10::intrusive_ptr<c10d::Backend> Backend::split(
	const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
	const c10::intrusive_ptr<c10d::Backend::Options> &options)
{
	auto found = std::find(ranks.begin(), ranks.end(), rank_);
	auto own = c10::make_intrusive<Options>(options->timeout);

	if (found == ranks.end())
		return nullptr;
	own->group_name = options->group_name;
	own->group_desc = options->group_desc;
	for (int rank : ranks)
		own->global_ranks_in_group.push_back(
			options_->global_ranks_in_group.empty()
				? uint64_t(rank)
				: options_->global_ranks_in_group.at(size_t(rank)));
	return c10::make_intrusive<Backend>(store, int(found - ranks.begin()), int(ranks.size()),
					    own);
}

rubato_comm *Backend::comm(const char *name) const
{
	if (comm_ == nullptr)
		fail(RUBATO_ERR_CANCELLED,
		     std::string("rubato: ") + name + ": its process group has been shut down");
	return comm_;
}

/* The communicator's device is the first one of CUDA's that a call brings; the others' tensors go
 * through the host, as all do where there is no such way (RUBATO_CUDA=off says so, too). */
Reach Backend::reach(const Moment &moment)
{
	std::optional<c10::Device> device = device_asked_ ? std::nullopt : moment.cuda();

	if (device) {
		const char *setting = std::getenv("RUBATO_CUDA");

		device_asked_ = true;
		if (setting != nullptr && std::string(setting) == "off") {
			LOG(INFO) << "rubato: RUBATO_CUDA is off: through the host";
		} else if (rubato_cuda_use(comm_, device->index()) == RUBATO_OK) {
			device_ = device;
		} else {
			LOG(INFO) << "rubato: through the host: " << rubato_error_text();
		}
	}
	return { comm_, device_ };
}

/* In the order's turn: no other collective of this group runs. */
void Backend::carry_out(const std::string &name, Timeout timeout, const Moment &moment,
			const Body &body)
{
	std::optional<Behind> behind;

	try {
		behind.emplace(moment, name, timeout);
	} catch (...) {
		abort(); /* The others wait for this call. */
		throw;
	}
	if (timeout != timeout_) {
		check(rubato_set_timeout(comm_, nanoseconds(timeout)), name);
		timeout_ = timeout;
	}
	try {
		body(reach(moment), name);
		behind->finish();
	} catch (const c10::DistBackendError &) {
		failed_ = true;
		throw;
	}
}

/* A call that blocks is carried out right here where nothing is in front of it, and where no
 * profiler looks, whose events are the works'. (To hand out no work then, as c10d allows, would
 * save a little more: but its flight recorder takes that for a call that never ends.) */
WorkPtr Backend::call(const What &what, const Tensors &ins, const Tensors &outs, Body body)
{
	Timeout timeout = what.timeout == c10d::kUnsetTimeout ? options_->timeout : what.timeout;
	uint64_t number = ++calls_;
	std::string name = std::string("rubato: ") + what.name + where_;
	Moment moment({ &ins, &outs });

	(void)comm(what.name);
	if (!what.async && !at::hasCallbacks()) {
		Turn turn(*order_);

		if (turn) {
			carry_out(name, timeout, moment, body);
			return c10::make_intrusive<Call>(rank_, what.type, what.name, outs, number,
							 timeout);
		}
	}
	auto call = c10::make_intrusive<Call>(
		order_,
		[this, name, timeout, moment, body = std::move(body)] {
			carry_out(name, timeout, moment, body);
		},
		rank_, what.type, what.name, ins, outs, number, timeout);
	order_->add(call, !what.async);
	return call;
}

c10d::ErrorType Backend::getError()
{
	return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void Backend::abort()
{
	std::lock_guard<std::mutex> lock(end_);

	failed_ = true;
	if (comm_ != nullptr && process_ == getpid())
		(void)rubato_abort(comm_);
}

void Backend::shutdown()
{
	close(options_->timeout);
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
	(void)comm("allocate_tensor");
	return memory_->tensor(size, options);
}

/* Together, unless a tensor of some rank's holds memory of it: then each ends it by itself, when
 * all have said so and its own tensors are gone. */
rubato_status Backend::leave()
{
	uint64_t held = memory_->held(), most = held;
	rubato_status status = rubato_allreduce(comm_, &most, &most, 1, RUBATO_UINT64, RUBATO_MAX);

	if (status == RUBATO_OK && most == 0)
		return rubato_finalize(comm_);
	memory_->inherit();
	return status;
}

/* Waits for what is under way and for the others: what they have yet to be sent is sent. */
void Backend::close(Timeout patience)
{
	steady_clock::time_point deadline = steady_clock::now() + patience;
	rubato_status status;

	if (process_ != getpid()) /* A child that was forked: its threads are not here. */
		return;
	if (comm_ == nullptr)
		return;
	if (!order_->drain(deadline)) {
		abort();
		(void)order_->drain(steady_clock::time_point::max());
	}
	messages_->end();
	order_->end();

	std::lock_guard<std::mutex> lock(end_);
	if (comm_ == nullptr)
		return;
	bool bounded =
		rubato_set_timeout(comm_, nanoseconds(deadline - steady_clock::now())) == RUBATO_OK;
	status = leave();
	comm_ = nullptr;
	if ((status != RUBATO_OK || !bounded) && !failed_)
		LOG(WARNING) << "rubato: end" << where_ << ": " << rubato_error_text();
}

void Backend::end_all(bool aborting)
{
	std::vector<Backend *> backends;

	{
		std::lock_guard<std::mutex> lock(open_groups().mutex);

		backends.assign(open_groups().backends.begin(), open_groups().backends.end());
	}
	if (aborting)
		for (Backend *backend : backends)
			backend->abort();
	for (Backend *backend : backends)
		backend->close(PATIENCE_AT_EXIT);
}

} // namespace rubato_torch
