// Kinds of C++ blocks that generated operators are put together from: each reads n numbers a and writes n numbers o, in any
// type T that has arithmetic. Ways of a kind begin with //way; what stands before the program, and members, have sections
// of their own. EACH is the loop over i; @e(u, v) is an expression of u and v, @c a number, @leaf an element, @at one's
// number, @whole(u, 4) a whole number from 0 to 3 that hangs on u, @n(2, 5) one of 2 to 5, @m the kind's own, @pick(u | v)
// either, @_ begins a name, @more what else threads get.
//// nested loops
//way
EACH { T s = @c; for (std::size_t j = 0; j < @pick(n | i + 1 | @n(2, 6)); ++j) {
  @pick( | if (j == i) continue; | if (j > 7) break;) s += @e(a[j % n], @leaf) / T(j + 1); } o[i] = s; }
//way
EACH { T s = @c; for (std::size_t j = 0; j < @pick(n | i + 1 | @n(2, 6)); ++j) {
  for (int q = 0; q < @n(2, 3); ++q) { s = @e(s, a[j % n]) / T(q + 2); } s += @leaf; } o[i] = s; }
//// tiles [m = 2 .. 5]
//way
for (std::size_t b = 0; b < n; b += @m) { T s = 0;
  for (std::size_t i = b; i < std::min(b + @m, n); ++i) s += @e(a[i]);
  for (std::size_t i = b; i < std::min(b + @m, n); ++i) o[i] = @e(s, @leaf); }
//// while to an end in the data
//way
EACH { T v = @e(@leaf); int m = 0; while (std::abs(v) > T(.3) && m++ < 40) v *= @pick(T(.5) | T(.8));
  o[i] = @e(v, a[i]); }
//way
EACH { T r = 1, t = a[i]; for (int m = 0; m < 30; ++m) { const T f = r * r * r + r - t; r -= f / (3 * r * r + 1);
  if (std::abs(f) < T(1e-5)) break; } o[i] = r; }
//way
EACH { T v = a[i]; std::size_t m = i; do { v = @e(v, a[m % n]); m = m * 2 + 1; } while (v < @c && m < 50); o[i] = v; }
//// early exits
//before
template <class T> T @_first(const T *a, std::size_t n, T level) {
  for (std::size_t j = 0; j < n; ++j) {
    if (a[j] > level) return @e(a[j], level);
    if (j > @n(2, 9)) break;
  }
  return @e(level);
}
//way
EACH o[i] = @_first(a + i, n - i, @leaf) + a[i];
//way
EACH { T s = a[i]; for (std::size_t j = i; j < n; ++j) { if (a[j] < s) continue; s = @e(s, a[j]);
  if (j > i + @n(1, 4)) goto @_done; } s = s * @c; @_done: o[i] = s; }
//way
EACH o[i] = a[i]; EACH { if (a[i] > @c) break; o[i] = @e(a[i], @leaf); }
//// adaptive steps
//way
EACH { T u = a[i], t = 0, h = T(.4); int m = 0; while (t < T(1) && m++ < 60) {
  if (t + h > T(1)) h = T(1) - t; const T p = @e(u, @leaf); const T whole = u + h * p;
  const T half = u + h / 2 * p; const T v = half; const T two = half + h / 2 * (@e(v, p));
  const T error = std::abs(two - whole); if (error < T(.05) || h < T(.02)) { t += h; u = two; h *= T(1.3); }
  else h /= 2; } o[i] = u; }
//// odd control flow
//way
std::size_t i = 0; @_again: o[i] = @e(a[i], a[(i + 1) % n]); if (++i < n) goto @_again;
//way
std::size_t i = n; while (i-- > 0) o[i] = i + 1 < n ? @e(o[i + 1], a[i]) / 2 : @e(a[i]);
//way
for (std::size_t i = 0, j = n; i < n; ++i) --j, o[i] = @e(a[i], a[j]);
//way
for (long i = long(n) - 1; i >= 0; --i) { T v = a[i]; if (!(v > @c) && i % 2) { o[i] = v; continue; }
  o[i] = @e(v); }
//// prefix scan
//way
T s = 0; EACH { s += @e(a[i]); o[i] = @e(s); }
//way
T s = @c; EACH { const T before = s; s = @e(s, a[i]) / 2; o[i] = before; }
//way
EACH o[i] = a[i]; for (std::size_t w_ = 1; w_ < n; w_ *= 2) { std::vector<T> t(o, o + n);
  for (std::size_t i = w_; i < n; ++i) o[i] = t[i] + t[i - w_]; } EACH o[i] = @e(o[i]);
//way
o[0] = a[0]; for (std::size_t i = 1; i < n; ++i) o[i] = i % @n(2, 5) ? @e(o[i - 1], a[i]) / 2 : a[i];
//way
T p = 1; for (std::size_t i = n; i-- > 0;) { p *= std::tanh(a[i]); o[i] = p + @e(a[i]); }
//// recurrence [m = 2 .. 4]
//way
T h[@m] = {}, c[@m] = {}; EACH { for (int q = 0; q < @m; ++q) { const T g = d5::sigmoid(a[i] + h[q]);
  c[q] = g * c[q] + (T(1) - g) * @e(h[(q + 1) % @m], a[i]); }
  for (int q = 0; q < @m; ++q) h[q] = std::tanh(c[q]) * T(.9); o[i] = h[(@m - 1)] + h[0] * a[i]; }
//// stencil [m = 1 .. 4]
//way
std::vector<T> u(a, a + n), v(n);
for (int t = 0; t < @m; ++t) {
  EACH v[i] = u[i] + @c * (u[(i + 1) % n] - 2 * u[i] + u[(i + n - 1) % n]) / 4;
  EACH u[i] = @e(v[i]); } EACH o[i] = u[i];
//way
std::vector<T> u[2] = {std::vector<T>(a, a + n), std::vector<T>(n)};
  for (int t = 0; t < @m; ++t) EACH {
  const std::vector<T> &p = u[t % 2];
  u[1 - t % 2][i] = p[i] + @c * (p[(i + 1) % n] - 2 * p[i] + p[(i + n - 1) % n]) / 4; }
  EACH o[i] = u[@m % 2][i];
//way
EACH o[i] = a[i];
  for (int t = 0; t < @m; ++t) for (std::size_t i = 1; i + 1 < n; ++i)
  o[i] = (o[i - 1] + o[i] + o[i + 1]) / 3 + @c * @e(o[i], a[i]) / 4;
//// window [m = 2 .. 5]
//way
T f[@m]; for (int q = 0; q < @m; ++q) f[q] = @pick(T(1) / T(q + 2) | a[std::size_t(q) % n]); EACH { T s = 0;
  for (int q = 0; q < @m; ++q) { long j = long(i) + q - @m / 2;
  @pick(if (j < 0 || j >= long(n)) continue; | j = (j % long(n) + long(n)) % long(n);) s += f[q] * @e(a[j]);
  } o[i] = @e(s); }
//// butterflies
//way
std::size_t m = 1; while (m * 2 <= n) m *= 2; std::vector<T> re(a, a + m), im(m);
  for (std::size_t i = 0, j = 0; i < m; ++i) { if (i < j) std::swap(re[i], re[j]); std::size_t b = m >> 1;
  for (; b && (j & b); b >>= 1) j ^= b; j ^= b; }
  for (std::size_t half = 1; half < m; half *= 2) 
  for (std::size_t s = 0; s < m; s += 2 * half) for (std::size_t q = 0; q < half; ++q) {
  const double angle = -3.14159265358979 * double(q) / double(half);
  const T c = T(std::cos(angle)), z = T(std::sin(angle)); const std::size_t p = s + q, r = p + half;
  const T x_ = c * re[r] - z * im[r], y_ = c * im[r] + z * re[r];
  re[r] = @pick(T(.5) | T(.7071)) * (re[p] - x_); im[r] = @pick(T(.5) | T(.7071)) * (im[p] - y_);
  re[p] = @pick(T(.5) | T(.7071)) * (re[p] + x_); im[p] = @pick(T(.5) | T(.7071)) * (im[p] + y_); }
  EACH o[i] = i < m ? @e(re[i], im[i]) : a[i];
//// pairs
//way
std::vector<T> f(n, T(0));
EACH for (std::size_t j = 0; j < n; ++j) { if (i == j) continue; const T r = a[i] - a[j];
  f[i] += r / (r * r + @c) * @e(r) / T(n); } EACH o[i] = @e(f[i], a[i]);
//way
std::vector<T> f(n, T(0));
EACH for (std::size_t j = i + 1; j < n; ++j) { const T r = a[i] - a[j], p = r / (r * r + @c) * @e(r) / T(n);
  f[i] += p; f[j] -= p; } EACH o[i] = @e(f[i], a[i]);
//// table of partial results [m = 3 .. 6]
//way
const std::size_t m = @m; std::vector<T> t((n + 1) * m, T(1)); t[0] = 0;
for (std::size_t i = 1; i <= n; ++i) for (std::size_t j = 1; j < m; ++j) { const T c = a[i - 1] - @c * T(j);
  const T u = t[(i - 1) * m + j], v = t[i * m + j - 1], w_ = t[(i - 1) * m + j - 1];
  t[i * m + j] = (c * c + @pick(std::min(u, std::min(v, w_)) | std::max(u, v) | (u + v * w_) / 2)) / 2; }
