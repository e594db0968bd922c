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

suite() {
    local kind level
    for kind in text log csv json binary random zeros; do
        made "s-$kind" "$kind" 20 200000
        for level in --fast=4 -1 -2 -3 -5 -7 -9 -12 -15 -18 "--ultra -22"; do
            # shellcheck disable=SC2086
            x -q -c $level "s-$kind"
        done
        x -q -f -k "s-$kind" -o again.zst
        x -q -t again.zst
        x -q -d -c again.zst
        x -q -d -f again.zst -o again
        x -q -c --long "s-$kind"
        x -q -c --no-check -3 "s-$kind"
        x -i "s-$kind" -q -c
    done
    # More than a window: other strategies, and matches in a part of the past that lies elsewhere.
    for kind in text log binary random; do
        made "s-large-$kind" "$kind" 21 6000000
        for level in -1 -4 -7 -11; do x -q -c "$level" "s-large-$kind"; done
    done
    made s-empty text 1 0
    made s-small text 2 40
    x -q -c s-empty
    x -q -c s-small
    given mkdir -p s-parts
    given split -b 2000 s-json s-parts/
    x -q --train -r s-parts -o s-dictionary -f
    x -q -c -D s-dictionary s-json
    x -q -f -D s-dictionary s-csv -o again.zst
    x -q -d -c -D s-dictionary again.zst
    x -s 1 -q -d -c s-text
    x --version
}
