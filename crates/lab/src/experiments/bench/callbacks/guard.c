// A minimal edge counter for `-fsanitize-coverage=trace-pc-guard`. Guards are numbered from 1 when an image is loaded; guards beyond the
// table share slot 0. The callbacks are weak, because some builds pass their linker flags, and so this object, twice.
#include <stdint.h>

enum { PLACES = 1 << 20 };
static uint64_t counts[PLACES];
static uint32_t last;

__attribute__((weak)) void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop) {
    if (start == stop || *start) return;
    for (uint32_t *guard = start; guard < stop; guard++) *guard = last + 1 < PLACES ? ++last : 0;
}

__attribute__((weak)) void __sanitizer_cov_trace_pc_guard(uint32_t *guard) { counts[*guard]++; }