EACH o[i] = @e(t[(i + 1) * m + m - 1], a[i]);
//// aliasing pointers [m = 1 .. 3]
//way
EACH o[i] = a[i]; T *p = o, *q = o + @m; for (std::size_t i = 0; i + @m < n; ++i) q[i] = @e(p[i], q[i]) / 2;
//way
EACH o[i] = @e(a[i]); T *p = o + n / 2, *q = o; for (std::size_t i = 0; i < n / 2; ++i) {
  p[i] += q[i] * a[i]; q[i] = p[i] - q[i]; }
//way
EACH o[i] = a[i]; EACH { T &r = o[i], &s = o[@at]; r = @e(r, s); s += r / 3; }
  EACH o[i] = @pick(std::tanh | std::sin)(o[i]);
//way
EACH o[i] = a[i]; for (T *p = o, *q = o + n - 1; p < q; ++p, --q) { *p = @e(*p, *q); *q -= *p / 2; }
//// pointers to pointers [m = 2 .. 4]
//way
std::vector<T> t(@m * n); T *rows[@m]; for (int r = 0; r < @m; ++r) { rows[r] = t.data() + r * n;
  EACH rows[r][i] = @e(a[i]) * T(r + 1); } EACH { T s = 0; for (T *row : rows) s += row[@at]; o[i] = s; }
//way
std::vector<const T *> p(n); EACH p[i] = a + (@at); EACH o[i] = @e(*p[i], a[i]);
//way
const T *best = a; EACH { if (a[i] > *best) best = a + i; o[i] = @e(*best, a[i]); }
//way
T *out = o; for (const T *p = a; p != a + n; ++p) *out++ = @e(*p, *a);
//// memory of one's own
//way
T *t = new T[n]; EACH t[i] = @e(a[i], @leaf); EACH o[i] = @e(t[@at], t[i]); delete[] t;
//way
std::unique_ptr<T[]> t(new T[n]); EACH t[i] = @e(a[i], @leaf); EACH o[i] = @e(t[@at], t[i]);
//way
auto t = std::make_unique<T[]>(n); EACH t[i] = @e(a[i], @leaf); EACH o[i] = @e(t[@at], t[i]);
//way
T *t = static_cast<T *>(std::malloc(n * sizeof(T))); EACH t[i] = @e(a[i], @leaf);
  EACH o[i] = @e(t[@at], t[i]); std::free(t);
//way
EACH { auto v = std::make_unique<T>(@e(a[i])); T *p = v.get(); *p = @e(*p, a[i]); o[i] = *v; }
//// swaps in place
//way
EACH o[i] = @e(a[i]);
@pick(for (std::size_t i = 0; i + 1 < n; i += 2) std::swap(o[i], o[i + 1]); | std::rotate(o, o + n / @n(2, 4), o + n);)
EACH o[i] = @e(o[i], a[i]);
//way
EACH o[i] = @e(a[i]);
for (std::size_t i = 0; i < n / 2; ++i) { const T t = o[i]; o[i] = o[n - 1 - i]; o[n - 1 - i] = t; }
EACH o[i] = @e(o[i], a[i]);
//way
EACH o[i] = @e(a[i]); std::reverse(o, o + n); EACH o[i] = @e(o[i], a[i]);
//way
EACH o[i] = a[i]; for (std::size_t i = 0; i + 1 < n; ++i) if (o[i] > o[i + 1]) std::swap(o[i], o[i + 1]);
EACH o[i] = @e(o[i], a[i]);
//// copies of ranges
//way
std::vector<T> t(n); std::copy(a, a + n, t.begin()); EACH o[i] = @e(t[i], a[i]);
//way
std::vector<T> t(a, a + n), u = t; EACH u[i] *= t[@at]; t = u; EACH o[i] = @e(t[i]);
//way
std::memcpy(o, a, n * sizeof(T)); EACH o[i] = @e(o[i]);
//way
std::fill(o, o + n, @e(a[0])); EACH o[i] += @e(a[i]);
//way
std::vector<T> t(n); std::copy_n(a + n / 2, n - n / 2, t.begin());
  std::copy_n(a, n / 2, t.begin() + (n - n / 2)); EACH o[i] = @e(t[i], a[i]);
//way
std::vector<T> t(a, a + n); auto u = std::move(t); EACH o[i] = @e(u[i], u[0]);
//// ring buffer [m = 2 .. 5]
//way
T r[@m] = {}; EACH { r[i % @m] = @e(a[i]); T s = 0; for (int q = 0; q < @m; ++q) s += r[q];
  o[i] = @e(s, a[i]); }
//way
std::vector<T> r(@m, @c); std::size_t head = 0; EACH { const T old = r[head]; r[head] = @e(a[i], old) / 2;
  head = (head + 1) % r.size(); o[i] = @e(old, r[head]); }
//way
std::array<T, @m> r{}; int p = 0; EACH { r[p] = a[i] + r[(p + 1) % @m] / 2; p = p + 1 == @m ? 0 : p + 1;
  o[i] = @e(r[p], r[0]); }
//// indices in an array
//way
std::vector<@pick(int | std::size_t | std::int64_t)> p(n);
  EACH p[i] = @pick(int | std::size_t | std::int64_t)(@at); EACH o[i] = @e(a[p[i]], a[i]);
//way
std::vector<@pick(int | std::size_t | std::int64_t)> p(n);
  EACH p[i] = @pick(int | std::size_t | std::int64_t)(@at); EACH o[i] = 0; EACH o[p[i]] += @e(a[i]);
  EACH o[i] = @e(o[i], a[i]);
//way
std::vector<@pick(int | std::size_t | std::int64_t)> p(n);
  EACH p[i] = @pick(int | std::size_t | std::int64_t)(@at); std::vector<T> t(n, T(1));
  EACH t[p[i]] *= std::tanh(a[i]); EACH o[i] = t[p[p[i]]] + a[i];
//way
std::vector<@pick(int | std::size_t | std::int64_t)> p;
  EACH if (a[i] > 0) p.push_back(@pick(int | std::size_t | std::int64_t)(i)); EACH o[i] = a[i];
  for (auto q : p) o[q] = @e(a[q]);
//way
T bins[4] = {}; EACH bins[@whole(a[i], 4)] += a[i]; EACH o[i] = @e(bins[i % 4], a[i]);
//// sparse rows [m = 1 .. 3]
//way
std::vector<std::size_t> first(n + 1), column; std::vector<T> value; EACH { first[i] = column.size();
  for (std::size_t j = 0; j <= i % (@m + 1); ++j) { column.push_back((i + j * 2) % n);
  value.push_back(@e(a[i]) + T(j)); } } first[n] = column.size(); EACH { T s = 0;
  for (std::size_t q = first[i]; q < first[i + 1]; ++q) s += value[q] * a[column[q]]; o[i] = @e(s); }
//// bits of indices
//way
EACH o[i] = @e(a[(i ^ (i >> 1)) % n], a[i]);
//way
EACH { std::size_t b = i, s = 0; while (b) { s += b & 1; b >>= 1; } o[i] = a[i] * T(s) + @e(a[s % n]); }
//way
EACH { unsigned r = 0; for (int b = 0; b < 4; ++b) r |= ((unsigned(i) >> b) & 1u) << (3 - b);
  o[i] = @e(a[r % n], a[i]); }
//way
EACH { const unsigned m = unsigned(a[i] > 0) | unsigned(a[(i + 1) % n] > @c) << 1;
  o[i] = m == 3 ? @e(a[i]) : m & 1 ? @e(a[i]) : T(m) * a[i]; }
//way
std::uint32_t s = @n(1, 999)u; EACH { s = s * 1664525u + 1013904223u;
  o[i] = @e(a[(s >> 16) % n], a[i]) + T(s >> 24) / 256; }
//// lambdas
//way
T s = @c; auto f = [&](T v) { s = @e(s, v) / 2; return s; }; EACH o[i] = f(a[i]);
//way
const T s = a[0]; auto f = [s](T u, T v) { return @e(s, u, v); }; EACH o[i] = f(a[i], @leaf);
//way
int m = 0; auto f = [m](T v) mutable { ++m; return m % 2 ? @e(v) : v * T(m); }; EACH o[i] = f(a[i]);
//way
auto f = [&](auto g, T v) { return g(v) + g(v / 2); }; EACH o[i] = f([&](T v) { return @e(v, a[0]); }, a[i]);
//way
EACH o[i] = [&] { T s = 0; for (std::size_t j = 0; j <= i; ++j) s += @e(a[j]); return s / T(i + 1); }();
//// recursion
//way
//before
template <class T> T @_tree(const T *a, std::size_t low, std::size_t high) {
  if (high - low < 2) return @e(a[low]);
  const std::size_t mid = (low + high) / 2;
  const T l = @_tree(a, low, mid), r = @_tree(a, mid, high);
  return @e(l, r);
}
//code
const T s = @_tree(a, 0, n); EACH o[i] = @e(s, a[i]);
//way
//before
template <class T> T @_down(T v, int depth) { return depth == 0 ? v : @_down<T>(@e(v), depth - 1) + v; }
//code
EACH o[i] = @_down<T>(a[i], int(i % @n(2, 6)));
//way
//before
template <class T> T @_odd(T v, int m);
template <class T> T @_even(T v, int m) { return m == 0 ? v : @_odd<T>(@e(v), m - 1); }
template <class T> T @_odd(T v, int m) { return m == 0 ? @e(v) : @_even<T>(v * @c, m - 1); }
//code
EACH o[i] = @_even<T>(a[i], int(i % 7));
//// templates and functors
//way
//before
template <int m> struct @_power { template <class T> static T of(T x) { return x * @_power<m - 1>::of(x); } };
template <> struct @_power<0> { template <class T> static T of(T) { return T(1); } };
//code
EACH o[i] = @_power<@n(2, 5)>::of(@e(a[i]));
//way
//before
template <class T> struct @_scaled { T by; T operator()(T v) const { return @e(v, by); } };
template <class F, class G> struct @_joined { F f; G g; template <class T> T operator()(T v) const {
  return f(g(v)); } };
