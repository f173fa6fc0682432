// What the generated wrapper of an operator is made of; not for operators themselves. The wrapper defines D500_FORWARD and
// D500_BACKWARD (the signatures that the descriptors ask for, as text) and then includes this.
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "deep500/deep500.h"

#define D500_API extern "C" __attribute__((visibility("default"), used))

// Runs once for each shape, or when something fails: compilers need not take pains over it, nor copy it to its callers.
#ifdef __clang__
#define D500_ASIDE __attribute__((noinline, optnone))
#else
#define D500_ASIDE __attribute__((noinline, cold))
#endif

namespace d500_detail {

template <class... T>
struct list {};

/// The arguments of a member function from number `first` on can be written through.
template <class F>
struct arguments {
  static constexpr bool writable(std::size_t) { return true; }
};
#define D500_ARGUMENTS(QUALIFIERS)                                                            \
  template <class R, class C, class... A>                                                     \
  struct arguments<R (C::*)(A...) QUALIFIERS> {                                               \
    static constexpr bool writable(std::size_t first) {                                       \
      const bool fixed[] = {std::is_const<std::remove_pointer_t<A>>::value..., false};        \
      for (std::size_t i = first; i < sizeof...(A); ++i)                                      \
        if (fixed[i]) return false;                                                           \
      return true;                                                                            \
    }                                                                                         \
  };
D500_ARGUMENTS()
D500_ARGUMENTS(const)
D500_ARGUMENTS(noexcept)
D500_ARGUMENTS(const noexcept)

// For a member NAME: has_NAME (any such member, also an overloaded or private one), NAME_takes (it can be called with these
// arguments), NAME_of (its type, void if there is none or several), NAME_check (the one error if it does not fit; its last
// argument shows the compiler what there is instead).
#define D500_MEMBER(NAME, EXPECTED)                                                                           \
  template <class C, class = void>                                                                            \
  struct NAME##_of : std::false_type {                                                                        \
    using type = void;                                                                                        \
  };                                                                                                          \
  template <class C>                                                                                          \
  struct NAME##_of<C, std::void_t<decltype(&C::NAME)>> : std::true_type {                                     \
    using type = decltype(&C::NAME);                                                                          \
  };                                                                                                          \
  struct NAME##_decoy {                                                                                       \
    int NAME;                                                                                                 \
  };                                                                                                          \
  template <class C>                                                                                          \
  struct NAME##_both : C, NAME##_decoy {};                                                                    \
  template <class C, class = void>                                                                            \
  struct NAME##_clashes : std::true_type {};                                                                  \
  template <class C>                                                                                          \
  struct NAME##_clashes<C, std::void_t<decltype(&NAME##_both<C>::NAME)>> : std::false_type {};                \
  template <class C>                                                                                          \
  struct has_##NAME : std::conditional_t<std::is_final<C>::value, NAME##_of<C>, NAME##_clashes<C>> {};        \
  template <class C, class Arguments, class = void>                                                           \
  struct NAME##_takes : std::false_type {};                                                                   \
  template <class C, class... A>                                                                              \
  struct NAME##_takes<C, list<A...>, std::void_t<decltype(std::declval<C &>().NAME(std::declval<A>()...))>>   \
      : std::true_type {};                                                                                    \
  template <class C, bool fits, class Found>                                                                  \
  struct NAME##_check {                                                                                       \
    static_assert(fits, "D500: expected public " EXPECTED);                                                   \
  };

D500_MEMBER(forward, D500_FORWARD)
D500_MEMBER(backward, D500_BACKWARD)

template <class C, class = void>
struct has_scratch : std::false_type {};
template <class C>
struct has_scratch<C, std::void_t<decltype(static_cast<std::size_t>(std::declval<C &>().scratch()))>> : std::true_type {};

/// Number of elements that the operator wants as scratch space, 0 if it has no such member.
template <class Op>
std::size_t scratch_of(Op &op) {
  if constexpr (has_scratch<Op>::value) return static_cast<std::size_t>(op.scratch());
  return 0;
}

inline char *error_text() {
  static thread_local char text[2048] = "";
  return text;
}

/// Name of a class as the source has it.
D500_ASIDE inline std::string name_of(const std::type_info &type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : type.name();
}

D500_ASIDE inline int fail(const char *text) {
  std::snprintf(error_text(), 2048, "%s", text);
  return 1;
}

D500_ASIDE inline int failed(const char *what, int status) {
  fail((std::string(what) + " returned status " + std::to_string(status)).c_str());
  return status;
}

D500_ASIDE inline int threw(const char *what, const std::exception *error) {
  if (!error) return fail((std::string(what) + " threw something that is no std::exception").c_str());
  return fail((std::string(what) + " threw " + name_of(typeid(*error)) + ": " + error->what()).c_str());
}

