// The short way from PyTorch tensors to a compiled operator and back, taken by frameworks/pytorch/shortcut.py.
//
// One library serves every operator. It needs neither PyTorch's nor Python's headers, and so no particular compiler:
// what it calls is given to it as addresses (struct Interface, filled in the same order by shortcut.py). Tensors are
// looked at through DLPack's exchange table and made through PyTorch's stable C interface (aoti_torch_*).
//
// A call that is not exactly what was seen before (shape, dtype, device, tensor class, a dispatch mode) is handed to
// `otherwise`, a Python callable with the same arguments, which checks everything and enters new shapes.
#include <cstddef>
#include <cstdint>

struct PyObject;

struct DLTensor {  // DLPack 1.x, https://dmlc.github.io/dlpack/latest/c_api.html
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct Interface {
  void *(*as_pointer)(PyObject *);
  PyObject *(*type_of)(PyObject *);
  void (*drop)(PyObject *);
  void (*keep)(PyObject *);
  PyObject *(*get)(PyObject *, PyObject *name);
  PyObject *(*call)(PyObject *, PyObject *const *, size_t count, PyObject *names);
  PyObject *(*method)(PyObject *name, PyObject *const *, size_t count, PyObject *names);
  int (*truth)(PyObject *);
  PyObject *(*tuple)(ptrdiff_t);
  int (*put)(PyObject *, ptrdiff_t, PyObject *);
  PyObject *(*item)(PyObject *, ptrdiff_t);
  void (*clear)();
  void *(*unlock)();
  void (*lock)(void *);
  int (*view)(void *, DLTensor *);
  bool (*recording)();
  int32_t (*empty)(int64_t, const int64_t *, const int64_t *, int32_t dtype, int32_t device, int32_t index, void **);
  int32_t (*data)(void *, void **);
  int32_t (*discard)(void *);
  PyObject *(*wrap)(const void *);
  PyObject *tensor, *parameter, *requires_grad, *contiguous, *is_neg, *none;
  PyObject *modes, *transforms;  // the number of dispatch modes; whether transformations of torch.func are at work
};

struct Seen {                // what is known of one combination of shapes
  const int64_t *arguments;  // of every argument: rank, sizes
  const int64_t *results;    // of every result: rank, sizes, strides
  void *instance;
};

struct Method {  // forward or backward of one operator; results of backward may be unwanted
  void *function;
  int64_t arguments, results, outputs;  // outputs: number of the operator's, for backward; 0: this is forward
  const uint16_t *kinds;                // of every argument: DLPack's code and bits
  const int32_t *dtypes;                // of every result: PyTorch's number
  const uint8_t *active;                // of every input, for backward: whether it has a gradient
  Seen *seen;
  int64_t count, last;
};

struct Shortcut {
  Method *method;
  PyObject *otherwise, *autograd;  // autograd: called instead if gradients are recorded; null: they are not asked for
};

namespace {

Interface py;

constexpr int MOST = 16;              // arguments or results; shortcut.py makes no shortcut for more
constexpr int64_t RELEASE = 1 << 15;  // bytes of arguments from which other Python threads may run meanwhile

using Forward = int (*)(void *, const void *const *, void *const *);
using Backward = int (*)(void *, const void *const *, const void *const *, const void *const *, void *const *);

bool contiguous(const DLTensor &x) {
  int64_t step = 1;
  for (int d = x.ndim - 1; d >= 0; --d) {
    if (x.shape[d] != 1 && x.strides && x.strides[d] != step) return false;
    step *= x.shape[d];
  }
  return true;
}

bool truth_of(PyObject *value) {
  if (!value) return py.clear(), true;
  const bool result = py.truth(value) != 0;
  return py.drop(value), result;
}

struct Call {
  const Shortcut &s;
  Method &m;
  DLTensor views[MOST];
  PyObject *copies[MOST];
  void *handles[MOST];
  void *memory[MOST];
  int64_t bytes = 0;
  int made = 0, copied = 0;

  explicit Call(const Shortcut &shortcut) : s(shortcut), m(*shortcut.method) {}
  ~Call() {
    for (int i = 0; i < made; ++i)
      if (handles[i]) py.discard(handles[i]);
    for (int i = 0; i < copied; ++i) py.drop(copies[i]);
  }

  bool plain(PyObject *x) {  // no subclass: those have a behaviour of their own
    PyObject *type = py.type_of(x);
    py.drop(type);  // the object keeps it
    return type == py.tensor || type == py.parameter;
  }

