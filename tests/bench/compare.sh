#!/usr/bin/env bash
# Measures Muster beside other job queues on Redis, or beside another revision of itself, in turning rounds on this machine.
# One table, or JSON lines. Run it on a machine that does nothing else: what counts are ratios within a round.
#
#   tests/bench/compare.sh                              every peer that installs, all scenarios, 9 rounds
#   tests/bench/compare.sh --scenario noop --peers bullmq,saq --rounds 7
#   tests/bench/compare.sh --against HEAD~5 --scenario noop      another revision; 9 rounds, a sign test decides
#   tests/bench/compare.sh --json >rows.jsonl
#
# Options: --scenario S (noop two_hop latency fanout crash; repeatable), --peers a,b (bullmq saq arq dramatiq celery rq),
# --against REV, --rounds N, --percent P (part of the usual jobs), --crash-cap-s S, --folder F (keeps what is installed;
# default target/bench), --json. Needs cargo, redis-server and redis-benchmark, python3 with venv, node with npm.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
folder="$target/bench" peers=bullmq,saq,arq,dramatiq,celery,rq peers_given='' against='' rounds='' pass=()

usage() { sed -n '2,/^set -euo/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }
need() { [ $# -gt 1 ] || { echo "compare.sh: $1 needs a value (see --help)" >&2; exit 64; }; }
while [ $# -gt 0 ]; do
  case "$1" in
    --scenario)
      need "$@"
      case "$2" in noop | two_hop | latency | fanout | crash) ;; *)
        echo "compare.sh: --scenario $2 is not known: noop two_hop latency fanout crash" >&2; exit 64 ;; esac
      pass+=("$1" "$2"); shift 2 ;;
    --percent | --crash-cap-s) need "$@"; pass+=("$1" "$2"); shift 2 ;;
    --peers) need "$@"; peers=$2 peers_given=1; shift 2 ;;
    --against) need "$@"; against=$2; shift 2 ;;
    --rounds) need "$@"; rounds=$2; shift 2 ;;
    --folder) need "$@"; folder=$2; shift 2 ;;
    --json) pass+=("$1"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "compare.sh: $1 is not known (see --help)" >&2; exit 64 ;;
  esac
done
for peer in ${peers//,/ }; do
  case "$peer" in bullmq | saq | arq | dramatiq | celery | rq) ;; *)
    echo "compare.sh: --peers $peer is not known: bullmq saq arq dramatiq celery rq" >&2; exit 64 ;; esac
done
[ -z "$against" ] || [ -z "$peers_given" ] || { echo "compare.sh: --against compares with a revision, --peers with others: give one of them" >&2; exit 64; }
for tool in cargo redis-server redis-benchmark; do
  command -v "$tool" >/dev/null || { echo "compare.sh: $tool is not installed (redis-benchmark: apt-get install redis-tools)" >&2; exit 69; }
done
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"

# Builds the program of the tree in $1 into $2.
build() {
  (cd "$1" && CARGO_TARGET_DIR="$2" cargo build --release -q --locked -p muster-tests --bin muster-bench) >&2
}
echo "building" >&2
build "$root" "$target"

if [ -n "$against" ]; then
  revision="$(git -C "$root" rev-parse --verify --short "$against^{commit}")" || { echo "compare.sh: no revision $against" >&2; exit 64; }
  if [ ! -x "$folder/muster-bench-$revision" ]; then
    tree="$folder/tree-$revision"
    trap 'git -C "$root" worktree remove --force "$tree" 2>/dev/null || true' EXIT
    git -C "$root" worktree prune
    git -C "$root" worktree remove --force "$tree" 2>/dev/null || rm -rf "$tree"
    git -C "$root" worktree add -q --detach "$tree" "$revision"
    echo "building $revision" >&2
    build "$tree" "$folder/target-against"
    cp "$folder/target-against/release/muster-bench" "$folder/muster-bench-$revision"
  fi
  "$target/release/muster-bench" compare --build "muster@$revision=$folder/muster-bench-$revision" \
    --rounds "${rounds:-9}" "${pass[@]}"
  exit
fi

# One environment for each Python peer: their pins of the redis client conflict.
venv() {
  local name=$1; shift
  [ -e "$folder/venv-$name/ok" ] && return
  python3 -m venv "$folder/venv-$name" &&
    "$folder/venv-$name/bin/pip" install -q --disable-pip-version-check "$@" >&2 &&
    touch "$folder/venv-$name/ok"
}
install() {
  case "$1" in
    bullmq)
      [ -e "$folder/node/node_modules/bullmq/package.json" ] && return
      mkdir -p "$folder/node" && (cd "$folder/node" && npm init -y >/dev/null &&
        npm install --silent --no-audit --no-fund bullmq@6.7.0 ioredis@6.0.0 >&2) ;;
    saq) venv saq 'saq[redis,hiredis]==0.26.4' typing_extensions ;;
    arq) venv arq 'arq==0.28.0' ;;
    dramatiq) venv dramatiq 'dramatiq[redis]==2.2.1' ;;
    celery) venv celery 'celery==5.7.0' 'redis>=5,<6.5' packaging ;;
    rq) venv rq 'rq==3.0.0' ;;
    *) echo "compare.sh: no peer $1 (see --help)" >&2; exit 64 ;;
  esac
}
there=()
for peer in ${peers//,/ }; do
  echo "installing $peer" >&2
  if install "$peer"; then there+=("$peer"); else echo "$peer does not install here, left out" >&2; fi
done
[ ${#there[@]} -gt 0 ] || { echo "compare.sh: no peer installs here" >&2; exit 69; }
"$target/release/muster-bench" compare --installed "$folder" --peers "$(IFS=,; echo "${there[*]}")" \
  --rounds "${rounds:-9}" "${pass[@]}"
