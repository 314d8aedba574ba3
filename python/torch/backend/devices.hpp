/*
 * devices.hpp -- tensors of devices beside the host: when they may be read and written.
 *
 * A device does later what its streams are given. So a call notes how far the current streams of
 * its thread are. What is carried out for it, on whatever thread, waits for that, and copies on
 * streams of its own, so behind nothing that was given later. Before it counts as done these are
 * waited for: results are there for all streams.
 */
#pragma once

#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Event.h>

namespace rubato_torch
{

/* How far the devices of some tensors are; of the host's there is nothing to note. */
class Moment
{
      public:
	explicit Moment(std::initializer_list<const std::vector<at::Tensor> *> lists);
	/* One of CUDA's among the devices. */
	std::optional<c10::Device> cuda() const;

      private:
	friend class Behind;
	std::shared_ptr<std::vector<c10::Event>> events_; /* One for each device. */
};

/* While it lives, what this thread gives to those devices comes behind a moment. */
class Behind
{
      public:
	/* Waits for the moment. Throws what fail() does where that is not there in time. */
	Behind(const Moment &moment, const std::string &name, std::chrono::milliseconds timeout);
	~Behind();
	Behind(const Behind &) = delete;
	Behind &operator=(const Behind &) = delete;
	/* Waits for all that was given. */
	void finish();

      private:
	std::vector<c10::Stream> own_, before_;
};

/* Whether there is a way to the tensor's memory: the host's, or that of a device with streams. */
bool within_reach(const at::Tensor &tensor);
/* Whether the library may know a way of its own to its memory, CUDA's. Tests say that it does for
 * another device, whose memory is a driver's of theirs. */
bool is_cuda(c10::Device device);
/* Those that are not the host, each once. */
std::vector<c10::Device> devices_of(const std::vector<at::Tensor> &tensors);

} // namespace rubato_torch