template <class F, class G> @_joined<F, G> @_join(F f, G g) { return {f, g}; }
//code
auto f = @_join(@_scaled<T>{a[0]}, @_scaled<T>{@c}); EACH o[i] = f(a[i]);
//way
//before
template <class T, class Rule> void @_walk(const T *a, T *o, std::size_t n, Rule rule) {
  for (std::size_t i = 0; i < n; ++i) o[i] = rule(a[i], i ? o[i - 1] : a[0]);
}
//code
@_walk(a, o, n, [](T u, T v) { return @e(u, v) / 2; });
//// arguments by reference
//way
//before
template <class T> @pick( | __attribute__((noinline)) )void @_step(T &u, T &v, const T &w_) {
  const T t = @e(u, w_); u = @e(v, t); v = t; }
//code
T u = @c, v = a[0]; EACH { @_step(u, v, a[i]); o[i] = @e(u, v) / 2; u = std::tanh(u); v = std::sin(v); }
//way
//before
template <class T> @pick( | __attribute__((noinline)) )bool @_try(T v, T *result) { if (v < @c) return false;
  *result = @e(v); return true; }
//code
EACH { T r = @e(a[i]); if (@_try(a[i], &r)) r *= 2; o[i] = r; }
//way
//before
template <class T> @pick( | __attribute__((noinline)) )T &@_larger(T &u, T &v) { return u > v ? u : v; }
//code
EACH o[i] = a[i]; EACH { T &r = @_larger(o[i], o[@at]); r = @e(r, a[i]); } EACH o[i] = std::tanh(o[i]);
//// virtual calls
//before
template <class T> struct @_curve { virtual T at(T v) const = 0; virtual ~@_curve() {} };
template <class T> struct @_low : @_curve<T> { T c; explicit @_low(T c) : c(c) {} T at(T v) const override {
  return @e(v, c); } };
template <class T> struct @_high : @_curve<T> { T at(T v) const override { return @e(v); } };
//way
const @_low<T> low(a[0]); const @_high<T> high; EACH {
  const @_curve<T> &f = i % 2 ? static_cast<const @_curve<T> &>(low) : high; o[i] = f.at(a[i]); }
//way
std::vector<std::unique_ptr<@_curve<T>>> f; f.emplace_back(new @_low<T>(@c));
  f.emplace_back(new @_high<T>()); EACH o[i] = f[i % 2]->at(a[i]);
//way
EACH { @_curve<T> *f = nullptr; if (a[i] > @c) f = new @_low<T>(a[i]); else f = new @_high<T>();
  o[i] = f->at(a[i]); delete f; }
//// functions in variables
//way
std::function<T(T)> f = [](T v) { return @e(v); }; for (int q = 0; q < @n(1, 3); ++q) f = [f](T v) {
  return std::sin(f(v)) + v; }; EACH o[i] = f(a[i]);
//way
T s = @c; const std::function<void(T)> add = [&s](T v) { s = @e(s, v) / 2; }; EACH { add(a[i]); o[i] = s; }
//way
T (*f)(T) = [](T v) { return @e(v); }; T (*g)(T) = [](T v) { return v * @c; };
  EACH o[i] = (a[i] > 0 ? f : g)(a[i]);
//way
std::function<T(std::size_t)> f = [&](std::size_t m) -> T { return m == 0 ? a[0] : @e(f(m / 2), a[m]) / 2; };
  EACH o[i] = f(i);
//// methods and operators
//before
template <class T> struct @_pair {
  T u, v;
  @_pair operator+(const @_pair &b) const { return {u + b.u, v + b.v}; }
  @_pair operator*(const @_pair &b) const { return {u * b.u - v * b.v, u * b.v + v * b.u}; }
  T &operator[](int q) { return q ? v : u; }
  T size() const { return std::sqrt(u * u + v * v + @c); }
};
//way
@_pair<T> z{@c, T(0)}; EACH { z = z * @_pair<T>{T(.5), std::tanh(a[i])} + @_pair<T>{a[i], @c};
  o[i] = @e(z.size(), z.v); }
//way
EACH { @_pair<T> z{a[i], @leaf}; for (int q = 0; q < @n(1, 3); ++q) { z = z * z; z[q % 2] /= z.size(); }
  o[i] = @e(z[0], z[1]); }
//// structs
//before
template <class T> struct @_point {
  T u, v;
  int tag;
  @_point &operator+=(const @_point &p) { u += @e(p.u); v = @e(v, p.v) / 2; tag += p.tag; return *this; }
};
template <class T> @_point<T> @_made(T u, int tag) { return {u, u * @c, tag}; }
//way
std::vector<@_point<T>> p(n); EACH p[i] = {a[i], @e(a[i]), int(i)}; @_point<T> s{T(0), T(1), 0};
  for (const auto &q : p) s += q; EACH o[i] = @e(s.v, p[i].u, p[n - 1 - i].v);
//way
EACH { auto p = @_made<T>(a[i], int(i)); const auto q = @_made<T>(@leaf, 2); p += q;
  o[i] = @e(p.u, p.v) + T(p.tag % 3); }
//way
@_point<T> t[3] = {}; EACH { @_point<T> *p = &t[i % 3]; p->u = @e(p->u, a[i]) / 2; p->v += a[i];
  o[i] = @e(t[0].u, t[2].v); }
//// structs in structs
//before
template <class T> struct @_inner { T v[2]; int m; };
template <class T> struct @_base { T bias; };
template <class T> struct @_outer : @_base<T> { @_inner<T> p, q; std::vector<T> rest; };
//way
@_outer<T> t; t.bias = @e(a[0]); t.rest.assign(a, a + n); t.p.m = 1; t.q = {{@c, a[n - 1]}, 0}; t.p = t.q;
  EACH { t.p.v[i % 2] = @e(t.q.v[1], a[i]); if (t.p.m > t.q.m) t.q.v[0] = @e(t.rest[i]);
  o[i] = @e(t.bias, t.p.v[0], t.q.v[0]); }
//// vectors
//way
std::vector<T> v; v.reserve(n); EACH v.push_back(@e(a[i])); EACH o[i] = @e(v[@at], v.back());
//way
std::vector<T> v; EACH v.push_back(@e(a[i])); EACH o[i] = @e(v[i], v.front());
//way
std::vector<T> v; EACH { v.push_back(a[i]); if (v.size() > @n(2, 4)) v.erase(v.begin()); T s = 0;
  for (T u : v) s += u; o[i] = @e(s); }
//way
std::vector<T> v(a, a + n); while (v.size() > @n(2, 4)) { const T u = v.back(); v.pop_back();
  v[v.size() / 2] = @e(u, v[0]) / 2; } EACH o[i] = @e(v[i % v.size()], a[i]);
//way
std::vector<T> v(2 * n, @c); EACH v[2 * i] = a[i]; v.resize(3 * n, a[0]); EACH o[i] = @e(v[i], v[2 * n + i]);
//way
std::vector<T> v(a, a + n); v.insert(v.begin() + n / 2, @e(a[0])); EACH o[i] = @e(v[i], v[i + 1]);
//// vectors of vectors [m = 2 .. 4]
//before
template <class T> struct @_layer { std::vector<T> u, v; };
//way
std::vector<std::vector<T>> v(n, std::vector<T>(@m));
  EACH for (int q = 0; q < @m; ++q) v[i][q] = @e(a[i], @leaf) * T(q + 1); EACH { T s = 0;
  for (const T &u : v[@at]) s += u; o[i] = @e(s); }
//way
std::vector<std::array<T, @m>> v(n); EACH v[i].fill(@e(a[i])); EACH { v[i][1] += a[0];
  o[i] = @e(v[i][1], v[n - 1 - i][0]); }
//way
@_layer<T> l; l.u.assign(a, a + n); l.v.resize(n); EACH l.v[i] = @e(l.u[i], a[0]);
  EACH o[i] = @e(l.u[n - 1 - i], l.v[i]);
//// maps and sets [m = 2 .. 5]
//way
@pick(std::map | std::unordered_map)<int, T> m; EACH m[int(i * 7 % @m)] += @e(a[i]);
  EACH o[i] = @e(m[int(i * 7 % @m)], a[i]);
//way
std::set<int> m; EACH m.insert(@whole(a[i], 5)); T s = 0; for (int q : m) s += a[std::size_t(q) % n];
  EACH o[i] = @e(s, a[i]);
//way
std::map<std::string, T> m; const std::string odd = 'o' + std::string("dd");
  EACH m[i % 2 ? odd : "even"] += @e(a[i]); EACH o[i] = @e(m[odd], a[i]);
