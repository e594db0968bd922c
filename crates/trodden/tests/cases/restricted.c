// Limits its own resources (`as`, `nofile`, `fsize`) or joins a control group with limited memory, and then works in a thread, in a child
// and in the main thread. It prints what it computed and what the system refused.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int step(int n) { return n & 1 ? n * 3 : n / 2; }

static long work(int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) sum += step(i);
    return sum;
}

static void *of_thread(void *unused) { return (void *)work(100); }

static void limit(int what, rlim_t to) {
    struct rlimit limit = { to, to };
    if (setrlimit(what, &limit)) _exit(99);
}

int main(int count, char **words) {
    static char stack[1 << 18] __attribute__((aligned(4096)));
    pthread_attr_t attributes;
    pthread_t thread;
    void *sum = 0;
    long own = work(10), memory = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, sizeof stack);
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "as")) limit(RLIMIT_AS, 1 << 20);
        if (!strcmp(words[i], "nofile")) limit(RLIMIT_NOFILE, 0);
        if (!strcmp(words[i], "fsize")) limit(RLIMIT_FSIZE, 0);
        if (strchr(words[i], '/')) {
            FILE *group = fopen(words[i], "w");
            if (!group || fprintf(group, "%d\n", getpid()) < 0 || fclose(group)) _exit(98);
        }
        // The number of megabytes to touch.
        memory += atoi(words[i]);
    }
    int made = pthread_create(&thread, &attributes, of_thread, 0);
    if (!made) pthread_join(thread, &sum);
    printf("%ld %d %ld\n", own, made, (long)sum);
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(work(5));
    int status = -1;
    waitpid(child, &status, 0);
    for (long i = 0; i < memory; i++) {
        char *piece = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED) break;
        memset(piece, 1, 1 << 20);
    }
    int file = open("/dev/null", O_RDONLY), refused = file < 0 ? errno : 0;
    int page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? errno : 0;
    printf("%ld %d %d %d\n", work(1000), WEXITSTATUS(status), refused, page);
    return 3;
}
