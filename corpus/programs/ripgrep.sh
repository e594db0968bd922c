# shellcheck shell=bash
ABOUT="crate ripgrep 15.2.0; Rust; 1 thread (-j1)"

fetch() { crate_source ripgrep 15.2.0; }

build() { rust_program rg; }

inputs() {
    mkdir -p t r/a r/b
    gen text 1 40000000 >t/text
    gen text 2 80000000 >r/a/book
    gen log 3 80000000 >r/b/log
    gen csv 4 40000000 >r/a/table.csv
    gen random 5 1000000 >r/b/random
}

train() { x --no-config -j1 --sort path -o -r '$2-$1' '(\w+)ck (\w+)' t; }

ref() {
    x --no-config -j1 --sort path -n -o -r '$1:$2' -e '(\w{2,})(ing?|ck) (?:[^aeiou\s]\w*)\b' -e 'took ([1-4]\d{3})\.(\d+) ms' -e '^(\d+),.*-0[1-6]-(\d\d).*s"?"' r
}
