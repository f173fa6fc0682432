// What the generated gradients of an operator are made of: Enzyme's entry points, and memory for its shadows. Not for
// operators themselves, but they may name the entry points, for instance to register a gradient:
//
//   void *__enzyme_register_gradient_f[] = {(void *)f, (void *)f_augmented, (void *)f_gradient};
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

template <class R, class... A>
R __enzyme_autodiff(void *, A...);
template <class R, class... A>
R __enzyme_fwddiff(void *, A...);
extern int enzyme_dup, enzyme_dupnoneed, enzyme_const;
#ifdef D500_GUARDED  // zero times infinity, as of what is overwritten before it is used, is zero in derivatives
extern int enzyme_strong_zero;
#define D500_ZEROS enzyme_strong_zero,
#else
#define D500_ZEROS
#endif

namespace d500_detail {

constexpr std::size_t workspace_alignment = 64, workspace_kept = std::size_t(64) << 20;

/// Bytes that a workspace needs for this number of elements.
template <class T>
constexpr std::size_t room(std::size_t count) {
  return (count * sizeof(T) + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

/// Memory for one call, kept by the thread for the next one unless it is large.
class workspace {
  struct block {
    char *data = nullptr;
    std::size_t size = 0;
    ~block() { std::free(data); }
  };
  char *next = nullptr;

  static block &own() {
    static thread_local block mine;
    return mine;
  }

 public:
  explicit workspace(std::size_t bytes) {
    block &mine = own();
    bytes += workspace_alignment;
    if (mine.size < bytes) {
      std::free(mine.data);
      mine.data = static_cast<char *>(std::aligned_alloc(workspace_alignment, bytes / workspace_alignment * workspace_alignment));
      mine.size = mine.data ? bytes / workspace_alignment * workspace_alignment : 0;
      if (!mine.data) throw std::bad_alloc();
    }
    next = mine.data;
  }
  ~workspace() {
    block &mine = own();
    if (mine.size <= workspace_kept) return;
    std::free(mine.data);
    mine.data = nullptr;
    mine.size = 0;
  }
  workspace(const workspace &) = delete;
  workspace &operator=(const workspace &) = delete;

  /// So many elements, not initialised.
  template <class T>
  T *take(std::size_t count) {
    T *const taken = reinterpret_cast<T *>(next);
    next += room<T>(count);
    return taken;
  }

  /// So many zeros: in `target` if there is one, else here.
  template <class T>
  T *zeros(std::size_t count, void *target = nullptr) {
    T *const made = target ? static_cast<T *>(target) : take<T>(count);
    if (count) std::memset(static_cast<void *>(made), 0, count * sizeof(T));
    return made;
  }

  /// A copy, or zeros if there is nothing to copy.
  template <class T>
  T *copy(const void *source, std::size_t count) {
    if (!source) return zeros<T>(count);
    T *const made = take<T>(count);
    if (count) std::memcpy(static_cast<void *>(made), source, count * sizeof(T));
    return made;
  }
};

template <class Op, class = void>
struct is_elementwise : std::false_type {};
template <class Op>
struct is_elementwise<Op, typename std::enable_if<static_cast<bool>(Op::elementwise)>::type> : std::true_type {};

template <class Op, class = void>
struct writes_once : std::false_type {};
template <class Op>
struct writes_once<Op, typename std::enable_if<static_cast<bool>(Op::writes_once)>::type> : std::true_type {};

template <class Op, class = void>
struct has_parts : std::false_type {};
template <class Op>
struct has_parts<Op, std::void_t<decltype(static_cast<std::size_t>(std::declval<const Op &>().parts()))>> : std::true_type {};

D500_MEMBER(surrogate, "")
D500_MEMBER(surrogate_part, "")

/// Whether it has what stands for forward in gradients.
template <class Op>
struct stands_in : std::bool_constant<has_parts<Op>::value ? has_surrogate_part<Op>::value : has_surrogate<Op>::value> {
  static_assert(!(has_parts<Op>::value ? has_surrogate<Op>::value : has_surrogate_part<Op>::value),
                "D500: expected surrogate_part(number, ...) beside parts(), and surrogate(...) without it");
};

}  // namespace d500_detail
