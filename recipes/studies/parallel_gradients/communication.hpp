// Communication of ranks with derivatives: what is sent forwards comes back as gradients, along the same links.
//
// exchange: places of this rank are copied into places of its neighbours. Gradients of the copies go back and are added.
// sum_shared: a place that several ranks hold gets the sum over all of them, on all of them: its own transpose.
// allreduce_sum, allreduce_min: one number. The gradient of a minimum belongs to the lowest rank that has it.
//
// Without D5_MPI there is one rank, and nothing to do.
#pragma once
#include "movement.hpp"
#ifdef D5_MPI
#include <mpi.h>
#include <cstdlib>
#endif

namespace d5 {

// With every neighbour: which places are sent to it, and where what it sends goes.
struct Exchange {
  long neighbours, width;
  const long *ranks, *send_start, *send, *receive_start, *receive;
};

#ifdef D5_MPI
enum Arrival { STORE, ADD };

// Sends values at `send` to all neighbours at once, and stores or adds what they send at `receive`.
inline void swap_values(double *values, const Exchange &with, const long *send_start, const long *send,
                        const long *receive_start, const long *receive, Arrival arrival, bool clear_sent) {
  const long p = with.neighbours, width = with.width, out = send_start[p], in = receive_start[p];
  double *outgoing = (double *)std::malloc(sizeof(double) * (width * (out + in) + 1)), *incoming = outgoing + width * out;
  MPI_Request *requests = (MPI_Request *)std::malloc(sizeof(MPI_Request) * (2 * p + 1));
  for (long q = 0; q < p; ++q)
    MPI_Irecv(incoming + width * receive_start[q], (int)(width * (receive_start[q + 1] - receive_start[q])), MPI_DOUBLE,
              (int)with.ranks[q], 7, MPI_COMM_WORLD, requests + q);
  for (long i = 0; i < out; ++i)
    for (long k = 0; k < width; ++k) outgoing[width * i + k] = values[width * send[i] + k];
  for (long q = 0; q < p; ++q)
    MPI_Isend(outgoing + width * send_start[q], (int)(width * (send_start[q + 1] - send_start[q])), MPI_DOUBLE,
              (int)with.ranks[q], 7, MPI_COMM_WORLD, requests + p + q);
  MPI_Waitall((int)(2 * p), requests, MPI_STATUSES_IGNORE);
  if (clear_sent)
    for (long i = 0; i < out; ++i)
      for (long k = 0; k < width; ++k) values[width * send[i] + k] = 0;
  for (long i = 0; i < in; ++i)
    for (long k = 0; k < width; ++k) {
      double &place = values[width * receive[i] + k];
      place = incoming[width * i + k] + (arrival == ADD ? place : 0);
    }
  std::free(requests);
  std::free(outgoing);
}
inline void forwards(double *values, const Exchange &with) {
  swap_values(values, with, with.send_start, with.send, with.receive_start, with.receive, STORE, false);
}
inline void backwards(double *values, const Exchange &with) {
  swap_values(values, with, with.receive_start, with.receive, with.send_start, with.send, ADD, true);
}
inline void sums(double *values, const Exchange &with) {
  swap_values(values, with, with.send_start, with.send, with.receive_start, with.receive, ADD, false);
}

__attribute__((noinline)) void exchange(double *values, const Exchange *with) { forwards(values, *with); }
inline void *exchange_augmented(double *values, double *, const Exchange *with, Exchange *) {
  forwards(values, *with);
  return nullptr;
}
inline void exchange_reverse(double *, double *dvalues, const Exchange *with, Exchange *, void *) {
  backwards(dvalues, *with);
}
inline void exchange_forward(double *values, double *dvalues, const Exchange *with, Exchange *) {
  forwards(values, *with);
  forwards(dvalues, *with);
}

__attribute__((noinline)) void sum_shared(double *values, const Exchange *with) { sums(values, *with); }
inline void *sum_shared_augmented(double *values, double *, const Exchange *with, Exchange *) {
  sums(values, *with);
  return nullptr;
}
inline void sum_shared_reverse(double *, double *dvalues, const Exchange *with, Exchange *, void *) {
  sums(dvalues, *with);
}
inline void sum_shared_forward(double *values, double *dvalues, const Exchange *with, Exchange *) {
  sums(values, *with);
  sums(dvalues, *with);
}

inline double sum_of(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}
// The least value, and the rank that has it.
struct Least {
  double value;
  int rank;
};
inline Least least_of(double mine) {
  Least here{mine, 0}, all{0, 0};
  MPI_Comm_rank(MPI_COMM_WORLD, &here.rank);
  MPI_Allreduce(&here, &all, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  return all;
}
inline int this_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

__attribute__((noinline)) void allreduce_sum(const double *mine, double *all) { *all = sum_of(*mine); }
inline void *allreduce_sum_augmented(const double *mine, double *, double *all, double *) {
  *all = sum_of(*mine);
  return nullptr;
}
inline void allreduce_sum_reverse(const double *, double *dmine, double *, double *dall, void *) {
  *dmine += sum_of(*dall);
  *dall = 0;
}
inline void allreduce_sum_forward(const double *mine, double *dmine, double *all, double *dall) {
  *all = sum_of(*mine);
  *dall = sum_of(*dmine);
}

__attribute__((noinline)) void allreduce_min(const double *mine, double *all) { *all = least_of(*mine).value; }
inline void *allreduce_min_augmented(const double *mine, double *, double *all, double *) {
  const Least least = least_of(*mine);
  *all = least.value;
  long *is_mine = (long *)std::malloc(sizeof(long));
  *is_mine = least.rank == this_rank();
  return is_mine;
}
inline void allreduce_min_reverse(const double *, double *dmine, double *, double *dall, void *tape) {
  const double sum = sum_of(*dall);
  *dmine += *(long *)tape ? sum : 0;
  *dall = 0;
  std::free(tape);
}
inline void allreduce_min_forward(const double *mine, double *dmine, double *all, double *dall) {
  const Least least = least_of(*mine);
  *all = least.value;
  *dall = sum_of(least.rank == this_rank() ? *dmine : 0);
}
#else
inline void exchange(double *, const Exchange *) {}
inline void sum_shared(double *, const Exchange *) {}
inline void allreduce_sum(const double *mine, double *all) { *all = *mine; }
inline void allreduce_min(const double *mine, double *all) { *all = *mine; }
#endif

}  // namespace d5

#ifdef D5_MPI
D5_RULES(exchange)
D5_RULES(sum_shared)
D5_RULES(allreduce_sum)
D5_RULES(allreduce_min)
#endif
