# Runs the command "$@", a RabbitMQ node, in place of this shell, and beside it an epmd that ends when it has ended. Both let go of
# descriptor 3, which internal/services locks for as long as the node lives.
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
