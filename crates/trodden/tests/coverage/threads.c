// Eight threads in one function.
#include <pthread.h>
#include <stdio.h>

static int work(int n) {
  int s = 0;
  for (int i = 0; i < n; i++) {
    if (i % 3 == 0 && i % 5)
      s += i;
    else if (i & 4)
      s--;
  }
  return s;
}

static void *run(void *p) { return (void *)(long)work(*(int *)p); }

int main(void) {
  pthread_t t[8];
  int n[8];
  long s = 0;
  for (int i = 0; i < 8; i++) {
    n[i] = 1000 * i;
    pthread_create(&t[i], 0, run, &n[i]);
  }
  for (int i = 0; i < 8; i++) {
    void *r;
    pthread_join(t[i], &r);
    s += (long)r;
  }
  printf("%ld\n", s);
}
