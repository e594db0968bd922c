#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>
static int value;
static std::vector<int> v(3);
__attribute__((noinline)) static int work(int n) { return n * 3 + 1; }
__attribute__((noinline)) static void deeper(int n) { value += work(n); value += v.at(n % 5); value += work(n + 1); if (n % 3 == 0) throw n; value += 2; }
__attribute__((noinline)) static void rethrow(int n) { value += work(n); std::rethrow_exception(std::make_exception_ptr(n)); }
__attribute__((noinline)) static void middle(int n) { if (n % 7 == 6) rethrow(n); deeper(n); value ^= 1; deeper(n + 1); value++; }
int main() {
  for (int i = 0; i < 100; i++) try { middle(i); } catch (int) { value += work(2); } catch (std::exception &) { value--; }
  printf("%d\n", value);
}
