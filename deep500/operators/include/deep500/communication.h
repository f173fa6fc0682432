// Communication of ranks with derivatives: what is sent forwards comes back as gradients, along the same links.
//
//   d5::rank(), d5::ranks()                 this process's number, and how many there are
//   d5::exchange(values, &links)            places of this rank are copied into places of its neighbours. Gradients of the
//                                           copies go back and are added.
//   d5::sum_shared(values, &links)          a place that several ranks hold gets the sum over all of them, on all of them
//   d5::allreduce_sum(mine, all, count)     sums over all ranks, element by element
//   d5::allreduce_sum(mine, all)            of one number
//   d5::allreduce_min(mine, all)            the least. Its gradient belongs to the lowest rank that has it.
//
// Values are float or double. Every rank makes the same calls in the same order. A gradient is that of the sum over all
// ranks of what they return: a result that all of them return counts once for each.
//
// Without D500_MPI, and until d500_communicate was called, there is one rank, and nothing to do.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
#ifdef D500_MPI
#include <mpi.h>
#include <sched.h>

#include <cstdio>
#endif

namespace d5 {

/// With every neighbour: which places are sent to it, and where what it sends goes; `width` numbers lie at a place.
struct Exchange {
  long neighbours, width;
  const long *ranks, *send_start, *send, *receive_start, *receive;
};

namespace messages {

#ifdef D500_MPI
inline MPI_Comm communicator = MPI_COMM_NULL;
inline int this_rank = 0, all_ranks = 1;
inline double patience = 60;

template <class T> struct kind;
template <> struct kind<double> {
  static MPI_Datatype number() { return MPI_DOUBLE; }
  static MPI_Datatype ranked() { return MPI_DOUBLE_INT; }
};
template <> struct kind<float> {
  static MPI_Datatype number() { return MPI_FLOAT; }
  static MPI_Datatype ranked() { return MPI_FLOAT_INT; }
};

// Until all requests are done. A rank that does not come would be waited for without end: all ranks are ended instead.
inline void finish(int count, MPI_Request *requests, const char *what) {
  const double begin = MPI_Wtime();
  int done = 0;
  for (;;) {
    MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    if (done) return;
    if (MPI_Wtime() - begin > patience) {
      std::fprintf(stderr,
                   "error: rank %d: got no end of d5::%s in %g s; expected the same call on all %d ranks: let every rank "
                   "run the operator equally often, or set DEEP500_COMM_TIMEOUT\n",
                   this_rank, what, patience, all_ranks);
      MPI_Abort(communicator, 1);
    }
    sched_yield();
  }
}

// Brings what is packed for every neighbour to it, and what it has packed here; one that is this rank gets its own.
template <class T>
inline void carry(const Exchange &with, const T *outgoing, const long *send_start, T *incoming,
                  const long *receive_start) {
  const long p = with.neighbours, width = with.width;
  MPI_Request *requests = (MPI_Request *)std::malloc(sizeof(MPI_Request) * 2 * p);
  int count = 0;
  for (long q = 0; q < p; ++q) {
    const long sent = width * (send_start[q + 1] - send_start[q]);
    const long received = width * (receive_start[q + 1] - receive_start[q]);
    if (with.ranks[q] == this_rank) {
      std::memcpy(incoming + width * receive_start[q], outgoing + width * send_start[q], sizeof(T) * received);
      continue;
    }
    MPI_Irecv(incoming + width * receive_start[q], (int)received, kind<T>::number(), (int)with.ranks[q], 7, communicator,
              requests + count++);
    MPI_Isend(outgoing + width * send_start[q], (int)sent, kind<T>::number(), (int)with.ranks[q], 7, communicator,
              requests + count++);
  }
  if (count) finish(count, requests, "exchange");
  std::free(requests);
}
template <class T> inline void sums_of(const T *mine, T *all, long count) {
  if (all_ranks == 1) {
    for (long i = 0; i < count; ++i) all[i] = mine[i];
    return;
  }
  MPI_Request request;
  MPI_Iallreduce(mine, all, (int)count, kind<T>::number(), MPI_SUM, communicator, &request);
  finish(1, &request, "allreduce_sum");
}
// The least value, and the rank that has it.
template <class T> struct Least {
  T value;
  int rank;
};
template <class T> inline Least<T> least_of(T mine) {
  Least<T> here{mine, this_rank}, all{mine, this_rank};
  if (all_ranks == 1) return all;
  MPI_Request request;
  MPI_Iallreduce(&here, &all, 1, kind<T>::ranked(), MPI_MINLOC, communicator, &request);
  finish(1, &request, "allreduce_min");
  return all;
}
#else
constexpr int this_rank = 0, all_ranks = 1;
template <class T>
inline void carry(const Exchange &with, const T *outgoing, const long *send_start, T *incoming,
                  const long *receive_start) {
  for (long q = 0; q < with.neighbours; ++q)
    std::memcpy(incoming + with.width * receive_start[q], outgoing + with.width * send_start[q],
                sizeof(T) * with.width * (receive_start[q + 1] - receive_start[q]));
}
template <class T> inline void sums_of(const T *mine, T *all, long count) {
  for (long i = 0; i < count; ++i) all[i] = mine[i];
}
template <class T> struct Least {
  T value;
  int rank;
};
template <class T> inline Least<T> least_of(T mine) { return {mine, 0}; }
#endif

enum Arrival { STORE, ADD };

// Sends values at `send` to all neighbours at once, and stores or adds what they send at `receive`.
template <class T>
inline void swap_values(T *values, const Exchange &with, const long *send_start, const long *send,
                        const long *receive_start, const long *receive, Arrival arrival, bool clear_sent) {
  const long p = with.neighbours, width = with.width;
  if (p == 0) return;
  const long out = send_start[p], in = receive_start[p];
  T *outgoing = (T *)std::malloc(sizeof(T) * (width * (out + in) + 1)), *incoming = outgoing + width * out;
  for (long i = 0; i < out; ++i)
    for (long k = 0; k < width; ++k) outgoing[width * i + k] = values[width * send[i] + k];
  carry(with, outgoing, send_start, incoming, receive_start);
  if (clear_sent)
    for (long i = 0; i < out; ++i)
      for (long k = 0; k < width; ++k) values[width * send[i] + k] = 0;
  for (long i = 0; i < in; ++i)
    for (long k = 0; k < width; ++k) {
      T &place = values[width * receive[i] + k];
      place = incoming[width * i + k] + (arrival == ADD ? place : 0);
    }
  std::free(outgoing);
}

template <class T> inline void forwards(T *values, const Exchange &with) {
  swap_values(values, with, with.send_start, with.send, with.receive_start, with.receive, STORE, false);
}
template <class T> inline void backwards(T *values, const Exchange &with) {
  swap_values(values, with, with.receive_start, with.receive, with.send_start, with.send, ADD, true);
}
template <class T> inline void sums(T *values, const Exchange &with) {
  swap_values(values, with, with.send_start, with.send, with.receive_start, with.receive, ADD, false);
}
template <class T> inline T sum_of(T mine) {
  T all = 0;
  sums_of(&mine, &all, 1);
  return all;
}
// What a reverse pass must know of an array, since the variable that held it may hold another by then.
inline void *kept(long number) {
  long *const place = (long *)std::malloc(sizeof(long));
  *place = number;
  return place;
}
inline long taken(void *tape) {
  const long number = *(long *)tape;
  std::free(tape);
  return number;
}

// Registered with Enzyme, for one type of numbers: what each is, forwards with what backwards needs, backwards; and in
// forward mode. What is constant comes as its own shadow, which is not to be written, and whose numbers are no gradients.
#define D500_MESSAGES(T, KIND)                                                                                           \
  __attribute__((noinline)) inline void exchange_##KIND(T *values, const Exchange *with) { forwards(values, *with); }    \
  inline void *exchange_##KIND##_augmented(T *values, T *, const Exchange *with, const Exchange *) {                     \
    forwards(values, *with);                                                                                             \
    return nullptr;                                                                                                      \
  }                                                                                                                      \
  inline void exchange_##KIND##_reverse(T *values, T *dvalues, const Exchange *with, const Exchange *, void *) {         \
    if (dvalues != values) backwards(dvalues, *with);                                                                    \
  }                                                                                                                      \
  inline void exchange_##KIND##_forward(T *values, T *dvalues, const Exchange *with, const Exchange *) {                 \
    forwards(values, *with);                                                                                             \
    forwards(dvalues, *with);                                                                                            \
  }                                                                                                                      \
  __attribute__((noinline)) inline void shared_##KIND(T *values, const Exchange *with) { sums(values, *with); }          \
  inline void *shared_##KIND##_augmented(T *values, T *, const Exchange *with, const Exchange *) {                       \
    sums(values, *with);                                                                                                 \
    return nullptr;                                                                                                      \
  }                                                                                                                      \
  inline void shared_##KIND##_reverse(T *values, T *dvalues, const Exchange *with, const Exchange *, void *) {           \
    if (dvalues != values) sums(dvalues, *with);                                                                         \
  }                                                                                                                      \
  inline void shared_##KIND##_forward(T *values, T *dvalues, const Exchange *with, const Exchange *) {                   \
    sums(values, *with);                                                                                                 \
    sums(dvalues, *with);                                                                                                \
  }                                                                                                                      \
  __attribute__((noinline)) inline void sum_##KIND(const T *mine, T *all) { *all = sum_of(*mine); }                      \
  inline void *sum_##KIND##_augmented(const T *mine, T *, T *all, T *) {                                                 \
    *all = sum_of(*mine);                                                                                                \
    return nullptr;                                                                                                      \
  }                                                                                                                      \
  inline void sum_##KIND##_reverse(const T *mine, T *dmine, T *all, T *dall, void *) {                                   \
    if (dall == all) return;                                                                                             \
    const T sum = sum_of(*dall);                                                                                         \
    if (dmine != mine) *dmine += sum;                                                                                    \
    *dall = 0;                                                                                                           \
  }                                                                                                                      \
  inline void sum_##KIND##_forward(const T *mine, T *dmine, T *all, T *dall) {                                           \
    *all = sum_of(*mine);                                                                                                \
    *dall = sum_of(*dmine);                                                                                              \
  }                                                                                                                      \
  __attribute__((noinline)) inline void array_##KIND(const T *mine, T *all, const long *count) {                         \
    sums_of(mine, all, *count);                                                                                          \
  }                                                                                                                      \
  inline void *array_##KIND##_augmented(const T *mine, T *, T *all, T *, const long *count, const long *) {              \
    sums_of(mine, all, *count);                                                                                          \
    return kept(*count);                                                                                                 \
  }                                                                                                                      \
  inline void array_##KIND##_reverse(const T *mine, T *dmine, T *all, T *dall, const long *, const long *, void *tape) { \
    const long count = taken(tape);                                                                                      \
    if (dall == all) return;                                                                                             \
    T *const total = (T *)std::malloc(sizeof(T) * (count + 1));                                                          \
    sums_of<T>(dall, total, count);                                                                                      \
    for (long i = 0; i < count; ++i) dall[i] = 0;                                                                        \
    for (long i = 0; dmine != mine && i < count; ++i) dmine[i] += total[i];                                              \
    std::free(total);                                                                                                    \
  }                                                                                                                      \
  inline void array_##KIND##_forward(const T *mine, T *dmine, T *all, T *dall, const long *count, const long *) {        \
    sums_of(mine, all, *count);                                                                                          \
    sums_of<T>(dmine, dall, *count);                                                                                     \
  }                                                                                                                      \
  __attribute__((noinline)) inline void least_##KIND(const T *mine, T *all) { *all = least_of(*mine).value; }            \
  inline void *least_##KIND##_augmented(const T *mine, T *, T *all, T *) {                                               \
    const Least<T> least = least_of(*mine);                                                                              \
    *all = least.value;                                                                                                  \
    return kept(least.rank == this_rank);                                                                                \
  }                                                                                                                      \
  inline void least_##KIND##_reverse(const T *mine, T *dmine, T *all, T *dall, void *tape) {                             \
    const bool is_mine = taken(tape);                                                                                    \
    if (dall == all) return;                                                                                             \
    const T sum = sum_of(*dall);                                                                                         \
    if (is_mine && dmine != mine) *dmine += sum;                                                                         \
    *dall = 0;                                                                                                           \
  }                                                                                                                      \
  inline void least_##KIND##_forward(const T *mine, T *dmine, T *all, T *dall) {                                         \
    const Least<T> least = least_of(*mine);                                                                              \
    *all = least.value;                                                                                                  \
    *dall = sum_of<T>(least.rank == this_rank ? *dmine : 0);                                                             \
  }
