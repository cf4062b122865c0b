#!/usr/bin/env bash
# From a fresh clone to a finished goal: installs what is missing, builds, runs the demo.
#
#   ./deploy/quickstart.sh [--once] ["a goal of your own" | plan.toml]
#
# --once stops everything when the goal has ended. Everything it makes is in .muster/ and target/.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $1"; say "  hint: $2"; exit "${3:-64}"; }

once=() goal=()
for argument in "$@"; do
  case "$argument" in
    --once) once=(--once) ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) die "unknown option $argument" "./deploy/quickstart.sh [--once] [\"a goal\" | plan.toml]" ;;
    *) [ ${#goal[@]} -eq 0 ] || die "more than one goal" "put the goal in quotes"
       goal=("$argument") ;;
  esac
done

# What is needed: the program, and the Debian package that brings it.
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need redis-server redis-server
need python3 python3
[ "$(uname -s)" = Linux ] && need bwrap bubblewrap
command -v cc >/dev/null 2>&1 || missing+=(gcc libc6-dev)

if [ ${#missing[@]} -gt 0 ]; then
  if command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ]; then
      root=()
    elif command -v sudo >/dev/null 2>&1; then
      root=(sudo)
    else
      die "missing: ${missing[*]}; neither root nor sudo to install them" "as root: apt-get install ${missing[*]}"
    fi
    say "installing: ${missing[*]} (services of their own are not started)"
    log="$(mktemp)"
    # The package would start a Redis of its own on 6379; this fleet brings a private one. A policy that says no to
    # starting services lasts for this installation only, and only where there is none yet.
    policy=/usr/sbin/policy-rc.d made=
    if [ ! -e "$policy" ]; then
      printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
      "${root[@]}" chmod 755 "$policy"
      made=1
      trap '"${root[@]}" rm -f "$policy"' EXIT
    fi
    ok=1
    { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q \
      && "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
    } >"$log" 2>&1 || ok=
    if [ -n "$made" ]; then
      "${root[@]}" rm -f "$policy"
      trap - EXIT
    fi
    if [ -z "$ok" ]; then
      tail -n 15 "$log" >&2
      die "apt-get could not install ${missing[*]}" "install them by hand and call this again; the whole log is $log" 1
    fi
    rm -f "$log"
  elif [ "$(uname -s)" = Darwin ]; then
    die "missing: ${missing[*]}" "brew install redis python3 (there is no bubblewrap on macOS: everything but code tools works)"
  else
    die "missing: ${missing[*]}" "install these with this system's package manager: Redis 7 or newer, Python 3, bubblewrap, a C compiler"
  fi
fi

if ! command -v cargo >/dev/null 2>&1; then
  [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
  command -v cargo >/dev/null 2>&1 || die "there is no Rust toolchain" "get one from https://rustup.rs"
fi

say "building (the first time takes some minutes)"
cargo build --quiet --bins
target="${CARGO_TARGET_DIR:-target}"
exec "$target/debug/muster" up --demo "${once[@]}" "${goal[@]}"