//way
@pick(std::map | std::unordered_map)<int, T> m; EACH { auto p = m.find(int(i % @m));
  if (p == m.end()) m.emplace(int(i % @m), a[i]); else p->second = @e(p->second, a[i]) / 2; }
  EACH o[i] = @e(m.at(int(i % @m)), a[i]);
//// queues and lists
//way
std::deque<T> q; EACH { q.push_back(@e(a[i])); if (q.size() > @n(2, 4)) q.pop_front(); T s = 0;
  for (T v : q) s += v; o[i] = s * a[i]; }
//way
std::list<T> q; EACH q.push_front(@e(a[i])); std::size_t i = 0; for (T v : q) { o[i] = @e(v, a[i]); ++i; }
//way
std::priority_queue<T> q; EACH q.push(a[i]); EACH { o[i] = @e(q.top()) * T(i % 3 + 1); q.pop(); }
//way
std::vector<T> q(a, a + n); std::make_heap(q.begin(), q.end()); EACH { std::pop_heap(q.begin(), q.end() - i);
  o[i] = @e(q[n - 1 - i], a[i]); }
//way
std::queue<std::size_t> q; q.push(0); EACH o[i] = a[i]; while (!q.empty()) { const std::size_t p = q.front();
  q.pop(); for (std::size_t c = 2 * p + 1; c <= 2 * p + 2 && c < n; ++c) { o[c] = @e(o[p], a[c]) / 2;
  q.push(c); } }
//// lists and trees of one's own
//way
//before
template <class T> struct @_node { T v; @_node *next; };
//code
@_node<T> *h = nullptr; EACH h = new @_node<T>{@e(a[i]), h}; std::size_t i = 0; while (h) {
  o[i] = @e(h->v, a[i]); ++i; @_node<T> *rest = h->next; delete h; h = rest; }
//way
//before
template <class T> struct @_leaf { T v; std::unique_ptr<@_leaf> l, r; };
template <class T> void @_put(std::unique_ptr<@_leaf<T>> &p, T v) {
  if (!p) p.reset(new @_leaf<T>{v, {}, {}}); else @_put<T>(v < p->v ? p->l : p->r, v);
}
template <class T> void @_walk(const std::unique_ptr<@_leaf<T>> &p, T &s) {
  if (p) { @_walk<T>(p->l, s); s = s * T(.5) + @e(p->v); @_walk<T>(p->r, s); }
}
//code
std::unique_ptr<@_leaf<T>> t; EACH @_put<T>(t, a[i]); T s = 1; @_walk<T>(t, s); EACH o[i] = @e(s, a[i]);
//// values of the library
//way
std::optional<T> v; EACH { if (a[i] > 0) v = @e(a[i]); else if (i % 3 == 0) v.reset();
  o[i] = v.value_or(@c) * a[i]; }
//way
EACH { std::optional<T> v; if (i % 2) v = @e(a[i]); o[i] = v ? *v * a[i] : a[i]; }
//way
EACH { auto t = std::make_tuple(@e(a[i]), int(i % 3), a[i]); auto [u, m, v] = t; o[i] = @e(u, v) + T(m); }
//way
auto f = [](T v) { return std::make_pair(@e(v), v * v); }; EACH { auto p = f(a[i]);
  o[i] = @e(p.first, p.second); }
//way
std::array<T, 4> v{}; EACH v[i % 4] += @e(a[i]); std::array<T, 4> u = v; EACH o[i] = @e(u[(i + 1) % 4], a[i]);
//way
std::variant<int, T> v; EACH { if (a[i] > 0) v = @e(a[i]); else v = int(i % 3);
  o[i] = std::holds_alternative<T>(v) ? std::get<T>(v) : T(std::get<int>(v)) * a[i]; }
//way
std::vector<bool> m(n); EACH m[i] = a[i] > @c; T s = 0; EACH if (m[i]) s += @e(a[i]); EACH o[i] = @e(s, a[i]);
//way
std::bitset<64> m; EACH m[i % 64] = a[i] > 0; EACH o[i] = m[i % 64] ? @e(a[i]) : a[i] * T(m.count() % 3);
//// texts
//before
inline std::size_t @_i(std::size_t n) { return n % 5 + 1; }
//way
const char *word = "abcab"; EACH o[i] = word[i % 5] == 'a' ? @e(a[i]) : word[i % 5] == 'b' ? a[i] * a[i] : a[i];
//way
const std::string way(@_i(n), 'x'); EACH o[i] = way[i % way.size()] == 'x' ? @e(a[i], a[0]) : a[i];
//// static tables
//before
static const double @_table[5] = {.3, -.8, 1.2, .1, @n(0, 9) / 4.};
constexpr int @_order[4] = {2, 0, 3, 1};
//way
EACH o[i] = @e(T(@_table[i % 5]), a[i]);
//way
static const double t[3] = {.3, .7, 1.1};
  EACH o[i] = T(t[i % 3]) * a[std::size_t(@_order[i % 4]) % n] + @e(a[i]);
//way
EACH { T s = 0; for (int q = 4; q >= 0; --q) s = s * std::tanh(a[i]) + T(@_table[q]); o[i] = s; }
//way
const T t[4] = {@c, @c, a[0], @c}; EACH { const int q = @whole(a[i], 3);
  o[i] = t[q] + (t[q + 1] - t[q]) * @e(a[i]); }
//// members that are read
//members
T @_scale[3] = {@c, @c, @c}; std::vector<T> @_bias = {@c, @c}; int @_way = @n(0, 1);
//way
EACH { const T v = a[i] * @_scale[i % 3] + @_bias[i % @_bias.size()]; o[i] = @_way ? @e(v) : @e(v, a[i]); }
//// switch
//way
EACH { T v = a[i]; switch (@pick(i % 4 | @whole(a[i], 4) | (i * i) % 4)) { case 0: v = @e(v); break;
  case 1: v += @e(v); @pick(break;  | )case 2: v = @e(v, @leaf); @pick(break; | ) default: v *= @c; }
  o[i] = v; }
//// ternaries
//way
EACH { const T u = a[i], v = @leaf; const bool b = u > v || (i & 1);
  T s = b ? u < 0 ? @e(u) : @e(u, v) : @e(v), t = @e(v); (u > @c ? s : t) = @e(u);
  o[i] = b && !(v > u) ? s : @e(t, s, u); }
//// casts
//way
EACH { const int q = @whole(a[i], 5); o[i] = T(q) * @e(a[i]) + a[std::size_t(q) % n]; }
//way
EACH { const T u = std::tanh(a[i]) * 4; const long q = static_cast<long>(std::floor(u));
  o[i] = (u - T(q)) * @e(u); }
//way
EACH o[i] = a[i] * T(static_cast<unsigned char>(i * 100)) / 256 + @e(a[i]) * T(static_cast<short>(i) % 3);
//way
EACH { const bool b = a[i] > @c; o[i] = T(b) * @e(a[i]) + T(!b) * a[i]; }
//way
std::size_t m = 0; EACH m += std::size_t(@whole(a[i], 3)); EACH o[i] = @e(a[m % n], a[i]) + T(m % 5);
//// extremes
//way
T m = a[0]; EACH m = std::max(m, a[i]); T s = 0; EACH s += std::exp(a[i] - m);
  EACH o[i] = std::exp(a[i] - m) / s;
//way
std::size_t best = 0; EACH if (a[i] < a[best]) best = i; EACH o[i] = @e(a[best], a[i]);
//way
T low = a[0], high = a[0]; EACH { if (a[i] < low) low = a[i]; if (a[i] > high) high = a[i]; }
  EACH o[i] = (a[i] - low) / (high - low + @c);
//way
const T *m = std::max_element(a, a + n); auto e = std::minmax_element(a, a + n);
  EACH o[i] = @e(*m, a[i]) + *e.first;
//way
T m = a[0]; EACH { m = std::min(m, @e(a[i])); o[i] = @e(m, a[i]); }
//way
EACH o[i] = std::clamp(@e(a[i]), T(-.6), T(.7)) * a[i];
//// sorts
//way
std::vector<T> t(a, a + n);
  std::sort(t.begin(), t.end()
  @pick( | , [](T u, T v) { return u > v; } | , [](const T &u, const T &v) { return u * u < v * v; }));
  EACH o[i] = @e(t[i]) * T(i % 3 + 1);
//way
std::vector<int> p(n); std::iota(p.begin(), p.end(), 0);
  std::sort(p.begin(), p.end(), [&](int u, int v) { return a[u] < a[v]; }); EACH o[i] = @e(a[p[i]], a[i]);
//way
std::vector<T> t(a, a + n); std::nth_element(t.begin(), t.begin() + n / 2, t.end());
  EACH o[i] = @e(t[n / 2], a[i]);
//way
std::vector<T> t(a, a + n); std::partial_sort(t.begin(), t.begin() + n / 2, t.end());
  EACH o[i] = i < n / 2 ? @e(t[i]) : a[i];
//way
std::vector<T> t(a, a + n); for (std::size_t i = 1; i < n; ++i) { const T v = t[i]; std::size_t j = i;
  for (; j > 0 && t[j - 1] > v; --j) t[j] = t[j - 1]; t[j] = v; } EACH o[i] = @e(t[i], a[i]);
//way
std::vector<std::pair<T, int>> t(n); EACH t[i] = {a[i], int(i)}; std::sort(t.begin(), t.end());
  EACH o[t[i].second] = @e(t[i].first) * T(i % 3 + 1);
