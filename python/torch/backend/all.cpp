/* all.cpp -- all of it as one unit: PyTorch's headers take longer to read than the rest to compile. */
#include "backend.cpp"
#include "collectives.cpp"
#include "failure.cpp"
#include "messages.cpp"
#include "module.cpp"
#include "order.cpp"
#include "point_to_point.cpp"
#include "tensors.cpp"
