// What `-fsanitize-coverage=inline-8bit-counters` calls once for each image: a fuzzer would keep the place of the counters.
char *__bench_counters, *__bench_counters_end;

void __sanitizer_cov_8bit_counters_init(char *start, char *stop) {
    __bench_counters = start;
    __bench_counters_end = stop;
}