//// searches
//way
std::vector<T> t(n); T s = 0; EACH { s += std::abs(a[i]) + @c; t[i] = s; } EACH {
  const std::size_t p = std::size_t(std::lower_bound(t.begin(), t.end(), s * T(i) / T(n)) - t.begin());
  o[i] = @e(t[p % n], a[i]) / (s + 1); }
//way
EACH { T low = -3, high = 3; for (int m = 0; m < @n(4, 20); ++m) { const T mid = (low + high) / 2;
  (mid * mid * mid + mid < a[i] ? low : high) = mid; } o[i] = low + @e(a[i]); }
//way
EACH { const T *p = std::find_if(a, a + n, [&](T v) { return v > @leaf; });
  o[i] = p == a + n ? a[i] : @e(*p, a[i]); }
//way
const auto m = std::count_if(a, a + n, [](T v) { return v > @c; }); EACH o[i] = @e(a[i]) * T(m % 4 + 1);
//// algorithms
//way
std::transform(a, a + n, o, [](T v) { return @e(v); });
//way
std::transform(a, a + n, o, [](T v) { return @e(v); }); std::partial_sum(o, o + n, o);
//way
const T s = std::accumulate(a, a + n, T(0), [](T u, T v) { return @e(u, v) / 2; }); EACH o[i] = @e(s, a[i]);
//way
std::vector<T> t(n, @c); const T s = std::inner_product(a, a + n, t.begin(), T(0)); EACH o[i] = @e(s, a[i]);
//way
std::adjacent_difference(a, a + n, o); std::for_each(o, o + n, [](T &v) { v = @e(v); });
//way
std::vector<T> t(a, a + n); t.erase(std::remove_if(t.begin(), t.end(), [](T v) { return v < 0; }), t.end());
  EACH o[i] = i < t.size() ? @e(t[i]) : a[i];
//way
int m = 0; std::generate(o, o + n, [&] { const T v = a[m++]; return @e(v); });
//// matrices [m = 2 .. 4]
//way
T p[@m][@m];
  for (int r = 0; r < @m; ++r) for (int c = 0; c < @m; ++c)
    p[r][c] = std::tanh(a[(r * @m + c) % n]) + T(r == c ? (@m + 1) : 0);
  T q[@m][@m] = {};
  for (int r = 0; r < @m; ++r) for (int c = 0; c < @m; ++c) for (int s = 0; s < @m; ++s) q[r][c] += p[r][s] * p[s][c];
  EACH o[i] = @e(q[i % @m][(i + 1) % @m], a[i]) / @m;
//way
T p[@m][@m];
  for (int r = 0; r < @m; ++r) for (int c = 0; c < @m; ++c)
    p[r][c] = std::tanh(a[(r * @m + c) % n]) + T(r == c ? (@m + 1) : 0);
  T v[@m]; for (int r = 0; r < @m; ++r) v[r] = a[r % n];
  for (int c = 0; c < @m; ++c) for (int r = c + 1; r < @m; ++r) { const T f = p[r][c] / p[c][c];
  for (int s = c; s < @m; ++s) p[r][s] -= f * p[c][s]; v[r] -= f * v[c]; }
  for (int r = (@m - 1); r >= 0; --r) { for (int s = r + 1; s < @m; ++s) v[r] -= p[r][s] * v[s];
  v[r] /= p[r][r]; } EACH o[i] = @e(v[i % @m], a[i]);
//way
T p[@m][@m];
  for (int r = 0; r < @m; ++r) for (int c = 0; c < @m; ++c)
    p[r][c] = std::tanh(a[(r * @m + c) % n]) + T(r == c ? (@m + 1) : 0);
  std::vector<T> v(@m, T(1)); for (int t = 0; t < @n(2, 5); ++t) { std::vector<T> u(@m, T(0)); T s = 0;
  for (int r = 0; r < @m; ++r) { for (int c = 0; c < @m; ++c) u[r] += p[r][c] * v[c]; s += u[r] * u[r]; }
  for (int r = 0; r < @m; ++r) v[r] = u[r] / std::sqrt(s); } EACH o[i] = @e(v[i % @m], a[i]);
//way
std::vector<T> p(n * @m); EACH for (int c = 0; c < @m; ++c) p[i * @m + c] = @e(a[i]) * T(c + 1); EACH {
  T s = 0; for (int c = 0; c < @m; ++c) s += p[i * @m + c] * p[(@at) * @m + c]; o[i] = @e(s); }
//// products of the library [m = 2 .. 4]
//way
EACH o[i] = @e(a[i]) + d5::dot(n, a, a) / T(n);
//way
std::vector<T> p(n * @m), q(n * n);
  EACH for (int c = 0; c < @m; ++c) p[i * @m + c] = std::tanh(a[i] * T(c + 1));
  d5::product(d5::plain, d5::transposed, n, n, @m, T(.5), p.data(), @m, p.data(), @m, T(0), q.data(), n);
  EACH o[i] = q[i * n + (@at)] + a[i];
//way
std::vector<T> s(n), p(n); EACH s[i] = @e(a[i]); d5::exponentials(n, s.data(), p.data()); T t = 0;
  EACH t += p[i]; EACH o[i] = p[i] / t * a[i];
//// series and fractions [m = 3 .. 12]
//way
EACH { T s = 0; for (int q = @m; q > 0; --q) s = s * std::tanh(a[i]) + T(1) / T(q); o[i] = s; }
//way
EACH { T f = @c; for (int q = @m; q > 0; --q) f = T(q) + a[i] * a[i] / (f + 1); o[i] = @e(f); }
//way
EACH { T t = 1, s = 0; for (int q = 1; std::abs(t) > T(1e-4) && q < 40; ++q) { s += t;
  t *= std::tanh(a[i]) / T(q); } o[i] = s; }
//way
EACH { T p = 1, q = std::sin(a[i]); for (int m = 2; m < @m; ++m) { const T r = 2 * std::sin(a[i]) * q - p;
  p = q; q = r; } o[i] = q / @m; }
//// statistics
//way
T s = 0, q = 0; EACH s += a[i]; s /= T(n); EACH q += (a[i] - s) * (a[i] - s); q = std::sqrt(q / T(n) + @c);
  EACH o[i] = @e((a[i] - s) / q, @leaf);
//// infinities [m = 2 .. 4]
//way
T m = -std::numeric_limits<T>::infinity(), s = 0; EACH if (i % @m == 0) m = std::max(m, a[i]);
EACH s += i % @m ? T(0) : std::exp(a[i] - m); EACH o[i] = @e(m + std::log(s), a[i]);
//way
T m = -std::numeric_limits<T>::infinity(), s = 0; EACH { const T q = std::max(m, a[i]);
  s = s * std::exp(m - q) + std::exp(a[i] - q); m = q; o[i] = @e(m + std::log(s), @leaf); }
//way
std::vector<T> d(n, std::numeric_limits<T>::infinity()); d[0] = 0; for (int t = 0; t < @m; ++t)
  EACH for (std::size_t j = i + 1; j < std::min(i + 4, n); ++j) d[j] = std::min(d[j], d[i] + a[j] * a[j] + @c);
EACH o[i] = @e(d[i], a[i]);
//way
std::vector<T> d(n, -std::numeric_limits<T>::infinity()); EACH if (a[i] > @c) d[i] = @e(a[i]);
EACH { const T m = std::max(d[i], d[(i + 1) % n]); if (std::isinf(m)) { o[i] = a[i]; continue; }
  o[i] = m + std::log(std::exp(d[i] - m) + std::exp(d[(i + 1) % n] - m)); }
//way
T s = 0, v[4]; EACH { T m = -std::numeric_limits<T>::infinity(); for (int q = 0; q < 4; ++q) {
  v[q] = q > int(i % 4) ? -std::numeric_limits<T>::infinity() : a[(i + q) % n] * T(q + 1); m = std::max(m, v[q]); }
  s = 0; for (T &u : v) s += u = std::exp(u - m); o[i] = 0;
  for (int q = 0; q < 4; ++q) o[i] += v[q] / s * @e(a[(i + q) % n]); }
//way
T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::lowest(); EACH {
  low = std::min(low, @e(a[i])); high = std::max(high, a[i]); } EACH o[i] = (a[i] - low) / (high - low + 1);
//// rows and columns [m = 2 .. 5]
//way
const std::size_t m = @m, r = n / m; EACH o[i] = a[i]; for (std::size_t y_ = 0; y_ < r; ++y_)
  for (std::size_t x_ = 0; x_ < m; ++x_) { T s = 0; for (int dy = -1; dy <= 1; ++dy) for (int dx = -1; dx <= 1; ++dx) {
  const long p = long(y_) + dy, q = long(x_) + dx; if (p < 0 || q < 0 || p >= long(r) || q >= long(m)) continue;
  s += a[p * m + q] * T(dy * 2 + dx + 4) / 9; } o[y_ * m + x_] = @e(s, a[y_ * m + x_]); }
//way
const std::size_t m = @m, r = n / m; EACH o[i] = @e(a[i]); for (std::size_t y_ = 0; y_ < r; ++y_) {
  const T *row = a + y_ * m; T mean = 0, var = 0; for (std::size_t q = 0; q < m; ++q) mean += row[q] / T(m);
  for (std::size_t q = 0; q < m; ++q) var += (row[q] - mean) * (row[q] - mean) / T(m);
  for (std::size_t q = 0; q < m; ++q) o[y_ * m + q] = @e((row[q] - mean) / std::sqrt(var + @c)); }
