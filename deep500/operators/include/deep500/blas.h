// Matrix products for operators, under the names and with the arguments of BLAS, so that Enzyme takes its own rule for
// them: the gradient of a product is two products, not the reverse of its loops. Single thread; row-major only.
//
//   d5::product(d5::plain, d5::transposed, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);   // c = alpha a b' + beta c
//
// Blocked as Goto and van de Geijn have it (ACM TOMS 34, 2008): panels of b are packed, a tile of c stays in registers.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

namespace d5 {
constexpr int plain = 111, transposed = 112;
}  // namespace d5

// Compilers that prefer registers of half that width would make two of each, and run out of them: half the speed.
#if defined(__clang__) && defined(__AVX512F__)
#define D500_WIDE __attribute__((min_vector_width(512)))
#else
#define D500_WIDE
#endif

namespace d500_detail {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, tile_rows = 12;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, tile_rows = 6;
#else
constexpr int vector_bytes = 16, tile_rows = 4;
#endif
constexpr int unread = 501;                               // an order of axes that no BLAS has
constexpr int panel_depth = 256, panel_bytes = 1024;  // of b: 256 rows of 256 floats, 256 KiB

template <class T>
struct tile {
  typedef T vector __attribute__((vector_size(vector_bytes)));
  static constexpr int lanes = vector_bytes / sizeof(T), columns = 2 * lanes;

  /// c[rows][used] = alpha a b + beta c; a's element (i, p) is at a[i * down + p * along], b is a packed panel.
  template <int rows>
  D500_WIDE static inline void multiply(int depth, const T *a, std::size_t down, std::size_t along, const T *b, T alpha, T beta, T *c,
                              std::size_t ldc, int used) {
    vector sum[rows][2] = {};
    for (int p = 0; p < depth; ++p, b += columns) {
      vector low, high;
      std::memcpy(&low, b, sizeof low);
      std::memcpy(&high, b + lanes, sizeof high);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        const T factor = a[i * down + p * along];
        sum[i][0] += factor * low;
        sum[i][1] += factor * high;
      }
    }
    for (int i = 0; i < rows; ++i) {
      T *const row = c + i * ldc;
      if (used == columns) {
        for (int half = 0; half < 2; ++half) {
          vector made = alpha * sum[i][half], old;
          if (beta != T(0)) {
            std::memcpy(&old, row + half * lanes, sizeof old);
            made += beta * old;
          }
          std::memcpy(row + half * lanes, &made, sizeof made);
        }
      } else {
        T line[columns];
        std::memcpy(line, sum[i], sizeof line);
        for (int j = 0; j < used; ++j) row[j] = alpha * line[j] + (beta != T(0) ? beta * row[j] : T(0));
      }
    }
  }

#if defined(__clang__) || __GNUC__ >= 12
  /// Rows and columns of a square of numbers change places, a bit of their numbers at a time (Eklundh 1972).
  template <int bit, std::size_t... lane>
  D500_WIDE static inline void transpose(vector *rows, std::index_sequence<lane...> numbers) {
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) {
      if (i & bit) continue;
      const vector a = rows[i], b = rows[i + bit];
      rows[i] = __builtin_shufflevector(a, b, (int(lane) & bit ? lanes + int(lane) - bit : int(lane))...);
      rows[i + bit] = __builtin_shufflevector(a, b, (int(lane) & bit ? lanes + int(lane) : int(lane) + bit)...);
    }
    if constexpr (2 * bit < lanes) transpose<2 * bit>(rows, numbers);
  }
