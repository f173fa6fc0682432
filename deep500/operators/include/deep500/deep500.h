// What a C++ operator of Deep500 is written against: derive from deep500::CustomOperator and register the class.
//
//   #include "deep500/deep500.h"
//   template <typename T> struct twice : deep500::CustomOperator {
//     std::size_t length;
//     explicit twice(std::size_t n) : length(n) {}
//     void forward(const T *x, T *y) { for (std::size_t i = 0; i < length; ++i) y[i] = 2 * x[i]; }
//     void backward(const T *dy, const T *x, const T *y, T *dx) { for (std::size_t i = 0; i < length; ++i) dx[i] = 2 * dy[i]; }
//   };
//   D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int n_in, deep500::tensor_t *out, int n_out) {
//     return new twice<D500_DTYPE>(in[0].size());
//   }
//   D500_REGISTER_OP(twice<D500_DTYPE>);
//
// D500_DTYPE is the element type of the first floating-point input: float, double, deep500::float16 or bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "deep500/float16.h"

#define D500_EXPORTED extern "C" __attribute__((visibility("default")))

namespace deep500 {

/// Element type of a tensor.
enum tensortype_t {
  TT_VOID = 0,
  TT_INT8,
  TT_INT16,
  TT_INT32,
  TT_INT64,
  TT_UINT8,
  TT_UINT16,
  TT_UINT32,
  TT_UINT64,
  TT_HALF,
  TT_FLOAT,
  TT_DOUBLE,
  TT_BITSET,
  TT_BFLOAT16,
  TT_BOOL,
  TT_LEN,
};

/// Meaning of the axes of a tensor.
enum tensororder_t { TORD_IRRELEVANT = 0, TORD_NCHW, TORD_NHWC, TORD_LEN };

/// Dtype and shape of a tensor, as create_new_op gets them; they live as long as the operator.
struct tensor_t {
  tensortype_t type;
  tensororder_t order;
  uint8_t dims;     ///< number of axes
  uint32_t *sizes;  ///< size of each axis

  /// Number of elements.
  std::size_t size() const {
    std::size_t total = 1;
    for (int axis = 0; axis < dims; ++axis) total *= sizes[axis];
    return total;
  }
};

/// Base class of operators. A class derived from it has, not virtual and public:
///
///   void forward(const T *input..., T *output...);
///   void backward(const T *output_gradient..., const T *input..., const T *output..., T *input_gradient...);   (optional)
///   std::size_t scratch() const;   (optional: that many elements of D500_DTYPE, uninitialised, are handed to forward and
///                                   backward as one more pointer, the last)
///
///   std::size_t parts() const; void part(std::size_t number, inputs..., outputs...);   (optional, for derived gradients:
///                                   forward is part 0, part 1, ..., none of which reads what another one wrote; the
///                                   gradient is then taken part by part, so that parts may use the same scratch space)
///   void surrogate(const T *input..., const T *result..., T *output...);   (optional, for derived gradients: any function
///                                   with the same gradient as forward, which may read what forward wrote; with parts()
///                                   it is surrogate_part, with the number of the part first)
///   static constexpr bool writes_once = true;   (optional, for derived gradients: forward writes each element of an output
///                                   at most once and reads none, so that the gradient needs no copy of its own)
///
/// They may return int instead of void: anything but 0 is an error. They may throw. All tensors are dense, row by row.
/// backward overwrites the input gradients. For CUDA: forward_cuda and backward_cuda in a .cu file, with device pointers
/// and a last argument cudaStream_t. One object serves all calls with the same shapes, from any thread.
class CustomOperator {
 public:
  CustomOperator() = default;
  virtual ~CustomOperator() = default;

  /// Whether it has forward_cuda.
  virtual bool supports_cuda() { return false; }

  /// Anything the operator wants to tell, for instance how many bytes it has sent so far.
  virtual int64_t report(void * /*data*/) { return 0; }
};

}  // namespace deep500

namespace d500_detail {
struct key {};
struct unregistered {
  struct type {};
};
template <class T>
struct registered {
  using type = T;
};
}  // namespace d500_detail

d500_detail::unregistered d500_registered_operator(...);

/// Names the class that is the operator: once per source, outside of any namespace.
#define D500_REGISTER_OP(...)                                                      \
  d500_detail::registered<__VA_ARGS__> d500_registered_operator(d500_detail::key); \
  namespace deep500 {}
