# shellcheck shell=sh
# What `demo` and `test` share: find cargo, find a C linker, install Debian packages.
# Sourced by both, so it is plain POSIX sh. The caller has set `top` to the checkout.
: "${top:?}"

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

# Puts cargo on PATH and checks that it is new enough; otherwise exactly one line says what to do.
need_cargo() {
    minimum=$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' "$top/Cargo.toml")
    for directory in "${CARGO_HOME:-${HOME:-/nonexistent}/.cargo}/bin" /usr/local/cargo/bin; do
        command -v cargo >/dev/null 2>&1 && break
        [ -x "$directory/cargo" ] && PATH="$directory:$PATH"
    done
    how="install it from https://rustup.rs"
    command -v rustup >/dev/null 2>&1 && how="run: rustup update stable && rustup default stable"
    command -v cargo >/dev/null 2>&1 ||
        fail "Polder needs Rust $minimum or newer, and no cargo was found: $how"
    found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || found=
    is_enough=$(printf '%s\n' "$found" | awk -F . -v minimum="$minimum" '{
        split(minimum, least, ".")
        print ($1 > least[1] || ($1 == least[1] && $2 + 0 >= least[2] + 0)) ? "yes" : "no"
    }')
    [ "$is_enough" = yes ] ||
        fail "Polder needs Rust $minimum or newer, and this is ${found:-no working cargo}: $how"
}

# Whether the C compiler $1 is there and can link a program, which takes a C library's files too.
can_link() {
    command -v "$1" >/dev/null 2>&1 || return 1
    scratch=$(mktemp -d) || return 1
    printf 'int main(void) { return 0; }\n' >"$scratch/probe.c"
    linked=no
    "$1" -o "$scratch/probe" "$scratch/probe.c" >/dev/null 2>&1 && linked=yes
    rm -rf "$scratch"
    [ "$linked" = yes ]
}

# Whether there is a linker for cargo. Cargo asks for `cc`; another compiler is named to it.
have_linker() {
    can_link cc && return 0
    for compiler in gcc clang; do
        can_link "$compiler" || continue
        host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
        export "CARGO_TARGET_${host}_LINKER=$compiler"
        return 0
    done
    return 1
}

# Runs a command as root. `root_by` is how: empty as root, else sudo with its options.
as_root() {
    # shellcheck disable=SC2086  # The words of root_by are meant to be split.
    ${root_by-} "$@"
}

# Decides how packages $* can be installed; otherwise says what to ask for.
need_root_for() {
    if ! command -v apt-get >/dev/null 2>&1; then
        fail "Polder needs these packages, under the names that Debian gives them: $*" \
            "- install what your system calls so, and start again"
    fi
    root_by=
    [ "$(id -u)" -eq 0 ] && return 0
    if command -v sudo >/dev/null 2>&1; then
        root_by="sudo -n"
        sudo -n true 2>/dev/null && return 0
        root_by="sudo"
        [ -t 0 ] && [ -t 2 ] && return 0
    fi
    fail "Polder needs packages, and installing takes root: ask an administrator to run:" \
        "apt-get update && apt-get install -y --no-install-recommends $*"
}

# Installs packages $* without a question. Old lists are better than none if the update fails.
install_packages() {
    say "installing from Debian's packages: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 update >&2 ||
        say "apt-get update failed; going on with the lists that are here"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 \
        install -y --no-install-recommends "$@" </dev/null >&2 ||
        fail "these packages could not be installed: $*"
}
