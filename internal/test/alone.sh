#!/usr/bin/env bash
# alone.sh COMMAND... runs go COMMAND in each module of go.work, or in those of MODULES, as somebody would who has only this module: without
# the workspace, with the versions that the module's own go.mod names. The modules of this repository are taken from this checkout: they are
# replaced in a copy of go.mod, because go.mod of a published module has no replace (go install …@latest refuses it) and names versions
# that may not be published yet.
#
#	internal/test/alone.sh vet ./...
#	internal/test/alone.sh mod tidy        # writes go.mod and go.sum
#	internal/test/alone.sh mod tidy -diff
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

# A folder of a module per line.
modules() { GOWORK="$top/go.work" go work edit -json | sed -nE 's/.*"DiskPath": "([^"]*)".*/\1/p'; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
replaces=()
for module in $(modules); do
	replaces+=("-replace=$(sed -n 's/^module //p' "$module/go.mod")=$(realpath "$module")")
done
export GOWORK=off
failed=
for module in ${MODULES:-$(modules)}; do
	cp "$module/go.mod" "$copy/go.mod"
	rm -f "$copy/go.sum"
	[ ! -e "$module/go.sum" ] || cp "$module/go.sum" "$copy/go.sum"
	own=$(sed -n 's/^module //p' "$module/go.mod")
	go mod edit "${replaces[@]}" -dropreplace="$own" "$copy/go.mod"
	cp "$copy/go.mod" "$copy/before"
	echo "== $module: go $*"
	(cd "$module" && GOFLAGS="${GOFLAGS:-} -modfile=$copy/go.mod" go "$@") || failed+=" $module"
	if [ "$1 $2" = "mod tidy" ] && ! cmp -s "$copy/go.mod" "$copy/before"; then
		# The copy's requirements, and the replacements that the module has itself.
		requirements=$(grep -v " => $top" "$copy/go.mod" | sed '/^\/\/ This module is not published/,$d' | cat -s)
		own=$(sed -n '/^\/\/ This module is not published/,$p' "$module/go.mod")
		printf '%s\n' "$requirements" ${own:+"" "$own"} >"$module/go.mod"
	fi
	[ "$1 $2" != "mod tidy" ] || [ ! -e "$copy/go.sum" ] || cmp -s "$copy/go.sum" "$module/go.sum" || cp "$copy/go.sum" "$module/go.sum"
done
[ -z "$failed" ] || {
	echo "failed in:$failed"
	exit 1
}
