# Replaces this shell by the command "$@", a RabbitMQ node, and runs an epmd beside it that ends after the node has ended. The
# epmd does not inherit descriptor 3, which internal/test/system/services locks for as long as the node runs.

# Wait until the epmd of an earlier node has ended. If it were taken for the new one, it would soon leave the node without epmd,
# and the node would start one that never ends.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	epmd -port "$ERL_EPMD_PORT" -names >/dev/null 2>&1 || break
	sleep 0.25
done
(
	epmd -port "$ERL_EPMD_PORT" &
	epmd=$!
	while kill -0 $$ 2>/dev/null; do sleep 0.5; done
	kill "$epmd" && wait "$epmd"
) 3>&- </dev/null >/dev/null 2>&1 &
until epmd -port "$ERL_EPMD_PORT" -names >/dev/null 2>&1; do
	kill -0 $! || exit 1
	sleep 0.05
done
exec "$@"
