/* tensors.cpp -- see tensors.hpp. */
#include "tensors.hpp"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "devices.hpp"

namespace rubato_torch
{

void tensor_check(const char *name, const at::Tensor &tensor)
{
	TORCH_CHECK_VALUE(tensor.defined(), "rubato: ", name, ": a tensor is missing");
	TORCH_CHECK_NOT_IMPLEMENTED(within_reach(tensor), "rubato: ", name, ": a tensor of ",
				    tensor.device(), ": its memory cannot be reached");
	TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && !tensor.is_quantized(),
				    "rubato: ", name, ": a tensor of layout ", tensor.layout(),
				    tensor.is_quantized() ? ", quantized" : "",
				    ": only dense ones are supported");
}

at::Tensor only(const char *name, const std::vector<at::Tensor> &tensors)
{
	TORCH_CHECK_VALUE(tensors.size() == 1, "rubato: ", name, ": ", tensors.size(),
			  " tensors: expected one");
	tensor_check(name, tensors[0]);
	return tensors[0];
}

Elements elements_of(at::ScalarType type)
{
	switch (type) {
	case at::kFloat:
		return { RUBATO_FLOAT32, 1 };
	case at::kDouble:
		return { RUBATO_FLOAT64, 1 };
	case at::kHalf:
		return { RUBATO_FLOAT16, 1 };
	case at::kBFloat16:
		return { RUBATO_BFLOAT16, 1 };
	case at::kChar:
		return { RUBATO_INT8, 1 };
	case at::kShort:
		return { RUBATO_INT16, 1 };
	case at::kInt:
		return { RUBATO_INT32, 1 };
	case at::kLong:
		return { RUBATO_INT64, 1 };
	case at::kUInt16:
		return { RUBATO_UINT16, 1 };
	case at::kUInt32:
		return { RUBATO_UINT32, 1 };
	case at::kUInt64:
		return { RUBATO_UINT64, 1 };
	case at::kComplexFloat:
		return { RUBATO_FLOAT32, 2 };
	case at::kComplexDouble:
		return { RUBATO_FLOAT64, 2 };
	default:
		return { RUBATO_UINT8, c10::elementSize(type) };
	}
}

static const char *op_name(c10d::ReduceOp::RedOpType op)
{
	static const char *const names[] = { "SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
					     "BAND", "BOR", "BXOR",    "PREMUL_SUM" };

	return op < sizeof(names) / sizeof(names[0]) ? names[op] : "unknown";
}

static bool reduced_as_numbers(at::ScalarType type, c10d::ReduceOp::RedOpType op)
{
	if (c10::isComplexType(type))
		return type != at::kComplexHalf &&
		       (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG);
	return type == at::kByte || elements_of(type).type != RUBATO_UINT8;
}

Reduction reduction_of(const char *name, at::ScalarType type, const c10d::ReduceOp &reduce)
{
	c10d::ReduceOp::RedOpType op = reduce;
	Elements elements = elements_of(type);

	if (type == at::kBool) { /* One byte, 0 or 1. */
		if (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::MAX ||
		    op == c10d::ReduceOp::BOR)
			return { elements, RUBATO_MAX };
		if (op == c10d::ReduceOp::PRODUCT || op == c10d::ReduceOp::MIN ||
		    op == c10d::ReduceOp::BAND)
			return { elements, RUBATO_MIN };
	} else if (reduced_as_numbers(type, op)) {
		switch (op) {
		case c10d::ReduceOp::SUM:
			return { elements, RUBATO_SUM };
		case c10d::ReduceOp::AVG:
			return { elements, RUBATO_AVG };
		case c10d::ReduceOp::PRODUCT:
			return { elements, RUBATO_PROD };
		case c10d::ReduceOp::MIN:
			return { elements, RUBATO_MIN };
		case c10d::ReduceOp::MAX:
			return { elements, RUBATO_MAX };
		default:
			break;
		}
	}
	TORCH_CHECK_NOT_IMPLEMENTED(false, "rubato: ", name, ": ReduceOp.", op_name(op), " of ",
				    type, " is not supported");
}

static c10::Device place_of(const Reach &reach, const at::Tensor &tensor)
{
	return reach.device == tensor.device() ? tensor.device() : c10::Device(at::kCPU);
}

static bool lies_dense(const at::Tensor &tensor, c10::Device place)
{
	return tensor.device() == place && tensor.is_contiguous() && !tensor.is_conj() &&
	       !tensor.is_neg();
}

/* The library has streams of its own: a copy, or what its memory was used for before, must be over. */
static void copy_wait(c10::Device place)
{
	if (!place.is_cpu())
		c10::impl::VirtualGuardImpl(place.type()).getStream(place).synchronize();
}

Dense::Dense(const Reach &reach, const at::Tensor &tensor, bool filled) : tensor_(tensor)
{
	at::AutoDispatchBelowADInplaceOrView plain;
	c10::Device place = place_of(reach, tensor);

	copy_ = !lies_dense(tensor, place);
	dense_ = copy_ ? at::empty(tensor.sizes(), tensor.options().device(place)) : tensor;
	if (copy_ && filled)
		dense_.copy_(tensor);
	if (copy_)
		copy_wait(place);
}

void Dense::keep()
{
	at::AutoDispatchBelowADInplaceOrView plain;

	if (copy_)
		tensor_.copy_(dense_);
}

static bool lie_in_a_row(const std::vector<at::Tensor> &tensors, c10::Device place)
{
	const char *next = nullptr;

	for (const at::Tensor &tensor : tensors) {
		if (!lies_dense(tensor, place))
			return false;
		if (tensor.numel() == 0)
			continue;
		if (next != nullptr && (next != tensor.data_ptr() ||
					tensor.storage().unsafeGetStorageImpl() !=
						tensors[0].storage().unsafeGetStorageImpl()))
			return false;
		next = static_cast<const char *>(tensor.data_ptr()) + tensor.nbytes();
	}
	return next != nullptr && tensors[0].numel() > 0;
}

Blocks::Blocks(const Reach &reach, const std::vector<at::Tensor> &tensors, bool filled)
    : tensors_(tensors)
{
	at::AutoDispatchBelowADInplaceOrView plain;
	c10::Device place = place_of(reach, tensors[0]);
	int64_t count = 0, at = 0;

	if (lie_in_a_row(tensors, place)) {
		data_ = tensors[0].data_ptr();
		return;
	}
	for (const at::Tensor &tensor : tensors)
		count += tensor.numel();
	flat_ = at::empty({ count }, tensors[0].options().device(place));
	data_ = flat_.data_ptr();
	for (const at::Tensor &tensor : tensors) {
		if (filled)
			flat_.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
		at += tensor.numel();
	}
	copy_wait(place);
}

void Blocks::keep()
{
	at::AutoDispatchBelowADInplaceOrView plain;
	int64_t at = 0;

	if (!flat_.defined())
		return;
	for (at::Tensor &tensor : tensors_) {
		tensor.copy_(flat_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
		at += tensor.numel();
	}
}

std::vector<uint64_t> counts_of(const std::vector<at::Tensor> &tensors)
{
	std::vector<uint64_t> counts;

	for (const at::Tensor &tensor : tensors)
		counts.push_back(uint64_t(tensor.numel()) * elements_of(tensor.scalar_type()).each);
	return counts;
}

bool all_equal(const std::vector<uint64_t> &counts)
{
	return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) ==
	       counts.end();
}

} // namespace rubato_torch
