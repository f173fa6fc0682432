// Data movement within a process whose derivative is data movement too: each is the other's transpose, so that a
// gradient neither races nor needs atomic updates where many read one place.
//
// Enzyme is told so by __enzyme_register_gradient_* (reverse mode) and __enzyme_register_derivative_* (forward mode).
#pragma once
#include "loops.hpp"

namespace d5 {

// Which of `sources` places each of `targets` places reads, `width` numbers at a time; and for every source, who reads.
struct Links {
  long sources, targets, width, blocks;
  const long *source_of, *start, *readers;
};

// target[i] = source[source_of[i]]
inline void copy_out(const double *source, double *target, const Links &links) {
  const long n = links.targets, blocks = links.blocks, width = links.width;
  const long *of = links.source_of;
  D5_LOOP(b, blocks, (source, target, of, n, blocks, width), {
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i)
      for (long k = 0; k < width; ++k) target[width * i + k] = source[width * of[i] + k];
  })
}
// target[i] += source[source_of[i]]
inline void add_out(const double *source, double *target, const Links &links) {
  const long n = links.targets, blocks = links.blocks, width = links.width;
  const long *of = links.source_of;
  D5_LOOP(b, blocks, (source, target, of, n, blocks, width), {
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i)
      for (long k = 0; k < width; ++k) target[width * i + k] += source[width * of[i] + k];
  })
}
// source[j] = the sum of its readers (keep: added to what is there)
inline void sum_in(const double *target, double *source, const Links &links, double keep) {
  const long n = links.sources, blocks = links.blocks, width = links.width;
  const long *start = links.start, *readers = links.readers;
  D5_LOOP(b, blocks, (source, target, start, readers, n, blocks, width, keep), {
    for (long j = begin(n, b, blocks); j < begin(n, b + 1, blocks); ++j)
      for (long k = 0; k < width; ++k) {
        double sum = 0;
        for (long r = start[j]; r < start[j + 1]; ++r) sum += target[width * readers[r] + k];
        source[width * j + k] = sum + (keep != 0 ? source[width * j + k] : 0);
      }
  })
}
inline void clear(double *values, long n, long blocks) {
  D5_LOOP(b, blocks, (values, n, blocks), {
    for (long i = begin(n, b, blocks); i < begin(n, b + 1, blocks); ++i) values[i] = 0;
  })
}

// Every reader gets a copy of its source.
__attribute__((noinline)) void gather(const double *source, double *target, const Links *links) {
  copy_out(source, target, *links);
}
// Every source gets the sum of its readers.
__attribute__((noinline)) void collect(const double *target, double *source, const Links *links) {
  sum_in(target, source, *links, 0);
}

inline void *gather_augmented(const double *source, double *, double *target, double *, const Links *links, Links *) {
  copy_out(source, target, *links);
  return nullptr;
}
inline void gather_reverse(const double *, double *dsource, double *, double *dtarget, const Links *links, Links *,
                           void *) {
  sum_in(dtarget, dsource, *links, 1);
  clear(dtarget, links->targets * links->width, links->blocks);
}
inline void gather_forward(const double *source, double *dsource, double *target, double *dtarget, const Links *links,
                           Links *) {
  copy_out(source, target, *links);
  copy_out(dsource, dtarget, *links);
}
inline void *collect_augmented(const double *target, double *, double *source, double *, const Links *links, Links *) {
  sum_in(target, source, *links, 0);
  return nullptr;
}
inline void collect_reverse(const double *, double *dtarget, double *, double *dsource, const Links *links, Links *,
                            void *) {
  add_out(dsource, dtarget, *links);
  clear(dsource, links->sources * links->width, links->blocks);
}
inline void collect_forward(const double *target, double *dtarget, double *source, double *dsource, const Links *links,
                            Links *) {
  sum_in(target, source, *links, 0);
  sum_in(dtarget, dsource, *links, 0);
}

}  // namespace d5

#define D5_RULES(name) \
  __attribute__((used)) void *__enzyme_register_gradient_##name[] = {(void *)d5::name, (void *)d5::name##_augmented, \
                                               (void *)d5::name##_reverse}; \
  __attribute__((used)) void *__enzyme_register_derivative_##name[] = {(void *)d5::name, (void *)d5::name##_forward};
D5_RULES(gather)
D5_RULES(collect)