//way
const std::size_t m = @m, r = (n + m - 1) / m; std::vector<T> t(m * r, @c);
EACH t[i % m * r + i / m] = @e(a[i]); EACH o[i] = @e(t[i], a[i]);
//way
T g[8][8] = {}; EACH g[i / 8 % 8][i % 8] += a[i]; for (int p = 0; p < 8; ++p) for (int q = 0; q < 8; ++q)
  g[p][q] = (g[p][q] + (p ? g[p - 1][q] : T(0)) + (q ? g[p][q - 1] : T(0)) - (p && q ? g[p - 1][q - 1] : T(0))) / 2;
EACH o[i] = @e(g[i / 8 % 8][(i + 3) % 8], a[i]);
//way
const std::size_t m = @m, r = n / m; EACH o[i] = 0; for (std::size_t q = 0; q < m && r > 0; ++q) { std::size_t at = 0;
  for (std::size_t y_ = 1; y_ < r; ++y_) if (a[y_ * m + q] > a[at * m + q]) at = y_;
  for (std::size_t y_ = 0; y_ < r; ++y_) o[y_ * m + q] += @e(a[at * m + q], a[y_ * m + q]); } EACH o[i] += @e(a[i]);
//// fixed arrays of arrays [m = 2 .. 4]
//way
T t[3][@m] = {}; EACH { T (*p)[@m] = &t[i % 3]; (*p)[i % @m] += @e(a[i]); for (int q = 1; q < @m; ++q)
  t[q % 3][q] = (t[q % 3][q] + t[0][q - 1]) / 2; o[i] = @e(t[(i + 1) % 3][i % @m], a[i]); }
//way
std::array<std::array<T, @m>, 3> t{}; EACH { auto u = t; u[i % 3][0] = @e(a[i]); t = u; auto &row = t[(i + 1) % 3];
  for (T &v : row) v = v / 2 + a[i]; o[i] = @e(t[i % 3][@m - 1], a[i]); }
//way
struct Cell { T v[@m]; int m; }; Cell c[2] = {}; EACH { c[1] = c[0]; c[0].v[i % @m] = @e(a[i]); c[0].m += 1;
  T s = 0; for (int q = 0; q < @m; ++q) s += c[0].v[q] * c[1].v[(q + 1) % @m]; o[i] = @e(s, a[i]) / T(c[0].m); }
//// buffers that own their memory
//before
template <class T> struct @_buffer {
  T *p; std::size_t n;
  explicit @_buffer(std::size_t n) : p(new T[n]()), n(n) {}
  @_buffer(const @_buffer &b) : p(new T[b.n]), n(b.n) { for (std::size_t i = 0; i < n; ++i) p[i] = b.p[i]; }
  @_buffer(@_buffer &&b) noexcept : p(b.p), n(b.n) { b.p = nullptr; b.n = 0; }
  @_buffer &operator=(@_buffer b) { std::swap(p, b.p); std::swap(n, b.n); return *this; }
  ~@_buffer() { delete[] p; }
  T &operator[](std::size_t i) { return p[i]; }
};
template <class T> @_buffer<T> @_made(const T *a, std::size_t n) {
  @_buffer<T> b(n); for (std::size_t i = 0; i < n; ++i) b[i] = @e(a[i]); return b; }
//way
@_buffer<T> b = @_made<T>(a, n), d = b; EACH d[i] *= b[@at]; EACH o[i] = @e(d[i], b[i]);
//way
@_buffer<T> b(n); for (int t = 0; t < @n(1, 3); ++t) { b = @_made<T>(t ? b.p : a, n); } EACH o[i] = @e(b[i], a[i]);
//way
@_buffer<T> b(n), d(std::move(b)); EACH d[i] = @e(a[i], @leaf); { @_buffer<T> e(d); d[0] = e[n - 1] / 2; }
EACH o[i] = @e(d[i]);
//// classes of classes
//before
template <class T, class D> struct @_layer { T bias = @c; T run(T v) const {
  return static_cast<const D &>(*this).inner(v) + bias; } };
template <class T> struct @_wave : @_layer<T, @_wave<T>> { T inner(T v) const { return @e(v, this->bias); } };
template <class T, int m> struct @_deep : @_deep<T, m - 1> { T w = T(m) / 3;
  T all(T v) const { return @_deep<T, m - 1>::all(@e(v, w)); } };
template <class T> struct @_deep<T, 0> { T all(T v) const { return @e(v); } };
template <class T> T @_sum(T v) { return v; }
template <class T, class... R> T @_sum(T v, R... rest) { return @e(v) + @_sum<T>(rest...) / 2; }
template <int m, class T> T @_turn(T v) { if constexpr (m > 2) return @e(v); else return v * v + @c; }
//way
@_wave<T> w_; w_.bias = a[0]; EACH o[i] = w_.run(a[i]);
//way
const @_deep<T, @n(1, 4)> d; EACH o[i] = d.all(a[i]);
//way
EACH o[i] = @_sum<T>(a[i], @leaf, @c, a[n - 1]);
//way
auto f = [](auto... v) { return (... + (@e(v))); }; EACH o[i] = f(a[i], @leaf, @c) + @_turn<@n(1, 4)>(a[i]);
//// merges
//way
std::vector<T> t(a, a + n), u(n); std::sort(t.begin(), t.begin() + n / 2); std::sort(t.begin() + n / 2, t.end());
std::merge(t.begin(), t.begin() + n / 2, t.begin() + n / 2, t.end(), u.begin()); EACH o[i] = @e(u[i], a[i]);
//way
std::vector<T> t(a, a + n), u(n); for (std::size_t w_ = 1; w_ < n; w_ *= 2) { for (std::size_t b = 0; b < n; b += 2 * w_) {
  std::size_t l = b, m = std::min(b + w_, n), r = m, end = std::min(b + 2 * w_, n); for (std::size_t i = b; i < end; ++i)
  u[i] = l < m && (r >= end || t[l] <= t[r]) ? t[l++] : t[r++]; } t = u; } EACH o[i] = @e(t[i], a[i]);
//way
std::vector<T> t(a, a + n); for (std::size_t s = n / 2; s-- > 0;) for (std::size_t p = s; 2 * p + 1 < n;) {
  std::size_t c = 2 * p + 1; if (c + 1 < n && t[c + 1] > t[c]) ++c; if (t[p] >= t[c]) break; std::swap(t[p], t[c]); p = c; }
EACH o[i] = @e(t[i], t[0]);
//way
std::vector<T> t(a, a + n); std::size_t low = 0, high = n - 1, k_ = n / 2; while (low < high) { const T v = t[(low + high) / 2];
  std::size_t p = low, q = high; while (p <= q) { while (t[p] < v) ++p; while (v < t[q]) --q; if (p > q) break;
  std::swap(t[p], t[q]); ++p; if (q == 0) break; --q; } if (k_ <= q) high = q; else if (k_ >= p) low = p; else break; }
EACH o[i] = @e(t[k_], a[i]);
//// graphs [m = 3 .. 5]
//way
T d[@m][@m]; for (int p = 0; p < @m; ++p) for (int q = 0; q < @m; ++q) d[p][q] = p == q ? T(0) :
  std::abs(a[std::size_t(p * @m + q) % n]) + @c; for (int k_ = 0; k_ < @m; ++k_) for (int p = 0; p < @m; ++p)
  for (int q = 0; q < @m; ++q) d[p][q] = std::min(d[p][q], d[p][k_] + d[k_][q]);
EACH o[i] = @e(d[i % @m][(i * 2 + 1) % @m], a[i]);
//way
std::vector<std::size_t> up(n); EACH up[i] = i; auto top = [&](std::size_t i) { while (up[i] != i) i = up[i] = up[up[i]];
  return i; }; EACH if (a[i] > 0) up[top(i)] = top(@at); std::vector<T> s(n, T(0)); EACH s[top(i)] += a[i];
EACH o[i] = @e(s[top(i)], a[i]);
//way
std::vector<T> d(n, T(1e6)); std::vector<bool> done(n); d[0] = 0; for (std::size_t t = 0; t < n; ++t) { std::size_t p = n;
  EACH if (!done[i] && (p == n || d[i] < d[p])) p = i; done[p] = true; for (std::size_t q = p + 1; q < std::min(p + @m, n); ++q)
  d[q] = std::min(d[q], d[p] + a[q] * a[q] + T(.1)); } EACH o[i] = @e(d[i], a[i]);
