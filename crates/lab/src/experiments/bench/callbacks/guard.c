// What `-fsanitize-coverage=trace-pc-guard` calls: the least that counts edges. Guards are numbered from 1 at start; the place of a guard that got
// no number, and of those beyond the table, is 0. What others see is weak, since some builds hand their linker flags, and so this object, over twice.
#include <stdint.h>

enum { PLACES = 1 << 20 };
static uint64_t counts[PLACES];
static uint32_t last;

__attribute__((weak)) void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop) {
    if (start == stop || *start) return;
    for (uint32_t *guard = start; guard < stop; guard++) *guard = last + 1 < PLACES ? ++last : 0;
}

__attribute__((weak)) void __sanitizer_cov_trace_pc_guard(uint32_t *guard) { counts[*guard]++; }