/// Run a function that returns a status, or nothing; exceptions become a status too.
template <class F>
int guarded(const char *what, F &&run) noexcept {
  try {
    if constexpr (std::is_void<decltype(run())>::value) {
      run();
      return 0;
    } else {
      const int status = static_cast<int>(run());
      return status == 0 ? status : failed(what, status);
    }
  } catch (const std::exception &error) {
    return threw(what, &error);
  } catch (...) {
    return threw(what, nullptr);
  }
}

/// An operator made for certain shapes, and what it was made from.
template <class Op>
struct instance {
  std::vector<std::int64_t> key;
  std::vector<std::vector<uint32_t>> sizes;
  std::vector<deep500::tensor_t> tensors;
  std::vector<std::size_t> counts;
  std::unique_ptr<Op> op;
};

inline std::size_t key_length(const std::int64_t *sizes, int tensors) {
  std::size_t length = 0;
  for (int t = 0; t < tensors; ++t) length += 1 + static_cast<std::size_t>(sizes[length]);
  return length;
}

/// Make the operator for these sizes: for every input, then every output: rank, size, size, ...
template <class Op, class Factory>
D500_ASIDE std::unique_ptr<instance<Op>> make(const std::int64_t *sizes, const deep500::tensortype_t *types, int inputs,
                                   int outputs, Factory &&factory) {
  auto made = std::make_unique<instance<Op>>();
  made->key.assign(sizes, sizes + key_length(sizes, inputs + outputs));
  for (int t = 0; t < inputs + outputs; ++t) {
    const std::int64_t rank = *sizes++;
    if (rank > 255) throw std::invalid_argument("a tensor has more than 255 axes");
    std::vector<uint32_t> shape;
    std::size_t count = 1;
    for (std::int64_t axis = 0; axis < rank; ++axis, ++sizes) {
      if (*sizes < 0 || *sizes > 0xffffffffLL) throw std::invalid_argument("an axis is longer than 4294967295");
      shape.push_back(static_cast<uint32_t>(*sizes));
      count *= static_cast<std::size_t>(*sizes);
    }
    made->sizes.push_back(std::move(shape));
    made->counts.push_back(count);
    made->tensors.push_back({types[t], deep500::TORD_IRRELEVANT, static_cast<uint8_t>(rank), made->sizes.back().data()});
  }
  deep500::tensor_t *tensors = made->tensors.data();
  made->op.reset(factory(tensors, inputs, tensors + inputs, outputs));
  return made;
}

/// The operator for these sizes, made on first use and kept as long as the process lives.
template <class Op, class Factory>
D500_ASIDE instance<Op> *find(const std::int64_t *sizes, const deep500::tensortype_t *types, int inputs, int outputs,
                   Factory &&factory) {
  static thread_local instance<Op> *last = nullptr;
  const std::size_t length = key_length(sizes, inputs + outputs);
  if (last && last->key.size() == length && std::equal(sizes, sizes + length, last->key.begin())) return last;
  static auto &mutex = *new std::mutex;  // never destroyed: other threads may still run when the process ends
  static auto &known = *new std::map<std::vector<std::int64_t>, std::unique_ptr<instance<Op>>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto &entry = known[std::vector<std::int64_t>(sizes, sizes + length)];
  if (!entry) entry = make<Op>(sizes, types, inputs, outputs, factory);
  return last = entry.get();
}

template <class Op, class = void>
struct downcasts : std::false_type {};
template <class Op>
struct downcasts<Op, std::void_t<decltype(static_cast<Op *>(std::declval<deep500::CustomOperator *>()))>> : std::true_type {};

/// What create_new_op made, as an Op; throws if it is of another class (which shows where CustomOperator comes first).
template <class Op>
D500_ASIDE Op *checked(void *made) {
  if (!made) throw std::runtime_error("create_new_op returned a null pointer");
  Op *const op = static_cast<Op *>(made);
  if constexpr (downcasts<Op>::value) {
    deep500::CustomOperator &base = *op;
    if (static_cast<void *>(&base) == made && typeid(base) != typeid(Op))
      throw std::runtime_error("create_new_op made a " + name_of(typeid(base)) + ", but D500_REGISTER_OP names " +
                               name_of(typeid(Op)));
  }
  return op;
}

/// The instance behind a handle.
template <class Op>
instance<Op> &opened(void *handle) {
  if (!handle) throw std::invalid_argument("got a null instance");
  return *static_cast<instance<Op> *>(handle);
}

[[noreturn]] D500_ASIDE inline void refuse_null(const char *what, int number) {
  throw std::invalid_argument(std::string("got a null pointer for ") + what + " " + std::to_string(number));
}

/// Throws unless every tensor that has elements has a pointer.
inline void require(const void *const *pointers, const std::size_t *counts, int number, const char *what) {
  for (int i = 0; i < number; ++i)
    if (!pointers[i] && counts[i]) refuse_null(what, i);
}

}  // namespace d500_detail
