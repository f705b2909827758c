// Package proof holds what fault-injecting runs have counted, and writes docs/proof.md from it.
//
// There are three tiers: the simulation (sim), faults at the wire of real servers (wire), and processes and servers that
// are killed (process). Each run is one JSON object on one line, a Run. What is published lies in the folder runs, a file
// per run, which the tier's command writes (CONTRIBUTING.md has all of them):
//
//	make sim SIM="-json $PWD/internal/test/proof/runs/sim.json"
//	go run ./internal/test/proof/page > docs/proof.md
//
// The faults of different tiers are never added up, because a simulated fault proves less than one at a real server, and
// more of them are made.
package proof