D500_MESSAGES(double, double)
D500_MESSAGES(float, float)
}  // namespace messages

inline int rank() { return messages::this_rank; }
inline int ranks() { return messages::all_ranks; }

/// What an Exchange points to; to be kept as long as it is used, as a member of an operator for instance.
class Neighbours {
  std::vector<long> ranks, send_start{0}, send, receive_start{0}, receive;

 public:
  /// One more neighbour: places that are sent to it, and places that what it sends goes to, each in the other's order.
  void add(long rank, const std::vector<long> &sent, const std::vector<long> &received) {
#ifdef __cpp_exceptions
    if (rank < 0 || rank >= d5::ranks())
      throw std::invalid_argument("got neighbour " + std::to_string(rank) + " of " + std::to_string(d5::ranks()) +
                                  " ranks; expected one of them");
#endif
    ranks.push_back(rank);
    send.insert(send.end(), sent.begin(), sent.end());
    receive.insert(receive.end(), received.begin(), received.end());
    send_start.push_back(static_cast<long>(send.size()));
    receive_start.push_back(static_cast<long>(receive.size()));
  }
  Exchange links(long width = 1) const {
    return {static_cast<long>(ranks.size()), width,    ranks.data(),         send_start.data(),
            send.data(),                     receive_start.data(), receive.data()};
  }
};

