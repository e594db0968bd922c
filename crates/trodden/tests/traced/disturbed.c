// `disturbed KIND ROUNDS FILE`: works for some time, and writes what it computed to the file.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned rounds;

__attribute__((noinline)) static unsigned step(unsigned n) { return n % 3 ? n / 2 : n * 5 + 1; }

__attribute__((noinline)) static unsigned choose(unsigned n) {
    switch (n % 5) {
    case 0: return n + 1;
    case 1: return n * 3;
    case 2: return n ^ 77;
    case 3: return n / 2;
    default: return n - 9;
    }
}

static unsigned long loops(void) {
    unsigned long sum = 0;
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < 300; i++) sum = sum * 31 + step(i ^ r);
        if (r % 50 == 0) usleep(2000);
    }
    return sum;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long total;

static void *of_thread(void *unused) {
    unsigned long sum = 0;
    for (unsigned r = 0; r < rounds / 4; r++) {
        for (unsigned i = 0; i < 100; i++) sum += choose(i * r);
        if (r % 20 == 0) {
            pthread_mutex_lock(&lock);
            total += sum;
            pthread_mutex_unlock(&lock);
            sum = 0;
            usleep(1000);
        }
    }
    pthread_mutex_lock(&lock);
    total += sum;
    pthread_mutex_unlock(&lock);
    return 0;
}

static unsigned long threads(void) {
    for (int k = 0; k < 3; k++) {
        pthread_t all[4];
        for (int i = 0; i < 4; i++) pthread_create(&all[i], 0, of_thread, 0);
        for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
    }
    return total;
}

static void on_signal(int signal) {}

static unsigned long forks(void) {
    unsigned long sum = 0;
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    struct itimerval timer = { { 0, 3000 }, { 0, 3000 } };
    setitimer(ITIMER_REAL, &timer, 0);
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < 200; i++) sum = sum * 31 + step(i ^ r);
        if (r % 100 == 0) {
            kill(getpid(), SIGUSR1);
            pid_t child = fork();
            if (!child) {
                unsigned own = 0;
                for (unsigned i = 0; i < 500; i++) own += step(i);
                _exit(own & 63);
            }
            int status;
            while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
            sum += WIFEXITED(status) ? WEXITSTATUS(status) : 100000 + status;
        }
        if (r % 50 == 0) usleep(1500);
    }
    return sum;
}

/// Executes the program again for each round, with the same arguments.
static unsigned long execs(char **words) {
    const char *done = getenv("ROUND"), *before = getenv("SUM");
    unsigned round = done ? atoi(done) : 0;
    unsigned long sum = before ? strtoul(before, 0, 10) : 0;
    for (unsigned i = 0; i < 300; i++) sum = sum * 31 + step(i ^ round);
    if (round == rounds) return sum;
    char text[32];
    snprintf(text, sizeof text, "%u", round + 1);
    setenv("ROUND", text, 1);
    snprintf(text, sizeof text, "%lu", sum);
    setenv("SUM", text, 1);
    execv("/proc/self/exe", words);
    return 0;
}

int main(int count, char **words) {
    rounds = atoi(words[2]);
    int is_loops = !strcmp(words[1], "loops"), is_threads = !strcmp(words[1], "threads"), is_execs = !strcmp(words[1], "execs");
    unsigned long result = is_loops ? loops() : is_threads ? threads() : is_execs ? execs(words) : forks();
    FILE *file = fopen(words[3], "w");
    fprintf(file, "%lu\n", result);
    fclose(file);
    return is_loops ? 7 : is_threads ? 9 : is_execs ? 13 : 11;
}
