"""C++ operators that several tests compile."""

from __future__ import annotations

POWER = """
#include "deep500/deep500.h"
#include <cmath>
{using}
template <typename T>
class ipow : public {scope}CustomOperator {{
protected:
    int m_len;
public:
    ipow(int len) : m_len(len) {{}}
    virtual ~ipow() {{}}
    virtual bool supports_cuda() {{ return false; }}
    void forward(const T *input, T *output) {{
        #pragma omp parallel for
        for (int i = 0; i < m_len; ++i)
            output[i] = std::pow(input[i], DPOWER);
    }}
    void backward(const T *nextop_grad, const T *fwd_input, const T *fwd_output, T *input_grad) {{
        #pragma omp parallel for
        for (int i = 0; i < m_len; ++i)
            input_grad[i] = nextop_grad[i] * DPOWER * std::pow(fwd_input[i], DPOWER - 1);
    }}
    virtual int64_t report(void *data) {{ return m_len; }}
}};

D500_EXPORTED void *create_new_op({scope}tensor_t *input_descriptors, int num_inputs,
                                  {scope}tensor_t *output_descriptors, int num_outputs) {{
    size_t totalsz = 1;
    for (int i = 0; i < input_descriptors[0].dims; ++i)
        totalsz *= input_descriptors[0].sizes[i];
    if (input_descriptors[0].type != {scope}TT_FLOAT || num_inputs != 1 || num_outputs != 1) return nullptr;
    return new ipow<float>(totalsz);
}}

D500_REGISTER_OP(ipow<float>){end}
"""
"""The power operator in the form that the original Deep500 had."""

WEIGHTED = """
#include "deep500/deep500.h"
typedef D500_DTYPE T;
struct weighted : deep500::CustomOperator {       // scores (n, m), choice (n) -> s * scores[i, choice[i]], row sums
  std::size_t n, m;
  weighted(std::size_t n, std::size_t m) : n(n), m(m) {}
  void forward(const T *scores, const int64_t *choice, const T *s, T *picked, T *sums) {
    for (std::size_t i = 0; i < n; ++i) {
      picked[i] = s[0] * scores[i * m + choice[i]];
      sums[i] = 0;
      for (std::size_t j = 0; j < m; ++j) sums[i] += scores[i * m + j];
    }
  }
  void backward(const T *dpicked, const T *dsums, const T *scores, const int64_t *choice, const T *s, const T *,
                const T *, T *dscores, int64_t *, T *ds) {
    ds[0] = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < m; ++j) dscores[i * m + j] = dsums[i];
      dscores[i * m + choice[i]] += dpicked[i] * s[0];
      ds[0] += dpicked[i] * scores[i * m + choice[i]];
    }
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new weighted(in[0].sizes[0], in[0].sizes[1]);
}
D500_REGISTER_OP(weighted);
"""
"""Three inputs, one of integers; two outputs."""

SCRATCH = """
#include "deep500/deep500.h"
#include "deep500/math.h"
#include <stdexcept>
template <class T> struct reversed_sum : deep500::CustomOperator {   // running sums from the end
  std::size_t n;
  explicit reversed_sum(std::size_t n) : n(n) {}
  std::size_t scratch() const { return n; }
  int forward(const T *x, T *y, T *reversed) {
    if (n > 6) return 3;
    for (std::size_t i = 0; i < n; ++i) reversed[i] = x[n - 1 - i];
    d5::compute_t<T> sum = 0;
    for (std::size_t i = 0; i < n; ++i) y[i] = sum += reversed[i];
    return 0;
  }
  int backward(const T *dy, const T *, const T *, T *dx, T *sums) {
    d5::compute_t<T> sum = 0;
    for (std::size_t i = n; i-- > 0;) sums[i] = sum += dy[i];
    for (std::size_t i = 0; i < n; ++i) dx[n - 1 - i] = sums[i];
    return 0;
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  if (in[0].dims != 1) throw std::invalid_argument("only vectors");
  return new reversed_sum<D500_DTYPE>(in[0].size());
}
D500_REGISTER_OP(reversed_sum<D500_DTYPE>);
"""
"""Scratch space, status codes, any floating-point dtype."""


def power(using: bool = False) -> str:
    """The historical power operator, with or without ``using namespace``."""
    names = {"using": "using namespace deep500;", "scope": "", "end": ""}
    return POWER.format(**names if using else {"using": "", "scope": "deep500::", "end": ";"})


def simple(body: str, before: str = "") -> str:
    """An operator of one input and one output, made without create_new_op."""
    return (
        f'{before}#include "deep500/deep500.h"\n#include <stdexcept>\n'
        "struct simple : deep500::CustomOperator {\n"
        f"  void forward(const float *x, float *y) {{\n    {body}\n  }}\n}};\n"
        "D500_REGISTER_OP(simple);\n"
    )
