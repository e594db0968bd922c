# shellcheck shell=bash
# Builds: in a copy of the sources per build, so that several builds of one program live side by side.

build_beside() {
    local folder=$W/build/$BUILD/$P started=${EPOCHREALTIME/./} us
    [ -e "$SRC/.fetched" ] || die "$P: sources are missing; fetch them first"
    rm -rf "$folder" "$BIN"
    mkdir -p "$(dirname "$folder")" "$(dirname "$BIN")"
    cp -a "$SRC" "$folder"
    # A shell of its own, so that the first command that fails ends it.
    (cd "$folder" && exec bash "$HERE/recipe.sh" build-here "$P" "$W") </dev/null >"$folder.log" 2>&1 || { tail -40 "$folder.log" >&2; die "$P: build failed (log: $folder.log)"; }
    [ -x "$BIN" ] || die "$P: the build made no program"
    us=$((${EPOCHREALTIME/./} - started))
    printf '%d.%03d\n' $((us / 1000000)) $((us / 1000 % 1000)) >"$folder.seconds"
}

# compile "FLAGS" "LIBRARIES" FILE...: compiles each file, links all into the program.
compile() {
    local flags=${1//$'\n'/ } libraries=$2 file object objects=() linker=$CC linker_flags=$CFLAGS
    shift 2
    mkdir -p .objects
    for file in "$@"; do
        object=.objects/$(tr / _ <<<"${file%.*}").o
        objects+=("$object")
        case $file in
        *.c) printf '%s\n' "$CC $CFLAGS $flags -c $file -o $object" ;;
        *) printf '%s\n' "$CXX $CXXFLAGS $flags -c $file -o $object" ;;
        esac
    done >.objects/jobs
    for file in "$@"; do case $file in *.c) ;; *) linker=$CXX linker_flags=$CXXFLAGS ;; esac; done
    xargs -d '\n' -P "$JOBS" -I{} sh -c '{}' <.objects/jobs
    # shellcheck disable=SC2086
    $linker $linker_flags $LDFLAGS "${objects[@]}" -o "$BIN" $libraries
}

# rust_program NAME [options of cargo build]: the target is named, so that flags do not reach build scripts and procedural macros. All
# variants have link-time optimisation, as `cargo trodden` has, so that their times compare. Crates' parts in C are compiled as C programs are.
rust_program() {
    local name=$1 target in_names
    shift
    target=$(rustc -vV | sed -n 's/^host: //p')
    in_names=${target//-/_}
    export "CC_$in_names=$CC" "CXX_$in_names=$CXX" "CFLAGS_$in_names=$CFLAGS" "CXXFLAGS_$in_names=$CXXFLAGS"
    export CARGO_PROFILE_RELEASE_DEBUG=1 CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_PANIC=unwind
    unset CC CXX CFLAGS CXXFLAGS AR RANLIB NM CARGO_TARGET_DIR
    # shellcheck disable=SC2086
    $CARGO_BUILD --release --locked --offline --target "$target" --target-dir "$PWD/target" -j "$JOBS" "$@"
    cp "target/$target/release/$name" "$BIN"
}

configure() { ./configure "$@" || { tail -30 config.log >&2 || true; return 1; }; }
