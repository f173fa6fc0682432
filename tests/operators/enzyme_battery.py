"""Operators of the kinds that users write, one row each: what is in forward, and what is expected of its gradient."""

from __future__ import annotations

from dataclasses import dataclass

HEADERS = "".join(
    f"#include <{name}>\n"
    for name in (
        "algorithm",
        "array",
        "cmath",
        "cstdlib",
        "deque",
        "functional",
        "list",
        "map",
        "memory",
        "numeric",
        "optional",
        "queue",
        "set",
        "stdexcept",
        "string",
        "tuple",
        "unordered_map",
        "variant",
        "vector",
    )
)
EACH = "for (std::size_t i = 0; i < n; ++i) "


@dataclass(frozen=True)
class Row:
    """One operator on n numbers x, which writes n numbers y.

    Attributes:
        name: what is tried.
        body: of forward, where ``T`` is double.
        refused: what the error must match; right to 1e-9 if empty.
        before: what stands before the class.
    """

    name: str
    body: str
    refused: str = ""
    before: str = ""

    def unit(self, entry: str) -> str:
        """A unit whose class has this forward, with what calls it."""
        members = "std::size_t n;\nexplicit own(std::size_t n) : n(n) {}"
        forward = f"void forward(const double *x, double *y) {{\n{self.body}\n}}"
        own = f"struct own {{\n{members}\n{forward}\n}};"
        return f"{HEADERS}using T = double;\n{self.before}\n{own}\n{entry}"