//// values handed on
//way
T u = @c, v = a[0]; EACH { std::tie(u, v) = std::make_pair(@e(v, a[i]), u / 2); o[i] = @e(u, v); u = std::sin(u); }
//way
T last = @c; EACH o[i] = @e(std::exchange(last, a[i]), a[i]);
//way
T v[3] = {@c, @c, @c}; EACH { auto &[p, q, r] = v; p = a[i]; std::swap(p, r); q = @e(q, r) / 2; o[i] = p + q; }
//way
EACH { const auto [low, high] = std::minmax({a[i], @leaf, T(.3)}); o[i] = @e(low, high); }
//way
T u = 0; EACH { T &&v = T(@e(a[i])); u = std::move(v) + u / 2; const T &w_ = i % 2 ? u : v; o[i] = @e(w_, a[i]); }
//// iterators
//way
std::vector<T> t(a, a + n); for (auto p = t.rbegin(); p != t.rend(); ++p) *p = p == t.rbegin() ? *p : @e(*p, *std::prev(p)) / 2;
EACH o[i] = t[i];
//way
std::vector<T> t(n); std::copy(std::make_reverse_iterator(a + n), std::make_reverse_iterator(a), t.begin());
for (auto p = t.begin(), q = std::next(p, long(n / 2)); q != t.end(); ++p, ++q) std::iter_swap(p, q);
EACH o[i] = @e(t[i], a[i]);
//way
std::vector<T> t; std::copy_if(a, a + n, std::back_inserter(t), [](T v) { return v > T(-.2); }); t.push_back(@c);
EACH o[i] = @e(t[i % t.size()], a[i]);
//way
T s = 0; for (auto p = a, end = a + n; p < end; p += @n(2, 3)) s += @e(*p); EACH o[i] = @e(s, a[std::size_t(a + n - (a + i)) - 1]);
//// random numbers
//way
std::uint64_t s = @n(3, 999); EACH { s ^= s << 13; s ^= s >> 7; s ^= s << 17; const T u = T(double(s >> 11) / 9007199254740992.);
  o[i] = u < T(.3) ? T(0) : @e(a[i], u) / T(.7); }
//way
std::uint32_t s = @n(1, 99); auto next = [&] { s = s * 1103515245u + 12345u; return T(double(s >> 8) / 16777216.); };
EACH { T u = next(); int m = 0; while (u > std::exp(-a[i] * a[i]) && m++ < 5) u = next() / 2; o[i] = @e(u, a[i]) + T(m); }
//// states
//before
enum class @_state { first, second, third };
//way
@_state s = @_state::first; T v = @c; EACH { switch (s) { case @_state::first: v = @e(v, a[i]) / 2;
  if (a[i] > 0) s = @_state::second; break; case @_state::second: v -= a[i] / 2; s = v < 0 ? @_state::third : @_state::first;
  break; case @_state::third: v = std::tanh(v) + @leaf; s = @_state::first; } o[i] = @e(v); }
//way
int s = 0; T v[3] = {a[0], @c, @c}; EACH { v[s] = @e(v[s], a[i]) / 2; s = (s + (v[s] > @c ? 1 : 2)) % 3; o[i] = v[s] * a[i]; }
//// functions that jump
//way
EACH o[i] = std::fmod(@e(a[i]) + 9, T(.7)) * a[i];
//way
EACH o[i] = std::copysign(@e(a[i]) + 1, @leaf);
//way
EACH { const T v = @e(a[i]) * 3; o[i] = (v - @pick(std::round | std::floor | std::ceil | std::trunc | std::rint)(v)) * a[i]; }
//way
EACH o[i] = @pick(std::asinh(a[i]) | std::atanh(std::tanh(a[i]) / 2) | std::acosh(a[i] * a[i] + 2) | std::expm1(a[i] / 2) |
  std::log1p(a[i] * a[i]) | std::hypot(a[i], @leaf + 3) | std::asin(std::tanh(a[i]) / 2) | std::sinh(a[i] / 4)) + @e(a[i]);
//way
EACH { const T v = std::log(a[i]); o[i] = std::isnan(v) ? @e(a[i]) : a[i] * a[i]; }
//// texts that grow [doubtful]
//way
std::string way; way += 's'; way += 't'; EACH o[i] = way == "st" && way[i % 2] == 's' ? @e(a[i]) : @e(a[i]);
//// vectors that grow in vectors [doubtful]
//way
std::vector<std::vector<T>> v(@n(2, 4)); EACH v[i % v.size()].push_back(@e(a[i]));
EACH { T s = 0; for (const T &u : v[i % v.size()]) s += u; o[i] = @e(s, a[i]); }
//// vectors that change places [doubtful]
//way
std::vector<T> u(a, a + n), v(n); for (int t = 0; t < @n(2, 4); ++t) {
  EACH v[i] = @e(u[i], u[(i + 1) % n]) / 2; std::swap(u, v); } EACH o[i] = u[i];
//way
std::vector<T> t(2 * n); T *u = t.data(), *v = u + n; EACH u[i] = a[i];
  for (int t_ = 0; t_ < @n(2, 4); ++t_) { EACH v[i] = @e(u[i], u[(i + 1) % n]) / 2; std::swap(u, v); }
  EACH o[i] = u[i];
//way
std::vector<std::pair<T, T>> v; EACH v.emplace_back(a[i], @e(a[i]));
  EACH o[i] = @e(v[i].first, v[n - 1 - i].second);
//// what is shared or global [doubtful]
//way
static T s = 0;
s = 0; EACH { s += @e(a[i]); o[i] = @e(s); }
//way
thread_local T s;
s = 0; EACH { s += @e(a[i]); o[i] = @e(s); }
//way
auto s = std::make_shared<T>(@e(a[0])); auto t = s; EACH o[i] = @e(*t, a[i]);
//way
static T t[8];
EACH t[i % 8] = @e(a[i]); EACH o[i] = @e(t[i % 8], a[i]);
//// members that are written [doubtful]
//members
T @_sum = 0; T @_room[8] = {}; std::vector<T> @_kept;
//way
@_sum = 0;
EACH { @_sum += @e(a[i]); o[i] = @_sum; }
//way
EACH @_room[i % 8] = @e(a[i]);
EACH o[i] = @_room[i % 8] * a[i];
//way
@_kept.assign(a, a + n);
EACH o[i] = @e(@_kept[i], a[i]);
//way
T *p = @_room; if (n > @n(3, 40)) p = &@_sum; *p = a[0];
EACH o[i] = @e(*p, a[i]);
//// exceptions [doubtful]
//way
EACH { T v = a[i];
try { if (v > @c) throw 1; v = @e(v); } catch (int) { v *= 2; }
o[i] = v; }
//way
if (n > 100000) throw std::runtime_error("too many"); EACH o[i] = @e(a[i]);
//way
std::vector<T> v(a, a + n); EACH o[i] = @e(v.at(i), v.at(n - 1 - i));
//// memory as bytes [doubtful]
//way
EACH o[i] = a[i]; std::memmove(o, o + n / 3, (n - n / 3) * sizeof(T)); EACH o[i] = @e(o[i]);
//way
std::vector<char> t(n * sizeof(T)); std::memcpy(t.data(), a, n * sizeof(T));
  const T *u = reinterpret_cast<const T *>(t.data()); EACH o[i] = @e(u[i]);
//way
EACH o[i] = a[i]; std::copy_backward(o, o + n - n / 3, o + n); EACH o[i] = @e(o[i], a[i]);
//way
EACH o[i] = @e(a[i]); std::stable_sort(o, o + n);
//way
std::vector<T> t(a, a + n); std::stable_partition(t.begin(), t.end(), [](T v) { return v > 0; });
  EACH o[i] = @e(t[i], a[i]);
//// functions in containers [doubtful]
//way
std::vector<std::function<T(T)>> f; f.push_back([](T v) { return @e(v); });
  f.push_back([&](T v) { return @e(v, a[0]); }); EACH o[i] = f[i % 2](a[i]);
//way
T (*f[2])(T) = {[](T v) { return @e(v); }, [](T v) { return v * @c; }}; EACH o[i] = f[i % 2](a[i]);
//way
std::variant<int, T> v; EACH { if (a[i] > 0) v = a[i]; else v = 2;
  o[i] = std::visit([&](auto u) { return T(u) * a[i]; }, v); }
//// several numbers in one place [doubtful]
//before
template <class T> union @_both { T v; long m; @_both() : m(0) {} };
//way
EACH { @_both<T> u; u.v = @e(a[i]); o[i] = @e(u.v, a[i]); }
//way
EACH { @_both<T> u; if (i % 2) u.v = @e(a[i]); else u.m = 3; o[i] = i % 2 ? u.v * a[i] : a[i] * T(u.m); }
//way
EACH { alignas(T) unsigned char room[sizeof(T)]; T *p = new (room) T(@e(a[i])); o[i] = @e(*p, a[i]); }
//// parallel for [openmp]
//way
#pragma omp parallel for firstprivate(a, o, n@more)
EACH { o[i] = @e(a[i], @leaf); }
//way
#pragma omp parallel for firstprivate(a, o, n@more)
EACH { T s = 0; for (std::size_t j = 0; j <= i; ++j) s += @e(a[j]); o[i] = s / T(i + 1); }
//way
#pragma omp parallel for firstprivate(a, o, n@more)
EACH { T v[3] = {a[i], @leaf, @c}; for (int q = 0; q < 3; ++q) v[q] = @e(v[q], v[(q + 1) % 3]);
  o[i] = v[0] + v[2]; }
//way
#pragma omp parallel for firstprivate(a, o, n@more)
EACH { std::vector<T> v(3); for (int q = 0; q < 3; ++q) v[q] = a[i] * T(q + 1); o[i] = @e(v[0], v[2]); }
//way
#pragma omp parallel for firstprivate(a, o, n@more)
EACH { T v = a[i]; int m = 0; while (std::abs(v) > T(.3) && m++ < 30) v *= T(.7); o[i] = @e(v, a[i]); }
//// several parallel loops [openmp]
//way
std::vector<T> room(n); T *p = room.data();
#pragma omp parallel for firstprivate(a, o, n, p@more)
EACH { p[i] = @e(a[i]); }

