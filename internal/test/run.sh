#!/usr/bin/env bash
# run.sh MODULE... runs the tests of modules with the race detector, and prints the total time and the slowest packages and tests.
# With SINCE=COMMIT it tests only the packages that depend on files changed since that commit.
#
# Four packages of the first module run at the same time, and beside them one of the others; of each package four parallel tests,
# because they spend much of their time waiting. Each test has its own schema, topic or queue. make lint runs go vet's checks. RACE has
# the flags of the race detector, in the format of GOFLAGS; without it, -race.
#
# The slowest packages begin first, and those that wait beside those that compute. Otherwise one of them would run alone at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."

slowest="./adapters/sqlstore ./adapters/pgxstore ./adapters/awssqs ./adapters/rabbitmq ./adapters/kafka ./examples/quickstart ./cmd/txonce
	./internal/test/soak ./internal/test/relaychaos ./examples/rabbitmq-worker ./adapters/httpidem ./adapters/telemetry/monitoring/generate"
gotestsum="go run gotest.tools/gotestsum@v1.13.0"
# Temporary files are in memory where there is room: programs that are linked for a test, SQLite's databases, servers of single tests.
memory=$(go run ./internal/test/services memory)
log=$(mktemp -d ${memory:+-p "$memory"} -t txonce-test-XXXXXX)
trap 'rm -rf "$log"' EXIT
mkdir "$log/tmp" && chmod 755 "$log" "$log/tmp" # servers that refuse to run as root must enter it
export TMPDIR="$log/tmp"
export GORACE="atexit_sleep_ms=0 ${GORACE:-}" # otherwise each process, also each worker that a test starts, sleeps 1 s at its end
# A third of the collections of garbage, in tests and in the compiler: 7 % less of the processor's time, for some more memory.
export GOGC="${GOGC:-400}"
eval "race=(${RACE:--race})"

# test_module MODULE N runs N packages of a module at the same time, and adds MODULE to the file failed if a test fails.
test_module() {
	local module=$1 n=$2 packages=./...
	[ "$module" != . ] || packages="$slowest $packages" # go test takes each package once
	[ -z "${SINCE:-}" ] || packages=$(go run ./internal/test/changed -since "$SINCE" -module "$module")
	[ -n "$packages" ] || return 0
	# shellcheck disable=SC2086 # words: one word per flag or package
	(cd "$module" && $gotestsum --format standard-quiet --hide-summary skipped --jsonfile "$log/tests-${module//\//-}" -- \
		"${race[@]}" -ldflags=-s -count=1 -p "$n" -parallel 4 -vet=off -timeout=30m $packages) || echo "$module" >>"$log/failed"
}

# A line a minute says how far it is: on a busy machine, nothing is tested for many minutes, because everything is compiled first.
progress() {
	local all="" done nap
	trap 'kill $nap 2>/dev/null; exit' TERM
	[ -n "${SINCE:-}" ] || all=" of $(for module in "$@"; do (cd "$module" && go list ./...); done | wc -l)"
	while :; do
		sleep 60 &
		nap=$!
		wait $nap
		done=$(cat "$log"/tests-* 2>/dev/null | grep -v '"Test":' | grep -cE '"Action":"(pass|fail|skip)"') || true
		echo "== $SECONDS s: $done$all packages are done$([ "$done" -gt 0 ] || echo '; Go still compiles')"
	done
}

$gotestsum --version >/dev/null # builds it once
progress "$@" &
progress=$!
stop_progress() { kill $progress 2>/dev/null || true; } # in a trap, too, a command that fails would decide the exit status
trap 'stop_progress; rm -rf "$log"' EXIT
(for module in "${@:2}"; do test_module "$module" 1; done) >"$log/others" 2>&1 &
others=$!
test_module "$1" 4
wait "$others" || echo "the modules beside the first" >>"$log/failed"
stop_progress
cat "$log/others"
cat "$log"/tests-* >"$log/all" 2>/dev/null || [ -e "$log/failed" ] || {
	echo "nothing to test"
	exit 0
}

echo "== the ten slowest packages"
sed -nE '/"Test":/d; s/.*"Package":"([^"]*)".*"Elapsed":([0-9]+).*/\2 s  \1/p' "$log/all" | sort -rn | sed -n 1,10p
echo "== the ten slowest tests"
$gotestsum tool slowest --num 10 --jsonfile "$log/all"
not_run=$(sed -nE '/"Action":"output".* not run: /s/.*"Test":"([^"]*)".*/\1/p' "$log/all" | sort -u)
[ -z "$not_run" ] || {
	echo "== not run, because this machine has no MySQL: $(wc -l <<<"$not_run") tests"
	echo "$not_run"
}
echo "== tests: $SECONDS s"
[ ! -e "$log/failed" ] || {
	echo "failed in:" $(sort "$log/failed")
	exit 1
}
