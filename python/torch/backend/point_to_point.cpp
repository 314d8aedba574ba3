/*
 * point_to_point.cpp -- send, receive, and the barrier that says who has not come.
 *
 * Tags of c10d are not negative, so those of monitored barriers have the highest bit.
 */
#include "backend.hpp"
#include "failure.hpp"

namespace rubato_torch
{

using c10d::OpType;
using std::chrono::steady_clock;

static constexpr uint32_t TAG_BARRIER = 0x80000000u;
/* Rank 0 knows who is missing when its time is over: the others wait that much longer for it. */
static constexpr Timeout PATIENCE_WITH_ROOT = std::chrono::seconds(2);

WorkPtr Backend::message(const char *name, OpType type, const Tensors &tensors,
			 std::vector<uint32_t> peers, int tag)
{
	at::Tensor tensor = only(name, tensors);

	(void)comm(name);
	TORCH_CHECK_VALUE(tag >= 0, "rubato: ", name, ": tag ", tag, " is negative");
	std::string full = std::string("rubato: ") + name + where_;
	if (type == OpType::RECVANYSOURCE)
		full += " from any rank";
	else
		full += (type == OpType::SEND ? " to rank " : " from rank ") +
			std::to_string(peers[0]);
	full += ", tag " + std::to_string(tag);
	auto message =
		c10::make_intrusive<Message>(messages_, full, type, rank_, tensor, std::move(peers),
					     uint32_t(tag), options_->timeout);
	messages_->add(message);
	return message;
}

WorkPtr Backend::send(Tensors &tensors, int peer, int tag)
{
	root_check("send", peer);
	return message("send", OpType::SEND, tensors, { uint32_t(peer) }, tag);
}

WorkPtr Backend::recv(Tensors &tensors, int peer, int tag)
{
	root_check("recv", peer);
	return message("recv", OpType::RECV, tensors, { uint32_t(peer) }, tag);
}

WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
	std::vector<uint32_t> peers;

	for (int peer = 0; peer < size_; peer++)
		if (peer != rank_)
			peers.push_back(uint32_t(peer));
	TORCH_CHECK_VALUE(!peers.empty(), "rubato: recv: no other rank");
	return message("recv", OpType::RECVANYSOURCE, tensors, std::move(peers), tag);
}

/* ---- The monitored barrier: all tell rank 0 that they are there, and it says who is not ---- */

namespace
{

/* One message, which is taken back where it is dropped: its value lives as long. */
struct Word {
	uint32_t value = 0;
	rubato_op *op = nullptr;

	~Word()
	{
		rubato_op_free(op);
	}
};

} // namespace

void Backend::monitor(bool wait_all_ranks, Timeout timeout, uint32_t tag)
{
	steady_clock::time_point deadline = steady_clock::now() + timeout;
	std::vector<Word> here((size_t(size_))), answers((size_t(size_)));
	std::string absent, name = "rubato: monitored barrier" + where_;
	uint32_t first = uint32_t(size_);

	for (uint32_t rank = 1; rank < uint32_t(size_); rank++) {
		check(rubato_op_recv(comm_, &here[rank].value, 1, RUBATO_UINT32, rank, tag,
				     &here[rank].op),
		      name);
		check(rubato_start(here[rank].op), name);
	}
	for (uint32_t rank = 1; rank < uint32_t(size_); rank++) {
		rubato_status status =
			rubato_wait(here[rank].op, nanoseconds(deadline - steady_clock::now()));

		if (status != RUBATO_ERR_TIMEOUT) {
			check(status, name);
			continue;
		}
		first = std::min(first, rank);
		absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
		if (!wait_all_ranks)
			break;
	}
	for (uint32_t rank = 1; rank < uint32_t(size_); rank++) {
		bool came = false;

		check(rubato_test(here[rank].op, &came), name);
		if (!came)
			continue;
		answers[rank].value = first;
		check(rubato_op_send(comm_, &answers[rank].value, 1, RUBATO_UINT32, rank, tag,
				     &answers[rank].op),
		      name);
		check(rubato_start(answers[rank].op), name);
		check(rubato_wait(answers[rank].op, nanoseconds(timeout)), name);
	}
	if (!absent.empty())
		fail(RUBATO_ERR_TIMEOUT, name + ": rank" + (wait_all_ranks ? "s " : " ") + absent +
						 " did not come within " + seconds(timeout));
}

void Backend::report(Timeout timeout, uint32_t tag)
{
	std::string name = "rubato: monitored barrier" + where_;
	Word here, answer;

	here.value = uint32_t(rank_);
	check(rubato_op_send(comm_, &here.value, 1, RUBATO_UINT32, 0, tag, &here.op), name);
	check(rubato_start(here.op), name);
	check(rubato_op_recv(comm_, &answer.value, 1, RUBATO_UINT32, 0, tag, &answer.op), name);
	check(rubato_start(answer.op), name);
	check(rubato_wait(answer.op, nanoseconds(timeout + PATIENCE_WITH_ROOT)), name);
	if (answer.value < uint32_t(size_))
		fail(RUBATO_ERR_TIMEOUT, name + ": rank 0 says that rank " +
						 std::to_string(answer.value) + " did not come");
	check(rubato_wait(here.op, nanoseconds(timeout)), name);
}

void Backend::monitoredBarrier(const c10d::BarrierOptions &o, bool wait_all_ranks)
{
	Timeout timeout = o.timeout == c10d::kUnsetTimeout ? options_->timeout : o.timeout;
	uint32_t tag = TAG_BARRIER | barriers_++;

	(void)comm("monitored barrier");
	if (rank_ == 0)
		monitor(wait_all_ranks, timeout, tag);
	else
		report(timeout, tag);
}

} // namespace rubato_torch
