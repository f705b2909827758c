// Package routers tests httpidem inside the routers chi, gin and echo, which are in no other go.mod. Its examples show
// how to mount a Guard in each of them.
//
// # Use
//
// chi's handlers are those of net/http: Handle is the last handler of a route, and Wrap is a middleware of
// [github.com/go-chi/chi/v5.Router.With].
//
// gin's handlers write to gin.Context.Writer. Inside Wrap that must not be the client's: a middleware that calls c.Next
// inside Wrap sends responses before COMMIT. The Guard notices that and rolls back, but the client has its response. So
// use gin.WrapH(guard.Handle(…)), and give handlers that exist already an engine of their own inside Wrap.
//
// echo's handlers return errors, which echo answers later. Inside echo.WrapMiddleware(guard.Wrap) the Guard does not
// see them: it commits the work of a handler that failed. So use echo.WrapHandler(guard.Handle(…)), or the 25 lines of
// guarded in the example, which pass an *echo.Context and the transaction to a handler.
//
// # How it works
//
// The Guard calls a handler on the request's goroutine, so the contexts that routers reuse for later requests stay
// valid while it runs, also when the client is gone. http.TimeoutHandler gives its handler another goroutine: put it
// around the router, never into a route or a group. Otherwise the router reuses the context of a handler that still
// runs. Shutdown does not wait for handlers behind http.TimeoutHandler; httpidem.Config.Timeout has neither problem.
// Compression goes outside of the Guard.
//
// # What a crash does
//
// The same as without a router: see package httpidem.
package routers
