#!/usr/bin/env bash
# The fault tests with full periods (lease 30 s, outages of a minute, 30 and more kills for each program), one after
# another. Takes hours; `tests/run.sh` runs the same tests with short periods.
#   ./tests/soak.sh            all of them
#   ./tests/soak.sh q22_       those whose name contains it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export MUSTER_TEST_SCALE=full
cargo build --workspace --bins
if cargo nextest --version >/dev/null 2>&1; then
  exec cargo nextest run --profile soak -p muster-tests --test faults "$@"
fi
exec cargo test -p muster-tests --test faults "$@" -- --test-threads=1
