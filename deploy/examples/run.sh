#!/usr/bin/env bash
# Runs one of the examples from its goal to its deliverable, on a fleet of its own in a folder of its own.
#   deploy/examples/run.sh NAME          the model's words are the rehearsal's: nothing is spent, everything else is real
#   deploy/examples/run.sh NAME --real   with your model (README "Your own model")
# Files come to $MUSTER_HOME/out (default .muster/examples/NAME/out), with goal.json: tickets and every event of the goal.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
name="${1:-}"
example="$here/$name"
if [ -z "$name" ] || [ ! -f "$example/rehearsal.toml" ]; then
  echo "which example? one of: $(cd "$here" && ls -d */rehearsal.toml | xargs -n1 dirname | tr '\n' ' ')" >&2
  exit 64
fi
real="${2:-}"
root="$(cd "$here/../.." && pwd)"
muster="${MUSTER:-${CARGO_TARGET_DIR:-$root/target}/debug/muster}"
[ -x "$muster" ] || { echo "$muster is not there; cargo build --bins, or name it in MUSTER" >&2; exit 69; }
export MUSTER_HOME="${MUSTER_HOME:-$PWD/.muster/examples/$name}"
out="$MUSTER_HOME/out"
mkdir -p "$out"

options=()
[ -f "$example/muster.toml" ] && options+=(--config "$example/muster.toml")
server= model=
stop() {
  "$muster" down >/dev/null 2>&1 || true
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$model" ] || kill "$model" 2>/dev/null || true
}
trap stop EXIT
if [ -f "$example/server.py" ]; then
  # What is outside in real life; it says one line when it listens.
  exec 3< <(exec python3 "$example/server.py" "$MUSTER_HOME")
  server=$!
  read -r -u 3 line
  echo "$line" >&2
fi
if [ "$real" != --real ]; then
  exec 4< <(exec "$muster" rehearsal --script "$example/rehearsal.toml")
  model=$!
  read -r -u 4 MUSTER_MODEL__URL
  # What a probe asks stands in no script.
  export MUSTER_MODEL__URL MUSTER_MODEL__STANDARD=rehearsal MUSTER_MODEL__PROBE=false
  echo "model: the rehearsal's words; nothing is spent" >&2
fi
"$muster" ${options[@]+"${options[@]}"} up --detach >/dev/null

if [ -f "$example/steps.sh" ]; then
  # shellcheck source=/dev/null
  . "$example/steps.sh"
else
  "$muster" run "$example/goal.toml" --out "$out"
fi
"$muster" export last >"$out/goal.json"
