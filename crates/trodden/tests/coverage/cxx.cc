// Templates, exceptions, destructors, lambdas, virtual functions.
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

template <class T> T most(const std::vector<T> &v) {
  if (v.empty())
    throw std::runtime_error("empty");
  T m = v[0];
  for (auto &x : v)
    if (m < x)
      m = x;
  return m;
}

struct Guard {
  int &n;
  Guard(int &n) : n(n) {}
  ~Guard() {
    if (n > 2)
      n--;
    else
      n++;
  }
};

static int risky(int n) {
  Guard g(n);
  if (n % 5 == 3)
    throw n;
  if (n % 7 == 2)
    throw std::runtime_error("seven");
  return n;
}

template <int N> int fold(int x) {
  if constexpr (N == 0)
    return x;
  else
    return (x & N) ? fold<N - 1>(x + 1) : fold<N - 1>(x);
}

struct Shape {
  virtual ~Shape() = default;
  virtual int area() const { return 0; }
};

struct Square : Shape {
  int a;
  Square(int a) : a(a) {}
  int area() const override { return a > 3 ? a * a : a; }
};

int main() {
  int s = 0;
  std::map<std::string, int> m;
  for (int i = 0; i < 50; i++) {
    try {
      s += risky(i);
    } catch (int e) {
      s -= e;
      m["int"]++;
    } catch (const std::exception &e) {
      m[e.what()] += s > 10 && i < 30;
    }
    s += fold<4>(i);
  }
  try {
    most(std::vector<int>{});
  } catch (...) {
    s++;
  }
  s += most(std::vector<int>{3, 1, 4});
  s += most(std::vector<long>{3, 1, 4, 7});
  Shape *a = new Square(s % 9);
  auto l = [&](int q) { return q > 3 || s < 2 ? q : a->area(); };
  s += l(2) + l(5);
  delete a;
  for (auto &[k, v] : m)
    std::printf("%s %d\n", k.c_str(), v);
  std::printf("%d\n", s);
}
