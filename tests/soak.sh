#!/usr/bin/env bash
# The long runs: hours of fault tests, or half an hour of storm.
#   ./tests/soak.sh                      the fault tests with full periods (lease 30 s, outages of a minute, every kill point)
#   ./tests/soak.sh q22_                 those whose name contains it
#   ./tests/soak.sh run [--minutes 30]   50 goals, a program killed every 5 s, the master of Redis every 60 s; ends with a
#                                        report and exit code 0 when every goal is done, the audit is clean, memory is flat.
#                                        Further: --goals N, --kill-every S, --flip-every S, --seed N, --json FILE
#   ./tests/soak.sh fuzz                 the readers of what models and Redis send, ten minutes each (MUSTER_FUZZ_SECONDS)
set -euo pipefail
case "${1:-}" in
  -h | --help) sed -n '2,/^set -euo/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = run ]; then
  shift
  cargo build -q --workspace --bins
  exec cargo run -q -p muster-tests --bin muster-soak -- "$@"
fi
if [ "${1:-}" = fuzz ]; then
  # Readers of what models and Redis send, ten minutes each; what panics is kept in tests/fixtures/fuzz.
  shift
  export MUSTER_FUZZ_SECONDS="${MUSTER_FUZZ_SECONDS:-600}"
  exec cargo test -p shared fuzz_ "$@" -- --nocapture
fi
export MUSTER_TEST_SCALE=full
cargo build --workspace --bins
if cargo nextest --version >/dev/null 2>&1; then
  exec cargo nextest run --profile soak -p muster-tests --test faults "$@"
fi
exec cargo test -p muster-tests --test faults "$@" -- --test-threads=1
