/* devices.cpp -- see devices.hpp. */
#include "devices.hpp"

#include <algorithm>
#include <thread>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "failure.hpp"

namespace rubato_torch
{

using c10::impl::VirtualGuardImpl;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

static constexpr auto EVENT_PAUSE_SHORT = std::chrono::microseconds(20);
static constexpr auto EVENT_PAUSE = std::chrono::microseconds(200);
static constexpr int EVENT_LOOKS_SHORT = 100;

bool within_reach(const at::Tensor &tensor)
{
	c10::DeviceType type = tensor.device().type();

	return type == at::kCPU || (type != at::kMeta && c10::impl::hasDeviceGuardImpl(type));
}

#ifndef RUBATO_TORCH_CUDA
#define RUBATO_TORCH_CUDA c10::DeviceType::CUDA
#endif

bool is_cuda(c10::Device device)
{
	return device.type() == RUBATO_TORCH_CUDA;
}

static void devices_add(std::vector<c10::Device> &devices, const std::vector<at::Tensor> &tensors)
{
	for (const at::Tensor &tensor : tensors)
		if (!tensor.is_cpu() &&
		    std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
			devices.push_back(tensor.device());
}

std::vector<c10::Device> devices_of(const std::vector<at::Tensor> &tensors)
{
	std::vector<c10::Device> devices;

	devices_add(devices, tensors);
	return devices;
}

Moment::Moment(std::initializer_list<const std::vector<at::Tensor> *> lists)
{
	std::vector<c10::Device> devices;

	for (const std::vector<at::Tensor> *list : lists)
		devices_add(devices, *list);
	if (devices.empty())
		return;
	events_ = std::make_shared<std::vector<c10::Event>>();
	for (c10::Device device : devices) {
		events_->emplace_back(device.type());
		events_->back().record(VirtualGuardImpl(device.type()).getStream(device));
	}
}

std::optional<c10::Device> Moment::cuda() const
{
	if (events_ == nullptr)
		return std::nullopt;
	for (const c10::Event &event : *events_)
		if (is_cuda(event.device()))
			return event.device();
	return std::nullopt;
}

/* By looks, as no device's event can be waited for with a bound. */
static void event_wait(const c10::Event &event, const std::string &name, milliseconds timeout)
{
	steady_clock::time_point deadline = steady_clock::now() + timeout;

	for (int looks = 0; !event.query(); looks++) {
		if (steady_clock::now() >= deadline)
			fail(RUBATO_ERR_TIMEOUT, name + ": " + event.device().str() +
							 " has not done what comes before within " +
							 seconds(timeout));
		std::this_thread::sleep_for(looks < EVENT_LOOKS_SHORT ? EVENT_PAUSE_SHORT
								      : EVENT_PAUSE);
	}
}

Behind::Behind(const Moment &moment, const std::string &name, milliseconds timeout)
{
	if (moment.events_ == nullptr)
		return;
	for (const c10::Event &event : *moment.events_)
		event_wait(event, name, timeout);
	for (const c10::Event &event : *moment.events_) {
		VirtualGuardImpl guard(event.device_type());
		c10::Stream own = guard.getStreamFromGlobalPool(event.device());

		own_.push_back(own);
		before_.push_back(guard.exchangeStream(own));
	}
}

Behind::~Behind()
{
	for (const c10::Stream &stream : before_)
		(void)VirtualGuardImpl(stream.device_type()).exchangeStream(stream);
}

void Behind::finish()
{
	for (const c10::Stream &stream : own_)
		stream.synchronize();
}

} // namespace rubato_torch
