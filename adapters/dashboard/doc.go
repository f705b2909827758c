// Package dashboard shows operators what the consumers and the outbox of a database are doing, and lets those who may
// replay and discard dead letters, and unpark and discard messages of the outbox.
//
// # Use
//
// A Dashboard is an http.Handler. Mount it below a path that ends in a slash; its links are relative:
//
//	d, err := dashboard.New(dashboard.Config{Store: store.Operator(), Activity: store.Activity(), Authorize: dashboard.Loopback})
//	mux.Handle("/txonce/", http.StripPrefix("/txonce", d))
//
// [Serve] runs one by itself. Config.Authorize decides about every request. [Loopback] lets everybody on this machine
// read, and lets nobody act. In a service, set a function that asks your own login session.
//
// # How it works
//
// Pages are HTML that the server renders; they work without JavaScript. Where there is JavaScript, the overview, the
// outbox and the progress of an action follow the database: the server sends their new HTML as server-sent events. All
// viewers together cost the database one snapshot per two seconds, and nothing while there are none.
//
// Actions are POST requests with a reason. They go through ops.Requester, which records who did what and why; workers
// then run replays. Before a replay, a discard or an unpark of all that a filter chooses, a dry run counts the letters
// or messages, up to 1,000. Its form carries the number and the time when the latest of them was parked. What arrives
// later is left out, and the action is refused if it would choose another number. If there are more, only the time
// bounds a replay or an unpark, and a discard is refused.
//
// # Safety
//
// Everything that messages contain is escaped, and the pages' Content-Security-Policy allows no script, style or
// connection but the dashboard's own. Requests of other sites are refused by http.CrossOriginProtection. Payloads and
// header values are shown to those whom Authorize grants Payload.
//
// # What a crash does
//
// An action is recorded before its effect or together with it, so a crash leaves no unrecorded change. A crash between
// the record and the change leaves an action that changed nothing, or a part: its page shows the results. Do the same
// again.
package dashboard
