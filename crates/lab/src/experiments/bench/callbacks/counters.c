// What `-fsanitize-coverage=inline-8bit-counters` calls once for each image: a fuzzer would keep the place of the counters. All is weak, since some builds
// hand their linker flags, and so this object, over twice.
__attribute__((weak)) char *__bench_counters, *__bench_counters_end;

__attribute__((weak)) void __sanitizer_cov_8bit_counters_init(char *start, char *stop) {
    __bench_counters = start;
    __bench_counters_end = stop;
}
