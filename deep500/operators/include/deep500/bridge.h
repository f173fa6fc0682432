// Operators by key, for the libraries that stand between a framework and compiled operators.
//
// A framework's graph may outlive the process that made it (JAX keeps compiled programs on disk), so graphs hold a key,
// a hash of the operator's content, and each process fills the table from keys to addresses. Entries are never removed:
// reading takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define D500_BRIDGE_API extern "C" __attribute__((visibility("default")))

namespace deep500 {
namespace bridge __attribute__((visibility("hidden"))) {  // every library has a table of its own

enum Phase : int64_t { FORWARD = 0, BACKWARD = 1, JVP = 2, HVP = 3 };
enum { MOST = 64 };  // inputs and outputs of an operator together

// A tensor of a framework: where its numbers are, and its sizes.
struct Array {
  void *data;
  int64_t rank;
  const int64_t *sizes;
};

// The exports of one operator library (deep500/deep500.h says what each does) and what it was declared with.
struct Operator {
  std::string key, name;
  int64_t inputs, outputs;
  void *(*instance)(const int64_t *);
  int (*forward)(void *, const void *const *, void *const *);
  int (*backward)(void *, const void *const *, const void *const *, const void *const *, void *const *);
  int (*jvp)(void *, const void *const *, const void *const *, void *const *, void *const *);
  int (*hvp)(void *, const void *const *, const void *const *, const void *const *, void *const *);
  const char *(*error)();
  std::vector<int64_t> declared;  // for every input: rank (-1: any), sizes (-1: any; -2, -3, ...: symbols)
  const Operator *next;
};

inline std::atomic<const Operator *> *table() {
  static std::atomic<const Operator *> heads[256];  // zero before anything runs
  return heads;
}

inline unsigned slot(const char *key, size_t length) {
  unsigned hash = 2166136261u;  // FNV-1a
  for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<unsigned char>(key[i])) * 16777619u;
  return hash & 255u;
}

inline const Operator *find(const char *key, size_t length) {
  for (const Operator *op = table()[slot(key, length)].load(std::memory_order_acquire); op; op = op->next)
    if (op->key.size() == length && std::memcmp(op->key.data(), key, length) == 0) return op;
  return nullptr;
}

// functions: instance, forward, backward, jvp, hvp, error; null where the operator has none.
inline void add(const char *key, const char *name, int64_t inputs, int64_t outputs, void *const *functions,
                const int64_t *declared, int64_t length) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (find(key, std::strlen(key))) return;
  auto &head = table()[slot(key, std::strlen(key))];
  auto *op = new Operator{};
  op->key = key;
  op->name = name;
  op->inputs = inputs;
  op->outputs = outputs;
  op->instance = reinterpret_cast<decltype(op->instance)>(functions[0]);
  op->forward = reinterpret_cast<decltype(op->forward)>(functions[1]);
  op->backward = reinterpret_cast<decltype(op->backward)>(functions[2]);
  op->jvp = reinterpret_cast<decltype(op->jvp)>(functions[3]);
  op->hvp = reinterpret_cast<decltype(op->hvp)>(functions[4]);
  op->error = reinterpret_cast<decltype(op->error)>(functions[5]);
  op->declared.assign(declared, declared + length);
  op->next = head.load();
  head.store(op, std::memory_order_release);
}

// How many tensors a call takes and returns.
inline int64_t arguments(const Operator &op, int64_t phase) {
  if (phase == FORWARD) return op.inputs;
  return phase == BACKWARD ? op.inputs + 2 * op.outputs : phase == JVP ? 2 * op.inputs : 2 * op.inputs + op.outputs;
}

inline int64_t results(const Operator &op, int64_t phase, uint64_t wanted) {
  if (phase == FORWARD || phase == JVP) return phase == JVP ? 2 * op.outputs : op.outputs;
  int64_t count = 0;
  for (int64_t i = 0; i < op.inputs; ++i) count += (wanted >> i) & 1;
  return count;
}

// Which of a call's arguments is the first input of the operator.
inline int64_t first_input(const Operator &op, int64_t phase) {
  return phase == BACKWARD || phase == HVP ? op.outputs : 0;
}

inline std::string shown(const Array &array) {
  std::string text = "[";
  for (int64_t i = 0; i < array.rank; ++i) text += (i ? "," : "") + std::to_string(array.sizes[i]);
  return text + "]";
}