# fmt: off
ROWS = [
    # -- containers
    Row("map with values",
        f"std::map<int, T> m; {EACH}m[int(i * 7 % 5)] += x[i] * x[i]; {EACH}y[i] = m[int(i % 5)] * x[i];"),
    Row("map with keys that are inputs",
        f"std::map<T, T> m; {EACH}m[x[i]] = x[i] * x[i] * x[i]; std::size_t i = 0;"
        "for (auto &p : m) { y[i] = p.first * p.second; ++i; } for (; i < n; ++i) y[i] = 0;"),
    Row("map with strings as keys",
        f'std::map<std::string, T> m; {EACH}m[std::string(i % 2 ? "odd" : "even")] += x[i] * x[i];'
        f'{EACH}y[i] = m["even"] * x[i];'),
    Row("map, elements taken out",
        f"std::map<int, T> m; {EACH}m[int(i)] = std::sin(x[i]); for (std::size_t i = 0; i < n; i += 2) m.erase(int(i));"
        f"T s = 0; for (auto &p : m) s += p.second * p.second; {EACH}y[i] = s * x[i];"),
    Row("map, backwards",
        f"std::map<int, T> m; {EACH}m[int(i)] = x[i] * x[i]; T s = 1;"
        f"for (auto p = m.rbegin(); p != m.rend(); ++p) s = s * T(.5) + p->second; {EACH}y[i] = s * x[i];"),
    Row("map as a memory of results",
        "std::map<std::pair<int, int>, T> memo; std::function<T(int, int)> f = [&](int a, int b) -> T {"
        "if (b - a <= 1) return x[a] * x[a]; auto p = memo.find({a, b}); if (p != memo.end()) return p->second;"
        "T r = f(a, (a + b) / 2) * T(.5) + std::sin(f((a + b) / 2, b)); memo[{a, b}] = r; return r; };"
        f"T s = f(0, int(n)); {EACH}y[i] = s * x[i];"),
    Row("multiset", "std::multiset<T> m(x, x + n); std::size_t i = 0; for (T v : m) { y[i] = v * v * T(i + 1); ++i; }"),
    Row("set of numbers of elements",
        f"std::set<int> m; {EACH}m.insert(int(i * 5 % 7)); T s = 0;"
        f"for (int k : m) s += x[std::size_t(k) % n] * x[std::size_t(k) % n]; {EACH}y[i] = s * x[i];"),
    Row("unordered_map",
        f"std::unordered_map<int, T> m; {EACH}m[int(i * 7 % 5)] += x[i] * x[i]; {EACH}y[i] = m[int(i % 5)] * x[i];"),
    Row("list", f"std::list<T> d; {EACH}d.push_back(x[i] * x[i]); d.reverse();"
        "std::size_t i = 0; for (T v : d) { y[i] = v * x[i]; ++i; }"),
    Row("list, sorted", f"std::list<T> d; {EACH}d.push_back(x[i]); d.sort();"
        "std::size_t i = 0; for (T v : d) { y[i] = v * v * T(i + 1); ++i; }"),
    Row("deque", f"std::deque<T> d; {EACH}{{ d.push_back(x[i] * x[i]); if (d.size() > 3) d.pop_front();"
        "T s = 0; for (T v : d) s += v; y[i] = s * x[i]; }"),
    Row("priority_queue", f"std::priority_queue<T> d; {EACH}d.push(x[i]);"
        f"{EACH}{{ y[i] = d.top() * d.top() * T(i + 1); d.pop(); }}"),
    Row("struct of vectors",
        f"layer l; {EACH}{{ l.a.push_back(x[i] * x[i]); l.b.push_back(std::sin(x[i])); }}"
        f"{EACH}y[i] = l.a[i] * l.b[n - 1 - i];", before="struct layer { std::vector<double> a, b; };"),
    Row("vectors of known size in a vector",
        f"std::vector<std::vector<T>> v(n, std::vector<T>(n)); {EACH}for (std::size_t j = 0; j < n; ++j)"
        f"v[i][j] = x[i] * x[j]; {EACH}{{ T s = 0; for (T u : v[i]) s += u; y[i] = s; }}"),
    Row("list of one's own",
        f"node *h = nullptr; {EACH}h = new node{{x[i] * x[i], h}}; std::size_t i = 0;"
        "while (h) { y[i] = h->v * x[i]; ++i; node *k = h->next; delete h; h = k; }",
        before="struct node { double v; node *next; };"),
    Row("tree of one's own",
        f"std::unique_ptr<leaf> r; {EACH}put(r, x[i]); T s = 1; walk(r, s); {EACH}y[i] = s * x[i];",
        before="struct leaf { double v; std::unique_ptr<leaf> l, r; };\n"
        "static void put(std::unique_ptr<leaf> &p, double v) {"
        " if (!p) p.reset(new leaf{v, {}, {}}); else put(v < p->v ? p->l : p->r, v); }\n"
        "static void walk(const std::unique_ptr<leaf> &p, double &s) {"
        " if (p) { walk(p->l, s); s = s * .5 + p->v * p->v; walk(p->r, s); } }"),
    # -- values
    Row("union", f"{EACH}{{ both u; u.d = x[i] * x[i]; y[i] = u.d * x[i]; }}",
        before="union both { double d; long long i; float f[2]; };"),
    Row("array", f"std::array<T, 4> a{{}}; {EACH}a[i % 4] += x[i] * x[i]; {EACH}y[i] = a[(i + 1) % 4] * x[i];"),
    Row("optional", f"std::optional<T> o; {EACH}{{ if (i % 2) o = x[i] * x[i]; else o.reset();"
        "y[i] = o.value_or(x[i] * 2) * x[i]; }"),
    Row("variant", f"std::variant<int, T> v; {EACH}{{ if (i % 2) v = x[i] * x[i]; else v = int(i);"
        "y[i] = std::holds_alternative<T>(v) ? std::get<T>(v) * x[i] : x[i] * std::get<int>(v); }"),
    Row("tuple", f"std::vector<std::tuple<T, int, T>> v; {EACH}v.emplace_back(x[i], int(i), x[i] * x[i]);"
        f"{EACH}{{ auto [a, b, c] = v[n - 1 - i]; y[i] = a * b + c * x[i]; }}"),
    # -- functions
    Row("function that adds to a number outside",
        f"T s = 0; std::function<void(T)> add = [&s](T v) {{ s += v * v; }}; {EACH}add(x[i]); {EACH}y[i] = s * x[i];"),
    Row("functions of functions",
        "std::function<T(T)> f = [](T v) { return v; };"
        f"for (int k = 0; k < 3; ++k) f = [f](T v) {{ return std::sin(f(v)) + v; }}; {EACH}y[i] = f(x[i]);"),
    Row("lambda, output read again",
        f"T s = 0; auto g = [&](auto v) {{ s += v; return v * v; }}; {EACH}y[i] = g(x[i]); {EACH}y[i] *= s;"),
    # -- algorithms
    Row("sort", f"std::vector<T> k(x, x + n); std::sort(k.begin(), k.end()); {EACH}y[i] = k[i] * k[i] * T(i + 1);"),
    Row("sort by an order of one's own",
        "std::vector<T> k(x, x + n); std::sort(k.begin(), k.end(), [](T a, T b) { return a > b; });"
        f"{EACH}y[i] = k[i] * k[i] * T(i + 1);"),
    Row("sort indices",
        "std::vector<int> k(n); std::iota(k.begin(), k.end(), 0);"
        "std::sort(k.begin(), k.end(), [&](int a, int b) { return x[a] < x[b]; });"
        f"{EACH}y[i] = x[k[i]] * x[k[i]] * T(i + 1);"),
    Row("sort outputs", f"{EACH}y[i] = x[i] * x[i] * x[i]; std::sort(y, y + n); {EACH}y[i] *= T(i + 1);"),
    Row("largest so far, by an iterator and by a pointer",
        f"const T *p = x; {EACH}{{ const T *m = std::max_element(x, x + i + 1); if (x[i] > *p) p = x + i;"
        "y[i] = *m * x[i] * *p; }"),
    Row("nth_element", f"std::vector<T> k(x, x + n); std::nth_element(k.begin(), k.begin() + n / 2, k.end());"
        f"{EACH}y[i] = k[n / 2] * x[i];"),
    Row("remove_if", "std::vector<T> v(x, x + n);"
        "v.erase(std::remove_if(v.begin(), v.end(), [](T a) { return a < 0; }), v.end());"
        f"{EACH}y[i] = i < v.size() ? v[i] * v[i] * T(i + 1) : x[i];"),
    Row("transform and partial_sum",
        "std::vector<T> v(n); std::transform(x, x + n, v.begin(), [](T a) { return std::exp(a); });"
        "std::partial_sum(v.begin(), v.end(), y);"),
    Row("exception that leaves forward",
        f'if (n > 100000) throw std::runtime_error("too many"); {EACH}y[i] = x[i] * x[i];'),
    Row("shortest ways by a set",
        "std::set<std::pair<T, std::size_t>> q; std::vector<T> d(n, 1e9); d[0] = 0; q.insert({0., 0});"
        "while (!q.empty()) { auto [c, u] = *q.begin(); q.erase(q.begin()); if (c > d[u]) continue;"
        "for (std::size_t s : {1, 3}) { std::size_t v = u + s; if (v >= n) continue;"
        "T w = d[u] + x[v] * x[v] + .1 * T(s);"
        f"if (w < d[v]) {{ d[v] = w; q.insert({{w, v}}); }} }} }} {EACH}y[i] = d[i] * d[i];"),
    Row("Newton's method",
        f"{EACH}{{ T r = 1; for (int k = 0; k < 20; ++k) {{ T d = (r * r * r + r - x[i]) / (3 * r * r + 1); r -= d;"
        "if (std::abs(d) < 1e-14) break; } y[i] = r; }"),
    Row("vector of bool", f"std::vector<bool> m(n); {EACH}m[i] = x[i] > 0; T s = 0; {EACH}if (m[i]) s += x[i] * x[i];"
        f"{EACH}y[i] = s * x[i];"),
    Row("virtual calls",
        f"std::vector<std::unique_ptr<base>> v; {EACH}if (i % 2) v.push_back(std::make_unique<square>());"
        f"else v.push_back(std::make_unique<sine>()); {EACH}y[i] = v[i]->at(x[i]);",
        before="struct base { virtual double at(double) const = 0; virtual ~base() {} };\n"
        "struct square : base { double at(double x) const override { return x * x; } };\n"
        "struct sine : base { double at(double x) const override { return std::sin(x); } };"),
    Row("lgamma with a gradient of its own",
        f"{EACH}y[i] = logarithm(x[i] * x[i] + 1);",
        before="static double digamma_of(double x) {\n"
        "  double sum = 0; for (; x < 30; x += 1) sum -= 1 / x;\n"
        "  const double r = 1 / (x * x);\n"
        "  return sum + std::log(x) - .5 / x - r * (1. / 12 - r * (1. / 120 - r * (1. / 252 - r / 240)));\n}\n"
        "__attribute__((noinline)) static double logarithm(double x) { return std::lgamma(x); }\n"
        "static double logarithm_augmented(double x) { return std::lgamma(x); }\n"
        "static double logarithm_gradient(double x, double seed) { return seed * digamma_of(x); }\n"
        "void *__enzyme_register_gradient_logarithm[] ="
        " {(void *)logarithm, (void *)logarithm_augmented, (void *)logarithm_gradient};"),
    # -- refused
    Row("static array", f"static T k[4096]; {EACH}k[i] = x[i] * x[i]; {EACH}y[i] = k[n - 1 - i] * x[i];",
        "what to change: a static or global variable holds what is computed"),
    Row("exception thrown and caught",
        f"{EACH}try {{ if (x[i] < 0) throw 1; y[i] = x[i] * x[i]; }}\ncatch (int) {{ y[i] = 0; }}",
        r"caught inside of forward.*\nline 28: catch \(int\)"),
    Row("exception of the library, caught",
        f"std::vector<T> v(x, x + n); {EACH}\ntry {{ y[i] = v.at(i + 1) * v[i]; }}\n"
        "catch (const std::out_of_range &) { y[i] = v[i] * v[i]; }",
        r"v\[i\] where i < v.size\(\) instead of v.at\(i\)(.|\n)*\nline 29: catch \(const"),
    Row("shared_ptr", "auto p = std::make_shared<std::vector<T>>(); auto q = p;"
        f"{EACH}q->push_back(x[i] * x[i]); {EACH}y[i] = (*p)[n - 1 - i] * x[i];",
        "use std::unique_ptr"),
    Row("visit", f"std::variant<int, T> v; {EACH}{{ if (i % 2) v = x[i] * x[i]; else v = int(i);"
        "y[i] = std::visit([](auto a) { return T(a) * T(a); }, v) * x[i]; }",
        "use std::get_if"),
    Row("vectors that change places",
        f"std::vector<T> p(2, 0), q(2); {EACH}{{ for (int s = 0; s < 2; ++s)"
        "q[s] = std::tanh(p[0] + (s ? x[i] : .3)) + p[1] * (s ? .2 : x[i] * x[i]) / 4; std::swap(p, q);"
        "y[i] = p[0] * p[1]; }"),
    Row("growing by pairs",
        "std::priority_queue<std::pair<T, std::size_t>> q; std::vector<T> d(n, 1e9); d[0] = 0; q.push({0., 0});"
        "while (!q.empty()) { auto [c, u] = q.top(); q.pop(); if (-c > d[u]) continue;"
        "for (std::size_t s : {1, 3}) { std::size_t v = u + s; if (v >= n) continue;"
        "T w = d[u] + x[v] * x[v] + .1 * T(s);"
        f"if (w < d[v]) {{ d[v] = w; q.push({{-w, v}}); }} }} }} {EACH}y[i] = d[i] * d[i];",
        r"reserve\(\) room before|sort a std::vector"),  # the engine names no line
    Row("texts", f'std::string s = "ab"; s += "c"; {EACH}y[i] = x[i] * x[i] * T(s.size());', "C\\+\\+ library's _ZNSt"),
    Row("qsort",
        "std::vector<T> v(x, x + n); std::qsort(v.data(), n, sizeof(T), [](const void *a, const void *b) -> int {"
        f"T u = *(const T *)a, w = *(const T *)b; return (u > w) - (u < w); }}); {EACH}y[i] = v[i];", "use std::sort"),
    Row("tgamma", f"{EACH}y[i] = std::tgamma(x[i] * x[i] + 1);", "expected it to: lgamma and tgamma(.|\\n)*digamma"),
    Row("lgamma", f"{EACH}y[i] = std::lgamma(x[i] * x[i] + 1);", "(?s)unknown subtype.*register its gradient"),
]
# fmt: on
ENTRY = """
template <class R, class... A> R __enzyme_autodiff(void *, A...);
extern int enzyme_dup, enzyme_dupnoneed, enzyme_const;
static void d500_primal(own *op, const double *__restrict__ x, double *__restrict__ y) { op->forward(x, y); }
__attribute__((noinline)) static void d500_reverse(own *op, const double *x, double *dx, double *y, double *dy) {
  __enzyme_autodiff<void>((void *)d500_primal, enzyme_const, op, enzyme_dup, x, dx, enzyme_dup, y, dy);
}
extern "C" void value(std::size_t n, const double *x, double *y) { own op(n); d500_primal(&op, x, y); }
extern "C" void gradient(std::size_t n, const double *x, double *dx, double *y, double *dy) {
  own *const op = new own(n);
  d500_reverse(op, x, dx, y, dy);
  delete op;
}
"""
