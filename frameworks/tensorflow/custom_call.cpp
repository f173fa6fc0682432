// One TensorFlow operator for every compiled operator, `Deep500Call`: it finds the operator by its attribute `key` and
// runs it on TensorFlow's own memory. Written against TensorFlow's C API, so that any compiler can build it, whatever
// its C++ standard library; built by custom_native.py.
#include <memory>
#include <string>
#include <vector>

#include "deep500/bridge.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"

namespace {

namespace bridge = deep500::bridge;

struct Status {
  TF_Status *status = TF_NewStatus();
  ~Status() { TF_DeleteStatus(status); }
  operator TF_Status *() const { return status; }
  bool ok() const { return TF_GetCode(status) == TF_OK; }
};

struct Delete {
  void operator()(TF_Tensor *tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, Delete>;

// A node: which operator and phase, and how the sizes of its outputs follow from those of its inputs.
struct Kernel {
  const bridge::Operator *op;
  int64_t phase;
  uint64_t wanted;
  std::vector<int64_t> plan;  // per output: rank (-1: as input 0), then (input, axis) or (-1, size) per axis; if it is
                              // empty, the last argument lists ranks and sizes
};

void *create(TF_OpKernelConstruction *ctx) {
  Status status;
  auto kernel = std::make_unique<Kernel>();
  int32_t count = 0, length = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx, "key", &count, &length, status);
  std::string key(status.ok() && length > 0 ? length : 0, '\0');
  if (status.ok()) TF_OpKernelConstruction_GetAttrString(ctx, "key", &key[0], key.size(), status);
  if (status.ok()) TF_OpKernelConstruction_GetAttrInt64(ctx, "phase", &kernel->phase, status);
  int64_t wanted = 0;
  if (status.ok()) TF_OpKernelConstruction_GetAttrInt64(ctx, "wanted", &wanted, status);
  kernel->wanted = static_cast<uint64_t>(wanted);
  if (status.ok()) TF_OpKernelConstruction_GetAttrSize(ctx, "plan", &count, &length, status);
  if (status.ok()) kernel->plan.resize(count > 0 ? count : 0);
  if (status.ok() && count > 0)
    TF_OpKernelConstruction_GetAttrInt64List(ctx, "plan", kernel->plan.data(), count, status);
  if (status.ok() && !(kernel->op = bridge::find(key.data(), key.size()))) {
    const std::string text = "deep500: got a call of custom operator '" + key +
                             "', which is not loaded in this process; expected custom_op(op) to be called first: do that";
    TF_SetStatus(status, TF_UNIMPLEMENTED, text.c_str());
  }
  if (status.ok()) return kernel.release();
  TF_OpKernelConstruction_Failure(ctx, status);
  return nullptr;
}

// The sizes of a tensor, which must outlive the Array that is made of it.
struct Sizes {
  std::vector<int64_t> dims;
  explicit Sizes(const TF_Tensor *tensor) : dims(TF_NumDims(tensor)) {
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = TF_Dim(tensor, static_cast<int>(d));
  }
  explicit Sizes(std::vector<int64_t> given) : dims(std::move(given)) {}
};

// The sizes of all outputs of the operator itself, by plan or as the last argument lists them (rank, sizes, ...).
std::vector<Sizes> planned(const Kernel &kernel, const std::vector<Sizes> &inputs, const TF_Tensor *last) {
  std::vector<Sizes> found;
  const bool listed = kernel.plan.empty() && last;
  const int64_t *at = listed ? static_cast<const int64_t *>(TF_TensorData(last)) : kernel.plan.data();
  const int64_t *end = at + (listed ? TF_TensorElementCount(last) : static_cast<int64_t>(kernel.plan.size()));
  for (int64_t i = 0; i < kernel.op->outputs && at < end; ++i) {
    std::vector<int64_t> dims;
    if (*at < 0) dims = inputs[0].dims;
    for (int64_t d = 0, rank = *at++; d < rank && at < end; ++d, at += listed ? 1 : 2) {
      const bool constant = listed || at[0] < 0;
      const auto *from = constant ? nullptr : &inputs[at[0]].dims;
      if (from && at[1] >= static_cast<int64_t>(from->size())) return {};
      dims.push_back(listed ? at[0] : constant ? at[1] : (*from)[at[1]]);
    }
    found.emplace_back(std::move(dims));
  }
  return found;
}

bool run(const Kernel &kernel, TF_OpKernelContext *ctx, Status &status) {
  const bridge::Operator &op = *kernel.op;
  const int64_t count = bridge::arguments(op, kernel.phase), first = bridge::first_input(op, kernel.phase);
  const int64_t given = TF_NumInputs(ctx), outputs = TF_NumOutputs(ctx);
  const auto fail = [&](const std::string &text) {
    TF_SetStatus(status, TF_INVALID_ARGUMENT, text.c_str());
    return false;
  };
  if (given < count || given > count + 1 || outputs != bridge::results(op, kernel.phase, kernel.wanted))
    return fail(bridge::about(op, "a wrong number of tensors; expected a call that custom_op made"));
  std::vector<Tensor> tensors, made;
  std::vector<Sizes> sizes, output_sizes;
  for (int64_t i = 0; i < given; ++i) {
    TF_Tensor *tensor = nullptr;
    TF_GetInput(ctx, static_cast<int>(i), &tensor, status);
    if (!status.ok()) return false;
    tensors.emplace_back(tensor);
    sizes.emplace_back(tensor);
  }
  bridge::Array args[3 * bridge::MOST], rets[2 * bridge::MOST];
  for (int64_t i = 0; i < count; ++i)
    args[i] = {TF_TensorData(tensors[i].get()), static_cast<int64_t>(sizes[i].dims.size()), sizes[i].dims.data()};
  const std::string problem = bridge::check(op, args + first);
  if (!problem.empty()) return fail(problem);
  if (kernel.phase == bridge::FORWARD || kernel.phase == bridge::JVP) {
    output_sizes = planned(kernel, sizes, given > count ? tensors[count].get() : nullptr);
    if (static_cast<int64_t>(output_sizes.size()) != op.outputs) return fail(bridge::about(op, "inputs of other ranks than were declared; expected those"));
    if (kernel.phase == bridge::JVP)
      for (int64_t i = 0; i < op.outputs; ++i) output_sizes.push_back(output_sizes[i]);
  } else {
    for (int64_t i = 0; i < op.inputs; ++i)
      if ((kernel.wanted >> i) & 1) output_sizes.push_back(sizes[first + i]);
  }
  for (int64_t i = 0; i < outputs; ++i) {
    const auto &dims = output_sizes[i].dims;
    const TF_DataType dtype = TF_ExpectedOutputDataType(ctx, static_cast<int>(i));
    size_t bytes = TF_DataTypeSize(dtype);
    for (int64_t size : dims) bytes *= size;
    made.emplace_back(TF_AllocateOutput(ctx, static_cast<int>(i), dtype, dims.data(), static_cast<int>(dims.size()),
                                        bytes, status));
    if (!status.ok()) return false;
    rets[i] = {TF_TensorData(made.back().get()), static_cast<int64_t>(dims.size()), dims.data()};
  }
  const std::string text = bridge::call(op, kernel.phase, kernel.wanted, args, rets);
  return text.empty() || fail(text);
}

void compute(void *kernel, TF_OpKernelContext *ctx) {
  Status status;
  if (!run(*static_cast<const Kernel *>(kernel), ctx, status)) TF_OpKernelContext_Failure(ctx, status);
}

void destroy(void *kernel) { delete static_cast<Kernel *>(kernel); }

void shapes(TF_ShapeInferenceContext *ctx, TF_Status *status) {
  TF_ShapeInferenceContextSetUnknownShape(ctx, status);  // Python knows more: custom.py sets what can be known
}

struct Registration {
  Registration() {
    Status status;
    TF_OpDefinitionBuilder *builder = TF_NewOpDefinitionBuilder("Deep500Call");
    for (const char *attr : {"key: string", "phase: int", "wanted: int", "plan: list(int)", "Tin: list(type) >= 1",
                             "Tout: list(type) >= 1"})
      TF_OpDefinitionBuilderAddAttr(builder, attr);
    TF_OpDefinitionBuilderAddInput(builder, "args: Tin");
    TF_OpDefinitionBuilderAddOutput(builder, "results: Tout");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, shapes);
    TF_RegisterOpDefinition(builder, status);
    TF_KernelBuilder *kernel = TF_NewKernelBuilder("Deep500Call", "CPU", create, compute, destroy);
    TF_RegisterKernelBuilder("Deep500Call", kernel, status);
  }
} registration;

}  // namespace

D500_BRIDGE_API void d500_bridge_add(const char *key, const char *name, int64_t inputs, int64_t outputs,
                                     void *const *functions, const int64_t *declared, int64_t length) {
  bridge::add(key, name, inputs, outputs, functions, declared, length);
}
