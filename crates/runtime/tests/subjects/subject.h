/* What the instrumentation puts into a unit, written by hand: a record, an array of counters, and code that counts. */
#ifndef SUBJECT_H
#define SUBJECT_H

#ifndef COUNTERS
#define COUNTERS 8
#endif
#ifndef UNIT
#define UNIT 1
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

__asm__(".pushsection trodden_counters,\"aw\",@nobits\n"
        ".balign 8\n"
        "unit_counters: .zero 8*" TEXT(COUNTERS) "\n"
        ".popsection\n"
        ".pushsection trodden_units,\"aR\",@progbits\n"
        ".balign 8\n"
        "unit_record: .long 0x54524455, 2\n"
        ".fill 16, 1, " TEXT(UNIT) "\n"
        ".quad unit_counters - unit_record\n"
        ".quad " TEXT(COUNTERS) "\n"
        ".popsection\n");

extern long unit_counters[COUNTERS] __attribute__((visibility("hidden")));
extern __thread long __trodden_bias __attribute__((visibility("hidden"), tls_model("initial-exec")));
extern long __trodden_enter(void) __attribute__((visibility("hidden")));

/* At the entry of an instrumented function. */
#define ENTER long bias = __trodden_bias ? __trodden_bias : __trodden_enter()
/* At the end of a path. */
#define COUNT(index) (++*(volatile long *)((char *)&unit_counters[index] + bias))

#endif
