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

suite() {
    local option
    made s-video.yuv video 3 12
    for option in "--preset ultrafast" "--preset superfast" "--preset veryfast" "--preset faster" "--preset fast" "--preset medium" "--preset slow" "--preset slower" "--preset veryslow" "--profile baseline" "--profile main" \
        "--qp 20" "--qp 0" "--crf 30" "--bitrate 300" "--bitrate 300 --vbv-maxrate 400 --vbv-bufsize 200" "--bframes 0" "--b-adapt 2 --bframes 8" "--no-cabac" "--no-deblock" "--me dia" "--me umh" "--me esa --merange 8" \
        "--subme 0" "--subme 10 --trellis 2" "--trellis 0" "--no-8x8dct" "--partitions all" "--ref 1" "--ref 6 --mixed-refs" "--weightp 0" "--weightp 2" "--aq-mode 0" "--aq-mode 3" "--direct auto" "--direct spatial" \
        "--keyint 1" "--keyint 5 --min-keyint 2" "--intra-refresh" "--tune grain" "--tune zerolatency" "--tune psnr --psnr" "--slices 3" "--rc-lookahead 4" "--no-mbtree" "--cqm jvt" "--crop-rect 0,0,8,8"; do
        # shellcheck disable=SC2086
        x --quiet --no-progress --input-res 352x288 --threads 1 $option -o s.264 s-video.yuv
        file s.264
    done
}
