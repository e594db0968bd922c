# shellcheck shell=bash
ABOUT="source package quickjs 2025.04.26-1 (Debian 13); C; 1 thread; JS_CallInternal is one big switch; built without the interactive shell"

fetch() { debian_source quickjs 2025.04.26-1 newer; }

build() {
    # The shell's byte code would be made by running the freshly built compiler.
    printf '#include <stdint.h>\nconst uint32_t qjsc_repl_size = 0;\nconst uint8_t qjsc_repl[1] = {0};\n' >repl.c
    compile '-fwrapv -D_GNU_SOURCE -DCONFIG_VERSION="\"2025-04-26\""' "-lm -ldl -lpthread" qjs.c repl.c quickjs.c dtoa.c libregexp.c libunicode.c cutils.c quickjs-libc.c
}

inputs() { cp "$HERE/inputs/bench.js" .; }

train() { x --std bench.js train; }

ref() { x --std bench.js ref; }

suite() {
    local program
    while IFS= read -r program; do x --std -e "$program"; done <"$HERE/inputs/suite.js"
    x -q
    x -s 1 --script none.js
    x -s 1 -e 'throw new Error("wrong")'
    x -s 1 -e 'let = = 3'
}
