#!/bin/sh
# as-tests.sh PROGRAM ARGUMENTS runs a program whose go commands build packages as the tests do: with the flags in RACE, if there is a C compiler.
if command -v "$(go env CC)" >/dev/null; then
	export GOFLAGS="${RACE:--race}"
fi
exec "$@"
