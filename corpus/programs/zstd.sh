# shellcheck shell=bash
ABOUT="source package libzstd 1.5.4+dfsg2-5; C; 1 thread; built without threads, assembler and old formats"

fetch() { debian_source libzstd 1.5.4+dfsg2-5; }

build() {
    compile "-Ilib -Ilib/common -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0 -DXXH_NAMESPACE=ZSTD_" "" lib/{common,compress,decompress,dictBuilder}/*.c programs/*.c
}

inputs() {
    gen text 1 15000000 >text
    gen text 2 12000000 >book
    gen log 3 12000000 >log
    gen binary 4 8000000 >bin
    gen random 5 2000000 >random
}

train() { x -q -c -6 text; }

ref() { x -q -c -11 book log bin random; }
