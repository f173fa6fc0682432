// One XLA custom call for every compiled operator: it finds the operator by the key in its attributes and runs it on
// XLA's own buffers. Built by custom_native.py against the headers that come with jaxlib.
#include <string>

#include "deep500/bridge.h"
#include "xla/ffi/api/c_api.h"

namespace {

namespace bridge = deep500::bridge;

XLA_FFI_Error *failure(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const std::string &text) {
  XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, text.c_str(), code};
  return frame->api->XLA_FFI_Error_Create(&args);
}

// Answer XLA's question for which version of the interface this was compiled.
bool told_version(XLA_FFI_CallFrame *frame) {
  auto *extension = frame->extension_start;
  if (!extension || extension->type != XLA_FFI_Extension_Metadata) return false;
  auto *metadata = reinterpret_cast<XLA_FFI_Metadata_Extension *>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  return true;
}

const void *attribute(const XLA_FFI_Attrs &attrs, const std::string &name, XLA_FFI_AttrType type) {
  for (int64_t i = 0; i < attrs.size; ++i)
    if (attrs.types[i] == type && name.compare(0, name.npos, attrs.names[i]->ptr, attrs.names[i]->len) == 0)
      return attrs.attrs[i];
  return nullptr;
}

int64_t number(const XLA_FFI_Attrs &attrs, const char *name) {
  auto *scalar = static_cast<const XLA_FFI_Scalar *>(attribute(attrs, name, XLA_FFI_AttrType_SCALAR));
  return scalar && scalar->dtype == XLA_FFI_DataType_S64 ? *static_cast<const int64_t *>(scalar->value) : -1;
}

bridge::Array array(const void *argument) {
  auto *buffer = static_cast<const XLA_FFI_Buffer *>(argument);
  return {buffer->data, buffer->rank, buffer->dims};
}

XLA_FFI_Error *run(XLA_FFI_CallFrame *frame) {
  auto *key = static_cast<const XLA_FFI_ByteSpan *>(attribute(frame->attrs, "key", XLA_FFI_AttrType_STRING));
  const int64_t phase = number(frame->attrs, "phase"), wanted = number(frame->attrs, "wanted");
  if (!key || phase < 0)
    return failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "deep500: got a call without attributes key and phase");
  const bridge::Operator *op = bridge::find(key->ptr, key->len);
  if (!op)
    return failure(frame, XLA_FFI_Error_Code_UNIMPLEMENTED,
                   "deep500: got a call of custom operator '" + std::string(key->ptr, key->len) +
                       "', which is not loaded in this process; expected custom_op(op) to be called first: do that");
  const uint64_t mask = static_cast<uint64_t>(wanted);
  if (frame->args.size != bridge::arguments(*op, phase) || frame->rets.size != bridge::results(*op, phase, mask))
    return failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                   bridge::about(*op, "a wrong number of tensors; expected a call that custom_op made"));
  bridge::Array args[3 * bridge::MOST], rets[2 * bridge::MOST];
  for (int64_t i = 0; i < frame->args.size; ++i) args[i] = array(frame->args.args[i]);
  for (int64_t i = 0; i < frame->rets.size; ++i) rets[i] = array(frame->rets.rets[i]);
  const std::string problem = bridge::call(*op, phase, mask, args, rets);
  if (!problem.empty()) return failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, problem);
  return nullptr;
}

}  // namespace

D500_BRIDGE_API XLA_FFI_Error *d500_xla_call(XLA_FFI_CallFrame *frame) {
  if (told_version(frame) || frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  return run(frame);
}

D500_BRIDGE_API void d500_bridge_add(const char *key, const char *name, int64_t inputs, int64_t outputs,
                                     void *const *functions, const int64_t *declared, int64_t length) {
  bridge::add(key, name, inputs, outputs, functions, declared, length);
}
