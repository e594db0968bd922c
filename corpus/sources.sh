# shellcheck shell=bash
# Sources: Debian source packages by apt, from lists of our own, so that nothing of the system's changes; crates by cargo.

# private_lists NAME: package lists of the system's own mirrors with type `deb-src`; NAME `newer` adds later releases of Debian,
# for the few packages that the system's lacks. Sets APT_CONFIG.
private_lists() {
    local apt=$W/apt/$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror
    export APT_CONFIG=$apt/apt.conf
    [ ! -e "$apt/ready" ] || return 0
    command -v apt-get >/dev/null || die "source packages are fetched by apt-get, which this system lacks: put the sources of $P into $W/src/$P and make the file $W/src/$P/.fetched"
    mkdir -p "$apt/lists/partial" "$apt/parts" "$apt/cache/archives/partial"
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed -n 's/^deb /deb-src /p' >"$apt/parts/system.list" || true
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/parts/$(basename "$file")"
    done
    if [ "$1" = newer ]; then
        mirror=$(cat "$apt"/parts/* | grep -oE 'https?://[^ ]*/debian/?( |$)' | head -1 | tr -d ' ')
        [ -n "$mirror" ] || die "no mirror of Debian in /etc/apt: $P needs a later release of Debian"
        printf 'deb-src [signed-by=%s] %s %s main\n' "$keys" "$mirror" trixie "$keys" "$mirror" sid >"$apt/parts/newer.list"
    fi
    cat >"$apt/apt.conf" <<-END
	Dir::Etc::sourcelist "/dev/null";
	Dir::Etc::sourceparts "$apt/parts";
	Dir::State::lists "$apt/lists";
	Dir::Cache "$apt/cache";
	APT::Sandbox::User "$(id -un)";
	END
    apt-get -q update >"$apt/log" 2>&1 || { tail -5 "$apt/log" >&2; die "the lists of source packages cannot be fetched (log: $apt/log): is the network there?"; }
    touch "$apt/ready"
}

# debian_source PACKAGE VERSION [upstream|newer|upstream-newer]: the source package, patched as Debian does, into src/$P; `upstream` takes
# the original archive alone, `newer` looks in later releases of Debian. No version: the newest of the system's release.
debian_source() {
    local package=$1 version=$2 how=${3:-} downloads=$W/downloads/$1 to=$W/src/$P lists=system
    [ ! -e "$to/.fetched" ] || return 0
    case $how in *newer) lists=newer ;; esac
    private_lists "$lists"
    rm -rf "$downloads" "$to"
    mkdir -p "$downloads" "$W/src"
    say "$P: source package $package ${version:-(newest)}"
    (
        cd "$downloads"
        case $how in
        upstream*)
            apt-get -qq source --download-only --tar-only "$package${version:+=$version}"
            mkdir unpacked && tar xf ./*.orig.tar.* -C unpacked && mv unpacked/* "$to" ;;
        *)
            apt-get -qq source --download-only "$package${version:+=$version}"
            dpkg-source --no-check -x ./*.dsc "$to" >/dev/null ;;
        esac
    ) >"$W/src/$P.log" 2>&1 || { tail -5 "$W/src/$P.log" >&2; die "$P: source package $package $version cannot be fetched (log: $W/src/$P.log)"; }
    touch "$to/.fetched"
}

# crate_source NAME VERSION: a published crate and everything that its lock file names.
crate_source() {
    local name=$1 version=$2 to=$W/src/$P downloads=$W/downloads/$1 unpacked
    [ ! -e "$to/.fetched" ] || return 0
    rm -rf "$downloads" "$to"
    mkdir -p "$downloads/src" "$W/src"
    say "$P: crate $name $version"
    cat >"$downloads/Cargo.toml" <<-END
	[package]
	name = "fetch-only"
	version = "0.0.0"
	edition = "2021"
	[workspace]
	[dependencies]
	$name = { version = "=$version", default-features = false }
	END
    : >"$downloads/src/lib.rs"
    (cd "$downloads" && cargo fetch -q) 2>"$W/src/$P.log" || { tail -5 "$W/src/$P.log" >&2; die "$P: crate $name $version cannot be fetched (log: $W/src/$P.log)"; }
    unpacked=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -name "$name-$version" | head -1)
    cp -r "$unpacked" "$to"
    rm -f "$to/.cargo-ok"
    printf '\n[workspace]\n' >>"$to/Cargo.toml"
    (cd "$to" && cargo fetch -q --locked) || die "$P: its dependencies cannot be fetched"
    touch "$to/.fetched"
}
