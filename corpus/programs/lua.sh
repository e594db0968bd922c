# shellcheck shell=bash
ABOUT="source package lua5.4 5.4.4-3+deb12u1; C; 1 thread; the interpreter loop luaV_execute is one big switch (computed goto)"

fetch() { debian_source lua5.4 5.4.4-3+deb12u1 upstream; }

build() {
    cd src
    rm -f luac.c
    compile "-std=gnu99 -DLUA_COMPAT_5_3 -DLUA_USE_POSIX" -lm ./*.c
}

inputs() { cp "$HERE/inputs/bench.lua" .; }

train() { x bench.lua train; }

ref() { x bench.lua ref; }

suite() {
    local chunk
    while IFS= read -r chunk; do x -e "$chunk"; done <"$HERE/inputs/suite.lua"
    x -v
    x -i /dev/null -
    x -s 1 -e 'error("wrong")'
    x -s 1 -e 'local = 3'
}