#endif

  /// Panels of `columns` columns, one behind the other; zeros where b ends.
  D500_WIDE static inline void pack(bool turned, const T *b, std::size_t ldb, int depth, int width, T *packed) {
    for (int first = 0; first < width; first += columns, packed += std::size_t(depth) * columns) {
      const int used = width - first < columns ? width - first : columns;
      if (used < columns) std::memset(packed, 0, sizeof(T) * depth * columns);
      if (!turned) {
        for (int p = 0; p < depth; ++p) {
          if (used == columns)
            std::memcpy(packed + p * columns, b + p * ldb + first, sizeof(T) * columns);
          else
            for (int j = 0; j < used; ++j) packed[p * columns + j] = b[p * ldb + first + j];
        }
        continue;
      }
      int p = 0;
#if defined(__clang__) || __GNUC__ >= 12
      for (; used == columns && p + lanes <= depth; p += lanes)
        for (int half = 0; half < columns; half += lanes) {
          vector rows[lanes];
#pragma GCC unroll 16
          for (int j = 0; j < lanes; ++j) std::memcpy(rows + j, b + std::size_t(first + half + j) * ldb + p, sizeof(vector));
          transpose<1>(rows, std::make_index_sequence<lanes>());
#pragma GCC unroll 16
          for (int q = 0; q < lanes; ++q) std::memcpy(packed + (p + q) * columns + half, rows + q, sizeof(vector));
        }
#endif
      for (; p < depth; p += 16)  // sixteen of each row at a time: a line of the cache
        for (int j = 0; j < used; ++j) {
          const T *const from = b + std::size_t(first + j) * ldb + p;
          const int end = depth - p < 16 ? depth - p : 16;
          for (int q = 0; q < end; ++q) packed[(p + q) * columns + j] = from[q];
        }
    }
  }

  static inline void product(bool turned_a, bool turned_b, int m, int n, int k, T alpha, const T *a, std::size_t lda,
                             const T *b, std::size_t ldb, T beta, T *c, std::size_t ldc) {
    constexpr int most = panel_bytes / int(sizeof(T));
    alignas(64) T packed[panel_depth * most];
    const std::size_t down = turned_a ? 1 : lda, along = turned_a ? lda : 1;
    if (k == 0)
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) c[i * ldc + j] = beta != T(0) ? beta * c[i * ldc + j] : T(0);
    for (int start = 0; start < k; start += panel_depth) {
      const int depth = k - start < panel_depth ? k - start : panel_depth;
      const T kept = start ? T(1) : beta;
      for (int left = 0; left < n; left += most) {
        const int width = n - left < most ? n - left : most;
        pack(turned_b, turned_b ? b + left * ldb + start : b + start * ldb + left, ldb, depth, width, packed);
        int i = 0;
        for (; i + tile_rows <= m; i += tile_rows)
          strip<tile_rows>(depth, a + i * down + start * along, down, along, packed, alpha, kept, c + i * ldc + left, ldc, width);
        for (; i + 4 <= m; i += 4)
          strip<4>(depth, a + i * down + start * along, down, along, packed, alpha, kept, c + i * ldc + left, ldc, width);
        for (; i < m; ++i)
          strip<1>(depth, a + i * down + start * along, down, along, packed, alpha, kept, c + i * ldc + left, ldc, width);
      }
    }
  }

  template <int rows>
  static inline void strip(int depth, const T *a, std::size_t down, std::size_t along, const T *packed, T alpha, T beta, T *c,
                           std::size_t ldc, int width) {
    for (int j = 0; j < width; j += columns)
      multiply<rows>(depth, a, down, along, packed + std::size_t(j) * depth, alpha, beta, c + j, ldc,
                     width - j < columns ? width - j : columns);
  }

  static inline T dot(int n, const T *a, std::size_t step_a, const T *b, std::size_t step_b) {
    T part[4 * lanes] = {}, sum = T(0);  // side by side: one sum has an order that a compiler must keep
    int i = 0;
    if (step_a == 1 && step_b == 1)
      for (; i + 4 * lanes <= n; i += 4 * lanes)
        for (int lane = 0; lane < 4 * lanes; ++lane) part[lane] += a[i + lane] * b[i + lane];
    for (; i < n; ++i) sum += a[i * step_a] * b[i * step_b];
    for (int width = 2 * lanes; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
    return sum + part[0];
  }

  /// b += alpha a, which is what the gradient of a dot product is made of.
  static inline void add(int n, T alpha, const T *__restrict__ a, std::size_t step_a, T *__restrict__ b, std::size_t step_b) {
    if (step_a == 1 && step_b == 1)
      for (int i = 0; i < n; ++i) b[i] += alpha * a[i];
    else
      for (int i = 0; i < n; ++i) b[i * step_b] += alpha * a[i * step_a];
  }

  /// c *= to / from, by which Enzyme's rule ends: the product's own shadow is used up.
  static inline void scale(T from, T to, int m, int n, T *c, std::size_t ldc) {
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) c[i * ldc + j] = to == T(0) ? T(0) : c[i * ldc + j] * (to / from);
  }
};

}  // namespace d500_detail

