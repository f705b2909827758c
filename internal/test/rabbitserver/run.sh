# Runs the command "$@", a RabbitMQ node, in place of this shell, and beside it an epmd that ends when it has ended. Both let go of
# descriptor 3, which internal/test/services locks for as long as the node lives.

# The epmd of a node that was here before is on its way out. Taken for ours, it would leave this node to start one that nobody ends.
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
