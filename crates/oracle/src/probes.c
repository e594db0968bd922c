/* The recorder with which probed programs are linked. It records in a shared mapping of a file, so that nothing is lost however the program
 * ends. SLOTS (the number of counters) is defined for counting probes, LOG_BYTES (the size of the log) for logging probes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    _exit(99);
}

static void *map_file(void *at, size_t size) {
    const char *name = getenv("ORACLE_FILE");
    int file = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, (off_t)size))
        fail("ORACLE_FILE");
    void *memory = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), file, 0);
    if (memory == MAP_FAILED)
        fail("ORACLE_FILE");
    close(file);
    return memory;
}

#ifdef SLOTS
#define BYTES ((SLOTS * 8ul + 4095) / 4096 * 4096)
unsigned char __oracle_counts[BYTES] __attribute__((aligned(4096)));

__attribute__((constructor(101))) static void begin(void) {
    unsigned long *early = malloc(BYTES);
    memcpy(early, __oracle_counts, BYTES);
    unsigned long *counts = map_file(__oracle_counts, BYTES);
    for (size_t i = 0; i < BYTES / 8; i++)
        if (early[i])
            __atomic_fetch_add(&counts[i], early[i], __ATOMIC_RELAXED);
    free(early);
}
#endif

#ifdef LOG_BYTES
/* Word 0: records used; word 1: tokens assigned. A record is token << 32 | kind << 29 | number. */
static unsigned long *log_words;

__attribute__((constructor(101))) static void begin(void) {
    if (!log_words)
        log_words = map_file(0, LOG_BYTES);
}

static void record(unsigned long token, unsigned long kind, unsigned long number) {
    if (!log_words)
        begin();
    unsigned long at = __atomic_fetch_add(&log_words[0], 1, __ATOMIC_RELAXED) + 2;
    if (at >= LOG_BYTES / 8 || token >> 32) {
        static const char full[] = "the execution log is full\n";
        (void)!write(2, full, sizeof full - 1);
        _exit(98);
    }
    log_words[at] = token << 32 | kind << 29 | number;
}

unsigned long __oracle_enter(unsigned long number) {
    if (!log_words)
        begin();
    unsigned long token = __atomic_add_fetch(&log_words[1], 1, __ATOMIC_RELAXED);
    record(token, 0, number);
    return token;
}
void __oracle_block(unsigned long token, unsigned long number) { record(token, 1, number); }
void __oracle_end(unsigned long token, unsigned long number) { record(token, 2, number); }
void __oracle_twice(unsigned long token, unsigned long number) { record(token, 3, number); }
void __oracle_tail(unsigned long token, unsigned long number) { record(token, 4, number); }
#endif
