# shellcheck shell=bash
ABOUT="source package x264 0.164.3095+gitbaee400-3; C; 1 thread; video encoder, without assembler"

fetch() { debian_source x264 2:0.164.3095+gitbaee400-3; }

build() {
    configure --disable-asm --disable-opencl --disable-avs --disable-swscale --disable-lavf --disable-ffms --disable-gpac --disable-lsmash --disable-interlaced --disable-thread --bit-depth=8 \
        --extra-cflags="$CFLAGS" --extra-ldflags="$LDFLAGS"
    make -j"$JOBS"
    cp x264 "$BIN"
}

inputs() {
    gen video 1 80 >train.yuv
    gen video 2 140 >ref.yuv
}

train() {
    x --quiet --no-progress --input-res 352x288 --threads 1 --preset veryfast -o train.264 train.yuv
    file train.264
}

ref() {
    x --quiet --no-progress --input-res 352x288 --threads 1 --preset medium -o ref.264 ref.yuv
    file ref.264
}
