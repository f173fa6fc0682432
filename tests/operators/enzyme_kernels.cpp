// Well-known kernels, and loops of OpenMP, on n numbers x: bodies of forward, which writes n numbers y. They were written
// down before any of them was tried. What follows a name is what the error of one that is refused says; by the check
// alone, where exp is infinite.
//// thomas
std::vector<T> c(n), d(n); for (std::size_t i = 0; i < n; ++i) { const T low = i ? T(-.3) : T(0), r = 2 + x[i] * x[i]
- low * (i ? c[i - 1] : T(0)); c[i] = T(-.4) / r; d[i] = (x[i] - low * (i ? d[i - 1] : T(0))) / r; } y[n - 1] = d[n -
1]; for (std::size_t i = n - 1; i-- > 0;) y[i] = d[i] - c[i] * y[i + 1];
//// cholesky
const std::size_t m = 3; std::vector<T> l(m * m, T(0)), s(m * m); for (std::size_t i = 0; i < m; ++i) for (std::size_t
j = 0; j < m; ++j) { s[i * m + j] = i == j ? T(3) : T(0); for (std::size_t k = 0; k < n; ++k) s[i * m + j] +=
std::sin(x[k] * T(i + 1)) * std::sin(x[k] * T(j + 1)) / T(n); }
for (std::size_t i = 0; i < m; ++i) for (std::size_t j = 0; j <= i; ++j) { T v = s[i * m + j]; for (std::size_t k = 0;
k < j; ++k) v -= l[i * m + k] * l[j * m + k]; l[i * m + j] = i == j ? std::sqrt(v) : v / l[j * m + j]; }
for (std::size_t i = 0; i < n; ++i) y[i] = l[(i * 4) % 9] * x[i];
//// lu_with_pivots
const std::size_t m = 4; T a[4][4]; for (std::size_t i = 0; i < m; ++i) for (std::size_t j = 0; j < m; ++j) a[i][j] =
std::sin(x[(i * m + j) % n] * T(j + 1) + T(i)); T d = 1; for (std::size_t k = 0; k < m; ++k) { std::size_t best = k;
for (std::size_t i = k + 1; i < m; ++i) if (std::abs(a[i][k]) > std::abs(a[best][k])) best = i; if (best != k) { for
(std::size_t j = 0; j < m; ++j) std::swap(a[k][j], a[best][j]); d = -d; } d *= a[k][k]; for (std::size_t i = k + 1; i
< m; ++i) { const T f = a[i][k] / a[k][k]; for (std::size_t j = k; j < m; ++j) a[i][j] -= f * a[k][j]; } }
for (std::size_t i = 0; i < n; ++i) y[i] = d * std::cos(x[i]);
//// power_iteration
std::vector<T> v(n, T(1)), w(n); T size = 0; for (int t = 0; t < 4; ++t) { size = 0; for (std::size_t i = 0; i < n;
++i) { w[i] = 0; for (std::size_t j = 0; j < n; ++j) w[i] += v[j] * std::exp(-(x[i] - x[j]) * (x[i] - x[j])); size +=
w[i] * w[i]; } size = std::sqrt(size); for (std::size_t i = 0; i < n; ++i) v[i] = w[i] / size; } for (std::size_t i =
0; i < n; ++i) y[i] = v[i] * size;
//// conjugate_gradients
std::vector<T> z(n, T(0)), r(x, x + n), p(x, x + n), q(n); T rr = 0; for (std::size_t i = 0; i < n; ++i) rr += r[i] *
r[i];
for (int t = 0; t < 3; ++t) { T pq = 0; for (std::size_t i = 0; i < n; ++i) { q[i] = 3 * p[i] - (i ? p[i - 1] : T(0))
- (i + 1 < n ? p[i + 1] : T(0)); pq += p[i] * q[i]; } const T f = rr / (pq + T(.01)); T next = 0; for (std::size_t i =
0; i < n; ++i) { z[i] += f * p[i]; r[i] -= f * q[i]; next += r[i] * r[i]; } const T g = next / (rr + T(.01)); for
(std::size_t i = 0; i < n; ++i) p[i] = r[i] + g * p[i]; rr = next; } for (std::size_t i = 0; i < n; ++i) y[i] = z[i];
//// runge_kutta
for (std::size_t i = 0; i < n; ++i) { T u = x[i], v = x[(i + 1) % n]; for (int t = 0; t < 5; ++t) { auto f = [](T a, T
b) { return b * (1 - a * a) - a; }; const T h = T(.1), k1 = v, l1 = f(u, v), k2 = v + h / 2 * l1, l2 = f(u + h / 2 *
k1, v + h / 2 * l1), k3 = v + h / 2 * l2, l3 = f(u + h / 2 * k2, v + h / 2 * l2), k4 = v + h * l3, l4 = f(u + h * k3,
v + h * l3); u += h / 6 * (k1 + 2 * k2 + 2 * k3 + k4); v += h / 6 * (l1 + 2 * l2 + 2 * l3 + l4); } y[i] = u * v; }
//// verlet
std::vector<T> r(x, x + n), v(n, T(0)), f(n); for (int t = 0; t < 4; ++t) { for (std::size_t i = 0; i < n; ++i) { f[i]
= -r[i]; for (std::size_t j = 0; j < n; ++j) if (j != i) { const T d = r[i] - r[j]; f[i] += d / (d * d + 1) / T(n); }
} for (std::size_t i = 0; i < n; ++i) { v[i] += T(.1) * f[i]; r[i] += T(.1) * v[i]; } } for (std::size_t i = 0; i < n;
++i) y[i] = r[i];
//// needleman_wunsch
std::vector<T> s((n + 1) * 4, T(0)); for (std::size_t i = 1; i <= n; ++i) for (std::size_t j = 1; j < 4; ++j) { const
T hit = s[(i - 1) * 4 + j - 1] + std::cos(x[i - 1] * T(j)), up = s[(i - 1) * 4 + j] - T(.7), left = s[i * 4 + j - 1] -
T(.7); s[i * 4 + j] = std::max(hit, std::max(up, left)); } for (std::size_t i = 0; i < n; ++i) y[i] = s[(i + 1) * 4 +
3];
//// viterbi_softly
T f[3] = {T(.1), T(.2), T(.3)}, g[3]; for (std::size_t i = 0; i < n; ++i) { T most = f[0]; for (int j = 1; j < 3; ++j)
most = std::max(most, f[j]); for (int j = 0; j < 3; ++j) { T s = 0; for (int k = 0; k < 3; ++k) s += std::exp(f[k] -
most + T((j + 2 * k) % 3) / 4); g[j] = most + std::log(s) + x[i] * T(j) / 2; } for (int j = 0; j < 3; ++j) f[j] =
g[j]; y[i] = f[i % 3]; }
//// black_scholes
for (std::size_t i = 0; i < n; ++i) { const T s = std::exp(x[i] / 2), d = (std::log(s) + T(.06)) / T(.3), e = d -
T(.3); y[i] = s * std::erfc(-d / std::sqrt(T(2))) / 2 - std::exp(T(-.02)) * std::erfc(-e / std::sqrt(T(2))) / 2; }
//// binomial_tree
for (std::size_t i = 0; i < n; ++i) { T v[9]; for (int k = 0; k < 9; ++k) v[k] = std::max(std::exp(x[i] + T(k - 4) /
5) - 1, T(0)); for (int t = 8; t > 0; --t) for (int k = 0; k < t; ++k) v[k] = std::max(T(.98) * (v[k] + v[k + 1]) / 2,
std::exp(x[i] + T(2 * k - t) / 10) - 1); y[i] = v[0]; }
//// batch_norm
T mean = 0, var = 0; for (std::size_t i = 0; i < n; ++i) mean += x[i] / T(n); for (std::size_t i = 0; i < n; ++i) var
+= (x[i] - mean) * (x[i] - mean) / T(n);
for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] - mean) / std::sqrt(var + T(1e-3));
//// log_softmax
T most = x[0], s = 0; for (std::size_t i = 1; i < n; ++i) most = std::max(most, x[i]); for (std::size_t i = 0; i < n;
++i) s += std::exp(x[i] - most);
for (std::size_t i = 0; i < n; ++i) y[i] = x[i] - most - std::log(s);
//// attention
for (std::size_t i = 0; i < n; ++i) { T most = -1e30, s = 0, v = 0; for (std::size_t j = 0; j <= i; ++j) { const T l =
x[i] * x[j]; if (l > most) { const T f = std::exp(most - l); s *= f; v *= f; most = l; } const T e = std::exp(l -
most); s += e; v += e * x[(j + 1) % n]; } y[i] = v / s; }
//// lstm
T h = 0, c = 0; for (std::size_t i = 0; i < n; ++i) { auto gate = [](T v) { return 1 / (1 + std::exp(-v)); }; const T
f = gate(x[i] + h), o = gate(x[i] / 2 - h); c = f * c + (1 - f) * std::tanh(x[i] - h / 2); h = o * std::tanh(c); y[i]
= h; }
//// dynamic_time_warping
std::vector<T> d((n + 1) * 3, T(9)); d[0] = 0; for (std::size_t i = 1; i <= n; ++i) { if (i > 1) d[(i - 1) * 3] = 9;
for (std::size_t j = 1; j < 3; ++j) { const T c = (x[i - 1] - T(j) / 2), b = std::min(d[(i - 1) * 3 + j], std::min(d[i
* 3 + j - 1], d[(i - 1) * 3 + j - 1])); d[i * 3 + j] = c * c + b; } } for (std::size_t i = 0; i < n; ++i) y[i] = d[(i
+ 1) * 3 + 2];
//// bezier
for (std::size_t i = 0; i < n; ++i) { T p[5]; for (int k = 0; k < 5; ++k) p[k] = x[(i + k) % n]; const T t = 1 / (1 +
x[i] * x[i]); for (int r = 4; r > 0; --r) for (int k = 0; k < r; ++k) p[k] += t * (p[k + 1] - p[k]); y[i] = p[0]; }
//// perona_malik
std::vector<T> u(x, x + n), v(n); for (int t = 0; t < 4; ++t) { for (std::size_t i = 0; i < n; ++i) { const T l = u[(i
+ n - 1) % n] - u[i], r = u[(i + 1) % n] - u[i]; v[i] = u[i] + T(.2) * (l * std::exp(-l * l) + r * std::exp(-r * r));
} u.swap(v); } for (std::size_t i = 0; i < n; ++i) y[i] = u[i];
//// kalman
T m = 0, p = 1; for (std::size_t i = 0; i < n; ++i) { p += T(.1); const T k = p / (p + T(.5) + x[i] * x[i] / 9); m +=
k * (x[i] - m); p *= 1 - k; y[i] = m + p; }
//// delaunay_like_area
for (std::size_t i = 0; i < n; ++i) { const T ax = x[i], ay = x[(i + 1) % n], bx = x[(i + 2) % n], by = x[(i + 3) %
n]; const T cross = ax * by - ay * bx, dot = ax * bx + ay * by; y[i] = std::atan2(cross, dot + 3) + std::hypot(ax -
bx, ay - by + T(.1)); }
//// top_two
std::vector<T> v(x, x + n); std::partial_sort(v.begin(), v.begin() + (n > 1 ? 2 : 1), v.end(), [](T a, T b) { return a
> b; });
for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * v[0] + v[n > 1 ? 1 : 0];
//// map [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = std::sin(x[i]) * x[i];
//// neighbours [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = x[i] * x[(i + 1) % m] - x[(i + m - 1) % m];
//// inner_loop [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) { T s = 0; for (std::size_t j = 0; j < m; ++j) s += x[j] * x[i] / T(j + 1); y[i] =
s; }
//// triangle [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) { T s = 0; for (std::size_t j = 0; j <= i; ++j) s += std::cos(x[j]) * x[i]; y[i] =
s; }
//// branches [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) { if (x[i] > T(.2)) y[i] = x[i] * x[i]; else y[i] = std::exp(x[i]); }
//// a_while [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) { T v = x[i]; int k = 0; while (std::abs(v) > T(.1) && k++ < 30) v *= T(.6); y[i]
= v * x[i]; }
//// local_array [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) { T v[3] = {x[i], x[i] * 2, x[i] * x[i]}; T s = 1; for (T u : v) s *= u; y[i] = s;
}
//// local_vector [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) { std::vector<T> v(3, x[i]); for (int k = 1; k < 3; ++k) v[k] += v[k - 1] * v[k];
y[i] = v[2]; }
//// a_function [openmp]
const std::size_t m = n;
#pragma omp parallel for firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = twice(x[i], x[(i + 1) % m]);
//// two_loops [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) p[i] = x[i] * x[i];
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) y[i] = p[i] * p[(i + 1) % m];
//// three_loops [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) p[i] = std::sin(x[i]);
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) q[i] = p[i] * p[m - 1 - i];
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) y[i] = q[i] + p[i] * q[(i + 2) % m];
//// serial_between [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) p[i] = x[i] * x[i];
T s = 0; for (std::size_t i = 0; i < n; ++i) s += p[i];
for (std::size_t i = 0; i < n; ++i) q[i] = s;
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) y[i] = p[i] / (q[i] + 1);
//// a_reduction [openmp]
const std::size_t m = n;
T s = 0;
#pragma omp parallel for firstprivate(x, m) reduction(+ : s)
for (std::size_t i = 0; i < m; ++i) s += x[i] * x[i];
for (std::size_t i = 0; i < n; ++i) y[i] = s * x[i];
//// a_product [openmp]: reduction
const std::size_t m = n;
T s = 1;
#pragma omp parallel for firstprivate(x, m) reduction(* : s)
for (std::size_t i = 0; i < m; ++i) s *= 1 + x[i] * x[i] / 9;
for (std::size_t i = 0; i < n; ++i) y[i] = s * x[i];
//// a_maximum [openmp]: reduction
const std::size_t m = n;
T s = x[0];
#pragma omp parallel for firstprivate(x, m) reduction(max : s)
for (std::size_t i = 0; i < m; ++i) s = std::max(s, x[i] * x[i]);
for (std::size_t i = 0; i < n; ++i) y[i] = s * x[i];
//// two_sums [openmp]: reduction
const std::size_t m = n;
T s = 0, t = 0;
#pragma omp parallel for firstprivate(x, m) reduction(+ : s, t)
for (std::size_t i = 0; i < m; ++i) { s += x[i]; t += x[i] * x[i]; }
for (std::size_t i = 0; i < n; ++i) y[i] = s * t * x[i];
//// by_blocks [openmp]: checked: not that of forward
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
const std::size_t w = (n + 3) / 4;
#pragma omp parallel for firstprivate(x, p, m, w)
for (std::size_t b = 0; b < 4; ++b) { T s = 0; for (std::size_t i = b * w; i < m && i < (b + 1) * w; ++i) s +=
std::exp(x[i]); if (b < m) p[b] = s; }
T s = 0; for (std::size_t b = 0; b < 4 && b < n; ++b) s += p[b];
for (std::size_t i = 0; i < n; ++i) y[i] = x[i] / (1 + s);
//// static_schedule [openmp]
const std::size_t m = n;
#pragma omp parallel for schedule(static) firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = std::tanh(x[i]) * x[i];
//// static_chunks [openmp]: chunk
const std::size_t m = n;
#pragma omp parallel for schedule(static, 3) firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = std::tanh(x[i]) * x[i];
//// dynamic_schedule [openmp]: dispatch
const std::size_t m = n;
#pragma omp parallel for schedule(dynamic) firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = std::tanh(x[i]) * x[i];
//// guided_schedule [openmp]: dispatch
const std::size_t m = n;
#pragma omp parallel for schedule(guided, 2) firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) y[i] = std::tanh(x[i]) * x[i];
//// collapsed [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
#pragma omp parallel for collapse(2) firstprivate(x, y, m)
for (std::size_t i = 0; i < m; ++i) for (int k = 0; k < 1; ++k) y[i + std::size_t(k)] = x[i] * x[(i + 1) % m];
//// a_region [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
#pragma omp parallel firstprivate(x, y, m, p)
{
#pragma omp for
for (std::size_t i = 0; i < m; ++i) p[i] = x[i] * x[i];
#pragma omp for
for (std::size_t i = 0; i < m; ++i) y[i] = p[i] * p[m - 1 - i];
}
//// rounds [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) p[i] = x[i];
for (int t = 0; t < 3; ++t) {
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) q[i] = p[i] + T(.1) * p[(i + 1) % m];
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) p[i] = q[i] * q[i] / 2;
}
#pragma omp parallel for firstprivate(x, y, m, p, q)
for (std::size_t i = 0; i < m; ++i) y[i] = p[i];
//// atomic [openmp]
const std::size_t m = n; std::vector<T> a(m), b(m); T *p = a.data(), *q = b.data();
for (std::size_t i = 0; i < n; ++i) p[i] = 0;
#pragma omp parallel for firstprivate(x, p, m)
for (std::size_t i = 0; i < m; ++i) {
#pragma omp atomic
p[i / 2] += x[i] * x[i];
}
for (std::size_t i = 0; i < n; ++i) y[i] = p[i / 2] * x[i];
//// critical [openmp]: critical section
const std::size_t m = n;
T s = 0;
#pragma omp parallel for firstprivate(x, m) shared(s)
for (std::size_t i = 0; i < m; ++i) {
#pragma omp critical
s = std::max(s, x[i]);
}
for (std::size_t i = 0; i < n; ++i) y[i] = s * x[i];
//// by_its_number [openmp]: omp_get_thread_num
const std::size_t m = n;
#pragma omp parallel firstprivate(x, y, m)
for (std::size_t i = std::size_t(omp_get_thread_num()); i < m; i += std::size_t(omp_get_num_threads())) y[i] = x[i] *
x[i];
//// sections [openmp]
const std::size_t m = n;
#pragma omp parallel sections firstprivate(x, y, m)
{
#pragma omp section
for (std::size_t i = 0; i < m / 2; ++i) y[i] = x[i] * x[i];
#pragma omp section
for (std::size_t i = m / 2; i < m; ++i) y[i] = std::sin(x[i]);
}
//// tasks [openmp]: single
const std::size_t m = n;
#pragma omp parallel firstprivate(x, y, m)
#pragma omp single
for (std::size_t i = 0; i < m; ++i) {
#pragma omp task firstprivate(x, y, i)
y[i] = x[i] * x[i];
}
//// vectors [openmp]
const std::size_t m = n;
#pragma omp simd
for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * std::exp(x[i]);
