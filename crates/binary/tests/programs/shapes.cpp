// Exceptions, virtual calls, templates with cold code, tables of functions.
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>
#include <variant>
#include <stdexcept>
struct Shape { virtual double area() const = 0; virtual ~Shape() = default; };
struct Circle : Shape { double r; Circle(double r) : r(r) {} double area() const override { return 3 * r * r; } };
struct Square : Shape { double a; Square(double a) : a(a) { if (a < 0) throw std::invalid_argument("negative"); } double area() const override { return a * a; } };
int kind(const std::string& s) {
  switch (s.size()) { case 0: throw 1; case 1: return s[0]; case 2: return 7 * s[1]; case 3: return s[0] ^ s[2]; case 4: throw std::runtime_error(s); case 5: return 9; case 7: return 3 + s[6]; default: return -1; }
}
int main(int argc, char** argv) {
  std::vector<std::unique_ptr<Shape>> shapes;
  std::map<std::string, int> m;
  for (int i = 0; i < argc + 5; i++) {
    try { shapes.push_back(i % 2 ? std::unique_ptr<Shape>(new Circle(i)) : std::unique_ptr<Shape>(new Square(3 - i)));
      m[std::string(i, 'x')] = kind(std::string(i, 'y')); }
    catch (const std::invalid_argument& e) { std::cout << "bad " << e.what() << "\n"; }
    catch (const std::runtime_error& e) { std::cout << "rt " << e.what() << "\n"; }
    catch (int k) { std::cout << "int " << k << "\n"; }
  }
  double s = 0; for (auto& p : shapes) s += p->area();
  for (auto& [k, v] : m) std::cout << k << v << "\n";
  std::regex re("a(b|c)*d"); std::cout << s << std::regex_search("xxabcbcd", re) << "\n";
  std::variant<int, std::string, double> v = "text"; if (argc > 1) v = 2.0;
  std::visit([](auto& x) { std::cout << x << "\n"; }, v);
}
