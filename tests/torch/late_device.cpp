/*
 * late_device.cpp -- a device for PyTorch ("late"), on the driver without a device (tests/cuda/fake).
 *
 * No processor may touch its memory: who does, faults there. Its streams do later what they are
 * given, so what does not wait for them sees old values. It computes by PyTorch's own fallback, on
 * the host; what is asked for with non_blocking, and copies of tensors with gaps, stay under way, as
 * those within the device do.
 *
 * Operations for tests: late::sleep (the current stream does nothing for so long), late::stream
 * (makes another stream current, and returns which it was), late::plant (from now on the device
 * lies: "query": whatever is asked for is over; "synchronize": waiting for a stream returns at
 * once).
 */
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include <cuda.h>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace
{

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

constexpr DeviceType LATE = DeviceType::PrivateUse1;
constexpr size_t STREAMS = 5; /* The first is the default one. */
/* How long copies with gaps, and those within the device, are under way: with a fault planted so
 * long that it must show. */
constexpr uint64_t GAPS_US = 20000, PLANTED_US = 3000000;

std::atomic<bool> planted_query { false }, planted_synchronize { false };

void ok(CUresult result, const char *call)
{
	TORCH_CHECK(result == CUDA_SUCCESS, "late: ", call, " failed with ", int(result));
}

#define OK(call) ok(call, #call)

/* ---- Context and streams ---- */

struct Driver {
	CUcontext context;
	CUstream streams[STREAMS];
	std::atomic<size_t> next { 0 };

	Driver()
	{
		OK(cuInit(0));
		OK(cuDevicePrimaryCtxRetain(&context, 0));
		OK(cuCtxPushCurrent(context));
		for (CUstream &stream : streams)
			OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	}
};

/* Never destroyed: threads outlive static objects. */
Driver &driver()
{
	static Driver *made = new Driver;
	thread_local bool entered = false;

	if (!entered)
		OK(cuCtxPushCurrent(made->context));
	entered = true;
	return *made;
}

thread_local c10::StreamId current = 0;

CUstream stream_of(c10::StreamId id)
{
	return driver().streams[id];
}

Stream as_stream(c10::StreamId id)
{
	return Stream(Stream::UNSAFE, Device(LATE, 0), id);
}

struct Guard : c10::impl::DeviceGuardImplInterface {
	DeviceType type() const override
	{
		return LATE;
	}
	Device exchangeDevice(Device) const override
	{
		return Device(LATE, 0);
	}
	Device getDevice() const override
	{
		return Device(LATE, 0);
	}
	void setDevice(Device) const override
	{
	}
	void uncheckedSetDevice(Device) const noexcept override
	{
	}
	DeviceIndex deviceCount() const noexcept override
	{
		return 1;
	}
	Stream getStream(Device) const override
	{
		return as_stream(current);
	}
	Stream getDefaultStream(Device) const override
	{
		return as_stream(0);
	}
	Stream getStreamFromGlobalPool(Device, bool) const override
	{
		return as_stream(c10::StreamId(1 + driver().next++ % (STREAMS - 1)));
	}
	Stream exchangeStream(Stream stream) const override
	{
		return as_stream(std::exchange(current, stream.id()));
	}
	void destroyEvent(void *event, DeviceIndex) const noexcept override
	{
		if (event != nullptr)
			(void)cuEventDestroy(CUevent(event));
	}
	void record(void **event, const Stream &stream, DeviceIndex, c10::EventFlag) const override
	{
		(void)driver();
		if (*event == nullptr)
			OK(cuEventCreate((CUevent *)event, CU_EVENT_DISABLE_TIMING));
		OK(cuEventRecord(CUevent(*event), stream_of(stream.id())));
	}
	void block(void *event, const Stream &stream) const override
	{
		OK(cuStreamWaitEvent(stream_of(stream.id()), CUevent(event), 0));
	}
	bool queryEvent(void *event) const override
	{
		(void)driver();
		return planted_query || cuEventQuery(CUevent(event)) != CUDA_ERROR_NOT_READY;
	}
	void synchronizeEvent(void *event) const override
	{
		(void)driver();
		OK(cuEventSynchronize(CUevent(event)));
	}
	bool queryStream(const Stream &stream) const override
	{
		return cuStreamQuery(stream_of(stream.id())) != CUDA_ERROR_NOT_READY;
	}
	void synchronizeStream(const Stream &stream) const override
	{
		if (!planted_synchronize)
			OK(cuStreamSynchronize(stream_of(stream.id())));
	}
	void synchronizeDevice(DeviceIndex) const override
	{
		for (size_t i = 0; i < STREAMS; i++)
			OK(cuStreamSynchronize(stream_of(c10::StreamId(i))));
	}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks : at::PrivateUse1HooksInterface {
	bool isBuilt() const override
	{
		return true;
	}
	bool isAvailable() const override
	{
		return true;
	}
	bool hasPrimaryContext(DeviceIndex) const override
	{
		return true;
	}
	DeviceIndex deviceCount() const override
	{
		return 1;
	}
	DeviceIndex getCurrentDevice() const override
	{
		return 0;
	}
	void setCurrentDevice(DeviceIndex) const override
	{
	}
	DeviceIndex exchangeDevice(DeviceIndex) const override
	{
		return 0;
	}
	DeviceIndex maybeExchangeDevice(DeviceIndex) const override
	{
		return 0;
	}
	Device getDeviceFromPtr(void *) const override
	{
		return Device(LATE, 0);
	}
	void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override;
};

[[maybe_unused]] const bool hooks_there = [] {
	at::RegisterPrivateUse1HooksInterface(new Hooks);
	return true;
}();

/* ---- Memory ---- */

void give_back(void *memory)
{
	(void)driver();
	if (memory != nullptr)
		(void)cuMemFree(CUdeviceptr(memory));
}

struct Memory final : c10::Allocator {
	c10::DataPtr allocate(size_t bytes) override
	{
		CUdeviceptr memory = 0;

		(void)driver();
		if (bytes > 0)
			OK(cuMemAlloc(&memory, bytes));
		return { (void *)memory, (void *)memory, &give_back, Device(LATE, 0) };
	}
	c10::DeleterFnPtr raw_deleter() const override
	{
		return &give_back;
	}
	void copy_data(void *to, const void *from, size_t bytes) const override
	{
		OK(cuMemcpyAsync(CUdeviceptr(to), CUdeviceptr(from), bytes, stream_of(current)));
		OK(cuStreamSynchronize(stream_of(current)));
	}
};

Memory memory;

[[maybe_unused]] const bool memory_there = [] {
	c10::SetAllocator(LATE, &memory);
	return true;
}();

void Hooks::resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const
{
	c10::DataPtr fresh = memory.allocate(bytes);
	size_t kept = std::min(bytes, storage.nbytes());

	if (kept > 0)
		memory.copy_data(fresh.get(), storage.data(), kept);
	(void)storage.set_data_ptr(std::move(fresh));
	storage.set_nbytes(bytes);
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
		 std::optional<at::Layout>, std::optional<Device>, std::optional<bool>,
		 std::optional<at::MemoryFormat> format)
{
	return at::detail::empty_generic(sizes, &memory,
					 c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
					 c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
			 std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
			 std::optional<Device>, std::optional<bool>)
{
	return at::detail::empty_strided_generic(sizes, strides, &memory,
						 c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
						 c10::dtype_or_default(dtype));
}

/* ---- Copies ---- */

/* What lies in a tensor's storage from its first element to its last, on the host. */
at::Tensor span_of(const at::Tensor &tensor)
{
	int64_t count = 1;

	for (int64_t d = 0; d < tensor.dim(); d++)
		count += (tensor.size(d) - 1) * tensor.stride(d);
	return at::empty({ count }, tensor.options().device(at::kCPU));
}

at::Tensor in_span(const at::Tensor &span, const at::Tensor &like)
{
	return span.as_strided(like.sizes(), like.strides(), 0);
}

void move(void *to, const void *from, size_t bytes, bool wait)
{
	OK(cuMemcpyAsync(CUdeviceptr(to), CUdeviceptr(from), bytes, stream_of(current)));
	if (wait)
		OK(cuStreamSynchronize(stream_of(current)));
}

void rest(void *us)
{
	(void)usleep(useconds_t(uintptr_t(us)));
}

void nap(uint64_t us)
{
	OK(cuLaunchHostFunc(stream_of(current), &rest, (void *)us));
}

void let_go(void *tensor)
{
	delete static_cast<at::Tensor *>(tensor);
}

at::Tensor to_host(const at::Tensor &tensor)
{
	at::Tensor span = span_of(tensor);

	move(span.data_ptr(), tensor.data_ptr(), span.nbytes(), true);
	return in_span(span, tensor);
}

/* A device that has gaps to fill copies once more, within itself, and nobody waits for that. */
void from_host(const at::Tensor &tensor, const at::Tensor &values, bool non_blocking)
{
	bool gaps = !tensor.is_non_overlapping_and_dense();
	at::Tensor span = span_of(tensor);

	if (gaps)
		move(span.data_ptr(), tensor.data_ptr(), span.nbytes(), true);
	in_span(span, tensor).copy_(values);
	if (gaps)
		nap(planted_synchronize ? PLANTED_US : GAPS_US);
	move(tensor.data_ptr(), span.data_ptr(), span.nbytes(), !gaps && !non_blocking);
	if (gaps || non_blocking)
		OK(cuLaunchHostFunc(stream_of(current), &let_go, new at::Tensor(span)));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking)
{
	if (to.numel() == 0)
		return to;
	at::Tensor values = from.expand(to.sizes());
	if (to.device().type() == LATE && from.device().type() == LATE)
		nap(GAPS_US);
	if (to.device().type() != LATE)
		to.copy_(to_host(values));
	else if (from.device().type() != LATE)
		from_host(to, values, non_blocking);
	else if (values.scalar_type() == to.scalar_type() && values.is_contiguous() &&
		 to.is_contiguous())
		move(to.data_ptr(), values.data_ptr(), to.nbytes(), false);
	else
		from_host(to, to_host(values), true);
	return to;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to)
{
	to.resize_(from.sizes());
	return copy_from(from, to, false);
}

const at::Tensor &resize(const at::Tensor &tensor, c10::SymIntArrayRef sizes,
			 std::optional<at::MemoryFormat>)
{
	c10::DimVector to(C10_AS_INTARRAYREF_SLOW_ALLOC(sizes));
	int64_t count = c10::multiply_integers(to);
	c10::TensorImpl *inside = tensor.unsafeGetTensorImpl();
	size_t bytes = size_t(count + inside->storage_offset()) * tensor.element_size();

	if (tensor.sizes() == c10::IntArrayRef(to))
		return tensor;
	if (tensor.storage().nbytes() < bytes)
		at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
	inside->set_sizes_contiguous(to);
	return tensor;
}

at::Tensor &set_storage(at::Tensor &tensor, at::Storage source, int64_t offset,
			c10::IntArrayRef sizes, c10::IntArrayRef strides)
{
	return at::native::set_storage_cpu_(tensor, std::move(source), offset, sizes, strides);
}

at::Scalar first(const at::Tensor &tensor)
{
	return to_host(tensor).item();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
	m.impl("empty.memory_format", &empty);
	m.impl("empty_strided", &empty_strided);
	m.impl("_copy_from", &copy_from);
	m.impl("_copy_from_and_resize", &copy_from_and_resize);
	m.impl("resize_", &resize);
	m.impl("set_.source_Storage_storage_offset", &set_storage);
	m.impl("as_strided", &at::native::as_strided_tensorimpl);
	m.impl("view", &at::native::view);
	m.impl("_reshape_alias", &at::native::_reshape_alias);
	m.impl("_local_scalar_dense", &first);
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
	at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
	m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

/* ---- For tests ---- */

TORCH_LIBRARY(late, m)
{
	m.def("sleep(int us) -> ()", [](int64_t us) { nap(uint64_t(us)); });
	m.def("stream(int id) -> int", [](int64_t id) {
		TORCH_CHECK(id >= 0 && id < int64_t(STREAMS), "late: stream ", id);
		return int64_t(std::exchange(current, c10::StreamId(id)));
	});
	m.def("plant(str fault) -> ()", [](const std::string &fault) {
		planted_query = fault == "query";
		planted_synchronize = fault == "synchronize";
	});
}

} // namespace
