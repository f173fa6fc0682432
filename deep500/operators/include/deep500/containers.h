// std::map, std::set and std::list in the form that Enzyme can follow, for operators whose gradient is derived.
//
// Enzyme derives from every load and store what memory holds at which distance from a pointer. In libc++ the node behind
// the last one is a part of the container itself: where other nodes have a pointer or a value, the container's number of
// elements follows. One loop over nodes then finds two types at one place, and Enzyme gives up. Here both kinds of nodes
// have the same members, and a whole number stands where the container has its own. Order and values are those of libc++,
// whose own code does the rest; Enzyme moves the nodes of a container and those that hold its derivatives alike.
//
// These are libc++'s names, so this is for one major version of it; with another one such containers are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION / 10000 == 22
namespace std { inline namespace _LIBCPP_ABI_NAMESPACE {
template <class Pointer> class __tree_end_node;
template <class Void> class __tree_node_base;
template <class T, class Void> class __tree_node;
template <class T> struct __get_node_value_type;
template <class T, class Void> struct __list_node_base;
template <class T, class Void> struct __list_node;

template <> class __tree_end_node<__tree_node_base<void *> *> {
 public:
  using pointer = __tree_node_base<void *> *;
  pointer __left_ = nullptr, __right_ = nullptr;
  __tree_end_node *__parent_ = nullptr;
  bool __is_black_ = false;
};

template <> class __tree_node_base<void *> : public __tree_end_node<__tree_node_base<void *> *> {
 public:
  using pointer = __tree_node_base *;
  using __end_node_pointer = __tree_end_node<pointer> *;
  pointer __parent_unsafe() const { return static_cast<pointer>(__parent_); }
  void __set_parent(pointer parent) { __parent_ = parent; }
  __tree_node_base() = default;
  __tree_node_base(const __tree_node_base &) = delete;
  __tree_node_base &operator=(const __tree_node_base &) = delete;
};

template <class T> class __tree_node<T, void *> : public __tree_node_base<void *> {
 public:
  using __node_value_type = typename __get_node_value_type<T>::type;

 private:
  size_t d500_number = 0;
  union {
    __node_value_type d500_value;
  };

 public:
  __node_value_type &__get_value() { return d500_value; }
  template <class A, class... X> explicit __tree_node(A &allocator, X &&...made_of) {
    allocator_traits<A>::construct(allocator, std::addressof(d500_value), std::forward<X>(made_of)...);
  }
  ~__tree_node() = delete;
  __tree_node(const __tree_node &) = delete;
  __tree_node &operator=(const __tree_node &) = delete;
};

template <class T> struct __list_node<T, void *> : public __list_node_base<T, void *> {
 private:
  size_t d500_number = 0;
  union {
    T d500_value;
  };

 public:
  using __base = __list_node_base<T, void *>;
  using __base_pointer = __base *;
  T &__get_value() { return d500_value; }
  explicit __list_node(__base_pointer before, __base_pointer after) {
    this->__prev_ = before;
    this->__next_ = after;
  }
  ~__list_node() {}
  __base_pointer __as_link() { return this; }
};
} }
#endif
