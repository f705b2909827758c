#!/usr/bin/env bash
# run.sh runs the tests of all modules with the race detector, and prints the total time and the slowest packages and tests. With
# SINCE=COMMIT it tests only the packages that depend on files changed since that commit.
#
# Four packages run at the same time, and of each package four parallel tests, because they spend much of their time waiting. Each test
# has its own schema, topic or queue. One go test runs all modules of go.work, so that each package is built once. make lint runs go vet's
# checks. RACE has the flags of the race detector, in the format of GOFLAGS; without it, -race.
#
# The slowest packages begin first, and those that wait beside those that compute. Otherwise one of them would run alone at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."

slowest="./adapters/sqlstore/test ./adapters/pgxstore ./adapters/awssqs ./adapters/rabbitmq ./adapters/kafka ./examples/quickstart ./cmd/txonce
	./internal/test/system/soak ./internal/test/system/relaychaos ./examples/rabbitmq-worker ./internal/test/system/httpidem ./adapters/telemetry/monitoring/generate
	./internal/test/system/browser"
gotestsum="go run gotest.tools/gotestsum@v1.13.0"
# Temporary files are in memory where there is room: programs that are linked for a test, SQLite's databases, servers of single tests.
memory=$(go run ./internal/test/system/services memory)
log=$(mktemp -d ${memory:+-p "$memory"} -t txonce-test-XXXXXX)
trap 'rm -rf "$log"' EXIT
mkdir "$log/tmp" && chmod 755 "$log" "$log/tmp" # servers that refuse to run as root must enter it
export TMPDIR="$log/tmp"
export GORACE="atexit_sleep_ms=0 ${GORACE:-}" # otherwise each process, also each worker that a test starts, sleeps 1 s at its end
# A third of the collections of garbage, in tests and in the compiler: 7 % less of the processor's time, for some more memory.
export GOGC="${GOGC:-400}"
eval "race=(${RACE:--race})"

# Debezium is built and runs, in Java, for a minute: only test-all does that.
if [ -n "${SINCE:-}" ]; then
	packages=$(go run ./internal/test/changed -since "$SINCE")
else
	packages=$(go list github.com/txonce/txonce/...)
fi
[ -n "${TXONCE_TEST_ALL:-}" ] || packages=$(grep -v /internal/test/system/debezium <<<"$packages") || true
[ -n "$packages" ] || {
	echo "nothing to test"
	exit 0
}
count=$(wc -l <<<"$packages")
[ -n "${SINCE:-}" ] || packages="$slowest $packages" # go test takes each package once

# A line a minute says how far it is: on a busy machine, nothing is tested for many minutes, because everything is compiled first.
progress() {
	local done nap
	trap 'kill $nap 2>/dev/null; exit' TERM
	while :; do
		sleep 60 &
		nap=$!
		wait $nap
		done=$(cat "$log/all" 2>/dev/null | grep -v '"Test":' | grep -cE '"Action":"(pass|fail|skip)"') || true
		echo "== $SECONDS s: $done of $count packages are done$([ "$done" -gt 0 ] || echo '; Go still compiles')"
	done
}

$gotestsum --version >/dev/null # builds it once
progress &
progress=$!
stop_progress() { kill $progress 2>/dev/null || true; } # in a trap, too, a command that fails would decide the exit status
trap 'stop_progress; rm -rf "$log"' EXIT
failed=
# shellcheck disable=SC2086 # words: one word per package
$gotestsum --format standard-quiet --hide-summary skipped --jsonfile "$log/all" -- \
	"${race[@]}" -ldflags=-s -count=1 -p 4 -parallel 4 -vet=off -timeout=30m $packages || failed=1
stop_progress

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
[ -z "$failed" ]