#pragma omp parallel for firstprivate(a, o, n, p@more)
EACH { o[i] = @e(p[i], p[n - 1 - i]); }
//way
std::vector<T> room(n); T *p = room.data();
#pragma omp parallel firstprivate(a, o, n, p)
{
#pragma omp for
EACH p[i] = @e(a[i]);
#pragma omp for
EACH o[i] = @e(p[i], p[n - 1 - i]);
}
//way
std::vector<T> room(n); T *p = room.data();
#pragma omp parallel for firstprivate(a, o, n, p@more)
EACH { p[i] = @e(a[i]); }
for (int t = 0; t < @n(2, 3); ++t) {
#pragma omp parallel for firstprivate(a, o, n, p@more)
EACH { o[i] = p[i] + @c * p[(i + 1) % n] / 2; }

#pragma omp parallel for firstprivate(a, o, n, p@more)
EACH { p[i] = @e(o[i]); }
}
//way
std::vector<T> room(n); T *p = room.data();
#pragma omp parallel firstprivate(a, o, n, p)
{
#pragma omp for nowait
EACH p[i] = @e(a[i]);
#pragma omp for
EACH o[i] = @e(a[i]);
}
EACH o[i] += p[i];
//way
std::vector<T> room(3 * n); T *p = room.data();
#pragma omp parallel firstprivate(a, o, n, p@more)
{
#pragma omp for
EACH p[i] = @e(a[i], @leaf);
#pragma omp for
EACH p[n + i] = @e(p[i], p[(i + 1) % n]);
#pragma omp for
EACH p[2 * n + i] = p[n + i] * p[(i + 2) % n];
#pragma omp for
EACH o[i] = @e(p[2 * n + i], p[n - 1 - i]);
}
//way
std::vector<T> room(n); T *p = room.data(); EACH { o[i] = a[i]; p[i] = 0; }
for (int t = 0; t < @n(2, 3); ++t) {
#pragma omp parallel firstprivate(a, o, n, p)
{
#pragma omp for
EACH p[i] = @e(o[i], o[(i + 1) % n]) / 2;
#pragma omp for
EACH o[i] = @e(p[i], a[i]) / 2;
}
}
//way
//before
template <class T> void @_smooth(const T *a, T *o, std::size_t n) {
#pragma omp parallel for firstprivate(a, o, n)
  for (std::size_t i = 0; i < n; ++i) o[i] = (a[i] + a[(i + 1) % n] + a[(i + n - 1) % n]) / 3;
}
//code
std::vector<T> room(n); @_smooth(a, room.data(), n); @_smooth(static_cast<const T *>(room.data()), o, n);
EACH o[i] = @e(o[i], a[i]);
//// threads beside plain code [openmp]
//way
T scale = 0; EACH scale += @e(a[i]) / T(n);
#pragma omp parallel for firstprivate(a, o, n, scale@more)
EACH { o[i] = @e(a[i], scale); }
//way
#pragma omp parallel for firstprivate(a, o, n@more)
EACH { std::array<T, 4> v{}; for (std::size_t j = 0; j < 4; ++j) v[j] = a[(i + j) % n] * T(j + 1);
  T s = 0; for (T u : v) s += @e(u); o[i] = s; }
//way
T last = 0;
#pragma omp parallel for firstprivate(a, o, n@more) lastprivate(last)
EACH { last = @e(a[i]); o[i] = last * a[i]; }
EACH o[i] += last;
//way
#pragma omp parallel sections firstprivate(a, o, n@more)
{
#pragma omp section
  for (std::size_t i = 0; i < n / 2; ++i) o[i] = @e(a[i]);
#pragma omp section
  for (std::size_t i = n / 2; i < n; ++i) o[i] = @e(a[i]);
}
//way
#pragma omp simd
EACH o[i] = @e(a[i], @leaf);
//way
T t = 0;
#pragma omp parallel for firstprivate(a, o, n@more) private(t)
EACH { t = @e(a[i]); if (t > @c) t = @e(t); o[i] = t; }
//way
const std::size_t rows = @n(2, 3); std::vector<T> room(rows * n); T *p = room.data();
#pragma omp parallel for firstprivate(a, n, p, rows@more)
for (std::size_t r = 0; r < rows; ++r) { T s = 0; EACH { s = @e(s, a[i]) / 2; p[r * n + i] = s * T(r + 1); } }
EACH { o[i] = 0; for (std::size_t r = 0; r < rows; ++r) o[i] += p[r * n + i]; }
//way
std::vector<T> room(a, a + n); T *p = room.data();
#pragma omp parallel for firstprivate(o, n, p)
EACH { o[i] = i % 3 == 0 ? @e(p[i]) : i % 3 == 1 ? @e(p[i], p[n - 1 - i]) : T(i % 5); }
//// sums of threads [openmp]
//way
T s = 0;
#pragma omp parallel for firstprivate(a, o, n@more) reduction(+:s)
EACH { s += @e(a[i], @leaf) / T(n); }
EACH o[i] = @e(s, a[i]);
//way
T sum = 0, *at = &sum;
#pragma omp parallel for firstprivate(a, o, n, at@more)
EACH { const T v = @e(a[i], @leaf) / T(n);
#pragma omp atomic
*at += v; }
const T s = sum; EACH o[i] = @e(s, a[i]);
//way
std::vector<T> parts(4, T(0)); T *p = parts.data();
#pragma omp parallel for firstprivate(a, n, p@more)
for (std::size_t b = 0; b < 4; ++b) for (std::size_t i = b * n / 4; i < (b + 1) * n / 4; ++i) p[b] += @e(a[i], @leaf);
const T s = p[0] + p[1] + p[2] + p[3]; EACH o[i] = @e(s, a[i]);
//// collapsed loops [openmp] [m = 2 .. 4]
//way
const std::size_t m = @m; std::vector<T> room(n * m); T *p = room.data();
#pragma omp parallel for collapse(2) firstprivate(a, n, m, p)
for (std::size_t i = 0; i < n; ++i) for (std::size_t j = 0; j < m; ++j) p[i * m + j] = @e(a[i]) * T(j + 1);

#pragma omp parallel for firstprivate(a, o, n, m, p@more)
EACH { T s = 0; for (std::size_t j = 0; j < m; ++j) s += p[(@at) * m + j]; o[i] = @e(s); }
//// what threads divide otherwise [doubtful] [openmp]
//way
#pragma omp parallel for firstprivate(a, o, n@more) schedule(dynamic)
EACH { o[i] = @e(a[i]); }
//way
#pragma omp parallel for firstprivate(a, o, n@more) schedule(static, 2)
EACH { o[i] = @e(a[i]); }
//way
#pragma omp parallel for firstprivate(a, o, n@more) num_threads(2)
EACH { o[i] = @e(a[i]); }
//way
T s = a[0];
#pragma omp parallel for firstprivate(a, o, n@more) reduction(max:s)
EACH { s = std::max(s, a[i]); }
EACH o[i] = @e(s, a[i]);
//way
T top = a[0], *at = &top;
#pragma omp parallel for firstprivate(a, o, n, at@more)
EACH {
#pragma omp critical
{ if (a[i] > *at) *at = a[i]; } }
EACH o[i] = @e(top, a[i]);
//way
#pragma omp parallel for
EACH o[i] = @e(a[i]);
//way
T s = 0, q = 0;
#pragma omp parallel for firstprivate(a, o, n@more) reduction(+:s, q)
EACH { s += a[i] / T(n); q += a[i] * a[i] / T(n); }
EACH o[i] = @e(s, q, a[i]);
//way
#pragma omp parallel for firstprivate(a, o, n@more) schedule(guided)
EACH { o[i] = @e(a[i]); }
//way
#pragma omp parallel firstprivate(a, o, n)
{
#pragma omp single
EACH o[i] = @e(a[i]);
}
//way
std::vector<T> room(n);
#pragma omp parallel for firstprivate(a, o, n@more) shared(room)
EACH { room[i] = @e(a[i]); o[i] = room[i] * a[i]; }
//way
T p = @c;
#pragma omp parallel for firstprivate(a, o, n@more) reduction(*:p)
EACH { p *= std::tanh(a[i]) + T(1); o[i] = a[i]; }
EACH o[i] += p;
//way
#pragma omp parallel firstprivate(a, o, n)
{
#pragma omp for
EACH o[i] = @e(a[i]);
#pragma omp for
for (std::size_t i = 0; i < n / 2; ++i) o[i] = o[i] * a[n - 1 - i];
}
//// scaled again and again
//way
std::vector<T> p(a, a + n); T s = 0; EACH s += @e(p[i]) * p[i] / T(n); for (int t = 0; t < @n(2, 6); ++t) {
  T q = 0; EACH q += p[i] * p[i] / T(n); q = s / (q + @c); EACH p[i] *= q; } EACH o[i] = @e(p[i], a[i]);
//way
T u[64] = {}, v[64] = {}, s = 0; EACH { u[i % 64] = @e(a[i]); v[i % 64] = a[i]; } EACH s += u[i % 64] * v[i % 64] / T(n);
  for (int t = 0; t < @n(1, 3); ++t) EACH u[i % 64] *= @c + s / (s * s + 1); EACH o[i] = @e(u[i % 64]);
//way
std::vector<T> t(a, a + n), u(n); for (std::size_t w_ = 1; w_ < n; w_ *= 2) {
  EACH u[i] = @e(t[i], t[(i + w_) % n]) / 2; t = u; } EACH o[i] = t[i];
