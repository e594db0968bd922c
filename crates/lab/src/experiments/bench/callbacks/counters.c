// Called once per image by code built with `-fsanitize-coverage=inline-8bit-counters`; a fuzzer would remember where the counters are.
// All symbols are weak, because some builds pass their linker flags, and so this object, twice.
__attribute__((weak)) char *__bench_counters, *__bench_counters_end;

__attribute__((weak)) void __sanitizer_cov_8bit_counters_init(char *start, char *stop) {
    __bench_counters = start;
    __bench_counters_end = stop;
}