  bool look(PyObject *const *args) {
    const bool kernel = !s.autograd && !m.outputs;  // torch.library's own: what modes there are have had their say
    if (!kernel && truth_of(py.call(py.modes, nullptr, 0, nullptr))) return false;
    for (int64_t i = 0; i < m.arguments; ++i) {
      DLTensor &x = views[i];
      if (!plain(args[i])) return false;
      if (py.view(args[i], &x)) return py.clear(), false;
      if (x.device_type != 1 || x.lanes != 1 || (x.code << 8 | x.bits) != m.kinds[i]) return false;
      if (!contiguous(x)) {
        PyObject *copy = py.method(py.contiguous, args + i, 1, nullptr);
        if (!copy) return py.clear(), false;
        copies[copied++] = copy;
        if (py.view(copy, &x)) return py.clear(), false;
      }
      int64_t size = 1;
      for (int d = 0; d < x.ndim; ++d) size *= x.shape[d];
      if (size == 0) return false;
      // imag() of a conjugate is stored without its sign; it is dense only if it is a single number
      if (size == 1 && truth_of(py.method(py.is_neg, args + i, 1, nullptr))) return false;
      bytes += size * x.bits / 8;
    }
    return true;
  }

  bool recorded(PyObject *const *args) {
    if (!s.autograd || !py.recording()) return false;
    for (int64_t i = 0; i < m.arguments; ++i)
      if (truth_of(py.get(args[i], py.requires_grad))) return true;
    return false;
  }

  bool fits(const Seen &seen) {
    const int64_t *known = seen.arguments;
    for (int64_t i = 0; i < m.arguments; ++i) {
      if (*known++ != views[i].ndim) return false;
      for (int d = 0; d < views[i].ndim; ++d)
        if (*known++ != views[i].shape[d]) return false;
    }
    return true;
  }

  const Seen *find() {
    if (m.count && fits(m.seen[m.last])) return &m.seen[m.last];
    for (int64_t i = 0; i < m.count; ++i)
      if (fits(m.seen[i])) return m.last = i, &m.seen[i];
    return nullptr;
  }

  bool make(const Seen &seen, PyObject *wanted) {
    const int64_t *known = seen.results;
    for (int64_t i = 0; i < m.results; ++i) {
      const int64_t rank = *known;
      const int64_t *sizes = known + 1, *strides = sizes + rank;
      known = strides + rank;
      handles[i] = memory[i] = nullptr;
      made = i + 1;
      if (wanted && !(m.active[i] && py.truth(py.item(wanted, i)))) continue;
      if (py.empty(rank, sizes, strides, m.dtypes[i], 0, 0, &handles[i])) return handles[i] = nullptr, false;
      if (py.data(handles[i], &memory[i])) return false;
    }
    return true;
  }

  int run(void *instance) {
    const void *inputs[MOST];
    for (int64_t i = 0; i < m.arguments; ++i)
      inputs[i] = static_cast<const char *>(views[i].data) + views[i].byte_offset;
    void *state = bytes >= RELEASE ? py.unlock() : nullptr;
    int status;
    if (m.outputs) {
      const int64_t first = m.outputs, second = m.arguments - m.outputs;
      status = reinterpret_cast<Backward>(m.function)(instance, inputs, inputs + first, inputs + second, memory);
    } else {
      status = reinterpret_cast<Forward>(m.function)(instance, inputs, memory);
    }
    if (state) py.lock(state);
    return status;
  }

  PyObject *result(int64_t i) {
    if (handles[i]) return py.wrap(handles[i]);
    return py.keep(py.none), py.none;
  }

  PyObject *results() {
    if (m.results == 1 && !m.outputs) return result(0);
    PyObject *all = py.tuple(m.results);
    for (int64_t i = 0; all && i < m.results; ++i) {
      PyObject *output = result(i);
      if (!output) return py.drop(all), nullptr;
      py.put(all, i, output);
    }
    return all;
  }
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Hands over the addresses, once, before any call.
EXPORTED void d500_interface(const Interface *interface) { py = *interface; }

// A PyCFunction of kind METH_FASTCALL. `self` is the address of a Shortcut; backward's last argument is a tuple that
// says which input gradients are wanted, the others are None.
EXPORTED PyObject *d500_shortcut(PyObject *self, PyObject *const *args, ptrdiff_t count) {
  const Shortcut &s = *static_cast<const Shortcut *>(py.as_pointer(self));
  const bool backward = s.method->outputs != 0;
  if (count == s.method->arguments + backward) {
    Call call(s);
    if (call.look(args)) {
      if (call.recorded(args)) {
        const bool transformed = truth_of(py.call(py.transforms, nullptr, 0, nullptr));
        return py.call(transformed ? s.otherwise : s.autograd, args, count, nullptr);
      }
      const Seen *seen = call.find();
      if (seen && call.make(*seen, backward ? args[count - 1] : nullptr) && call.run(seen->instance) == 0)
        return call.results();
    }
  }
  return py.call(s.otherwise, args, count, nullptr);
}