// Hidden and found first: whatever BLAS the process has loaded stays what it is. Products are said by columns, c' = b' a':
// of factors that go by rows Enzyme may keep a copy, whose leading dimension it then gets wrong.
#define D500_BLAS(LETTER, T)                                                                                                  \
  extern "C" __attribute__((noinline, used, visibility("hidden"))) inline void cblas_##LETTER##gemm(                         \
      int order, int turn_a, int turn_b, int m, int n, int k, T alpha, const T *a, int lda, const T *b, int ldb, T beta,      \
      T *c, int ldc) {                                                                                                        \
    if (order == d500_detail::unread && beta == T(0)) return; /* the products of its gradient are added: their beta is 1 */  \
    d500_detail::tile<T>::product(turn_b == d5::transposed, turn_a == d5::transposed, n, m, k, alpha, b, std::size_t(ldb), a, \
                                  std::size_t(lda), beta, c, std::size_t(ldc));                                               \
  }                                                                                                                           \
  extern "C" __attribute__((noinline, used, visibility("hidden"))) inline void cblas_##LETTER##lascl(                        \
      int, char, int, int, T from, T to, int m, int n, T *c, int ldc, int *) {                                                \
    d500_detail::tile<T>::scale(from, to, n, m, c, std::size_t(ldc));                                                         \
  }                                                                                                                           \
  extern "C" __attribute__((noinline, used, visibility("hidden"))) inline T cblas_##LETTER##dot(                             \
      int n, const T *a, int step_a, const T *b, int step_b) {                                                                \
    return d500_detail::tile<T>::dot(n, a, std::size_t(step_a), b, std::size_t(step_b));                                      \
  }                                                                                                                           \
  extern "C" __attribute__((noinline, used, visibility("hidden"))) inline void cblas_##LETTER##axpy(                         \
      int n, T alpha, const T *a, int step_a, T *b, int step_b) {                                                             \
    d500_detail::tile<T>::add(n, alpha, a, std::size_t(step_a), b, std::size_t(step_b));                                      \
  }                                                                                                                           \
  namespace d5 {                                                                                                              \
  /** a[0] b[0] + ... + a[n - 1] b[n - 1] */                                                                                  \
  static inline T dot(std::size_t n, const T *a, const T *b) { return cblas_##LETTER##dot(int(n), a, 1, b, 1); }              \
  /** c = alpha a b + beta c, with a and b as they are or transposed; m x n, over k. */                                       \
  static inline void product(int turn_a, int turn_b, std::size_t m, std::size_t n, std::size_t k, T alpha, const T *a,        \
                             std::size_t lda, const T *b, std::size_t ldb, T beta, T *c, std::size_t ldc) {                   \
    cblas_##LETTER##gemm(102, turn_b, turn_a, int(n), int(m), int(k), alpha, b, int(ldb), a, int(lda), beta, c, int(ldc));    \
  }                                                                                                                           \
  /** c = alpha a b for a surrogate that is linear in c, of which only the gradient is wanted: c is not written. */           \
  static inline void unread_product(int turn_a, int turn_b, std::size_t m, std::size_t n, std::size_t k, T alpha, const T *a, \
                                    std::size_t lda, const T *b, std::size_t ldb, T *c, std::size_t ldc) {                    \
    cblas_##LETTER##gemm(d500_detail::unread, turn_b, turn_a, int(n), int(m), int(k), alpha, b, int(ldb), a, int(lda), T(0),  \
                         c, int(ldc));                                                                                        \
  }                                                                                                                           \
  }
D500_BLAS(s, float)
D500_BLAS(d, double)
#undef D500_BLAS
#undef D500_WIDE