#define D500_CALLS(T, KIND)                                                                          \
  inline void exchange(T *values, const Exchange *with) { messages::exchange_##KIND(values, with); } \
  inline void sum_shared(T *values, const Exchange *with) { messages::shared_##KIND(values, with); } \
  inline void allreduce_sum(const T *mine, T *all) { messages::sum_##KIND(mine, all); }              \
  inline void allreduce_sum(const T *mine, T *all, std::size_t count) {                              \
    const long length = static_cast<long>(count);                                                    \
    messages::array_##KIND(mine, all, &length);                                                      \
  }                                                                                                  \
  inline void allreduce_min(const T *mine, T *all) { messages::least_##KIND(mine, all); }
D500_CALLS(double, double)
D500_CALLS(float, float)

}  // namespace d5

#if defined(D500_DERIVED) || defined(D500_RULES_OF_MESSAGES)
// Without `used` they would vanish before Enzyme looks.
#define D500_RULE(NAME)                                                                                          \
  __attribute__((used)) static void *__enzyme_register_gradient_##NAME[] = {                                     \
      (void *)d5::messages::NAME, (void *)d5::messages::NAME##_augmented, (void *)d5::messages::NAME##_reverse}; \
  __attribute__((used)) static void *__enzyme_register_derivative_##NAME[] = {(void *)d5::messages::NAME,        \
                                                                              (void *)d5::messages::NAME##_forward};
#define D500_RULES(KIND) \
  D500_RULE(exchange_##KIND) D500_RULE(shared_##KIND) D500_RULE(sum_##KIND) D500_RULE(array_##KIND) D500_RULE(least_##KIND)
D500_RULES(double)
D500_RULES(float)
#endif

#ifdef D500_MPI
/// The ranks: `handle` points to an MPI_Comm. `seconds`: how long a rank may be waited for.
extern "C" __attribute__((visibility("default"), used)) inline void d500_communicate(const void *handle, double seconds) {
  d5::messages::communicator = *(const MPI_Comm *)handle;
  d5::messages::patience = seconds;
  MPI_Comm_rank(d5::messages::communicator, &d5::messages::this_rank);
  MPI_Comm_size(d5::messages::communicator, &d5::messages::all_ranks);
}
#endif