// How every text begins: it goes through the framework's own errors and is found again by this.
inline std::string about(const Operator &op, const std::string &problem) {
  return "deep500: C++ operator '" + op.name + "': got " + problem;
}

inline std::string failure(const Operator &op, const char *what) {
  return about(op, std::string("a failure of ") + what + " (" + op.error() + "); expected it to succeed: see its source");
}

// Empty if the inputs' sizes are those that were declared; else what is wrong.
inline std::string check(const Operator &op, const Array *inputs) {
  std::map<int64_t, int64_t> symbols;
  const int64_t *at = op.declared.data(), *end = at + op.declared.size();
  for (int64_t i = 0; i < op.inputs && at < end; ++i) {
    const int64_t rank = *at++;
    if (rank < 0) continue;
    bool fits = rank == inputs[i].rank;
    for (int64_t d = 0; fits && d < rank; ++d) {
      const int64_t size = inputs[i].sizes[d];
      fits = at[d] == -1 || (at[d] >= 0 ? at[d] == size : symbols.emplace(at[d], size).first->second == size);
    }
    if (!fits) return about(op, "sizes " + shown(inputs[i]) + " of input " + std::to_string(i) + "; expected those declared");
    at += rank;
  }
  return "";
}

inline bool alike(const Array *a, const Array *b, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (a[i].rank != b[i].rank || (a[i].rank && std::memcmp(a[i].sizes, b[i].sizes, a[i].rank * sizeof(int64_t)) != 0))
      return false;
  return true;
}

// Run one phase on a framework's memory. Empty if all is well, else what is wrong.
// Arguments, results: forward: inputs -> outputs. backward: output gradients, inputs, outputs -> input gradients that
// are wanted (bit i: of input i). jvp: inputs, tangents -> outputs, tangents. hvp: output gradients, inputs, tangents
// -> tangents of the input gradients that are wanted.
inline std::string call(const Operator &op, int64_t phase, uint64_t wanted, const Array *args, const Array *made) {
  static char nothing[64];  // what stands for tensors without elements
  const int64_t in = op.inputs, out = op.outputs, first = first_input(op, phase);
  if (phase != FORWARD && !(phase == BACKWARD ? alike(args, args + out + in, out) : alike(args + first + in, args + first, in)))
    return about(op, "gradients or tangents of other sizes than what they belong to; expected the same");
  const void *given[3 * MOST];
  void *result[2 * MOST] = {};
  for (int64_t i = 0, n = arguments(op, phase); i < n; ++i) given[i] = args[i].data ? args[i].data : nothing;
  if (phase == FORWARD || phase == JVP) {
    for (int64_t i = 0, n = results(op, phase, wanted); i < n; ++i) result[i] = made[i].data ? made[i].data : nothing;
  } else {
    for (int64_t i = 0, k = 0; i < in; ++i)
      if ((wanted >> i) & 1) result[i] = made[k].data ? made[k].data : nothing, ++k;
  }
  const Array *outputs = phase == BACKWARD ? args + out + in : phase == HVP ? args : made;
  int64_t sizes[1024], count = 0;
  for (int64_t i = 0; i < in + out; ++i) {
    const Array &array = i < in ? args[first + i] : outputs[i - in];
    if (count + 1 + array.rank > 1024) return about(op, "tensors of too many axes; expected less than 1024 in all");
    sizes[count++] = array.rank;
    for (int64_t d = 0; d < array.rank; ++d) sizes[count++] = array.sizes[d];
  }
  void *instance = op.instance(sizes);
  if (!instance) return failure(op, "create_new_op");
  int status = 0;
  if (phase == FORWARD)
    status = op.forward(instance, given, result);
  else if (phase == BACKWARD && op.backward)
    status = op.backward(instance, given, given + out, given + out + in, result);
  else if (phase == JVP && op.jvp)
    status = op.jvp(instance, given, given + in, result, result + out);
  else if (phase == HVP && op.hvp)
    status = op.hvp(instance, given, given + out, given + out + in, result);
  else
    return about(op, "a call of a derivative; expected one that it has: compile it with gradient='enzyme'");
  static const char *const names[] = {"forward", "backward", "jvp", "hvp"};
  return status ? failure(op, names[phase]) : "";
}

}  // namespace bridge
}  // namespace deep500
