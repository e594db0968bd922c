# shellcheck shell=bash
ABOUT="crate oxipng 10.2.1; Rust, and C (libdeflate, from its crate); 1 thread (built without rayon)"

fetch() { crate_source oxipng 10.2.1; }

build() { rust_program oxipng --no-default-features --features binary; }

inputs() {
    gen png 1 600 0 >a.png
    gen png 2 700 0 >b.png
    gen png 3 800 1 >c.png
    gen png 4 600 2 >d.png
}

train() { x -q -o 2 --stdout a.png; }

ref() {
    x -q -o 4 -i 1 --stdout b.png
    x -q -o 4 --stdout c.png
    x -q -o 3 -a --stdout d.png
}
