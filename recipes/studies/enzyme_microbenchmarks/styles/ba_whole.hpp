// BA, another style: the sum of squares is differentiated as a whole.
#pragma once
#include "../ba.hpp"

namespace micro {

inline double ba_whole(const double *x, const double *c, const std::int64_t *n) { return ba(x, c, n); }

}  // namespace micro
