// Package cli is the command line of txonce: what operators look at and do, from a terminal or a script. The program
// cmd/txonce is this package with three database drivers.
//
// # Use
//
// A program of your own can have the same commands, on the pool that it opens itself:
//
//	root.AddCommand(cli.New(cli.Config{Open: openDatabase}))
//
// With Config.Replayer it can also carry out replays itself: dead-letters replay --here.
//
// Each command prints text for people, or with --json one JSON object with "v": 1. Its fields may grow in number, but
// none is removed or changes its meaning while v is 1. Times are in UTC, by the database's clock.
//
// [ExitCode] turns the error of a command into the exit code of the process.
//
// # What a crash does
//
// Reading commands change nothing. A replay is a request in the database that the workers carry out: when the command
// line is killed, the request goes on, or was never made. With --here the command line is one of the workers: the
// letter that it had taken is taken by another one after a minute. All other changes are made in short transactions,
// with a row of operator_actions that says who acted and why. A command line that is killed between them has done a
// part; the same command again does the rest.
package cli
