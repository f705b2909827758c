package main

import (
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/txonce/txonce/dedup/driver"
)

// position CONSUMER PARTITION NEXT [FROM LOST TO [SUSPECT TRIES]]: how far a partition of the topic orders is handled.
// From, Lost and To are those of a rewind now; From 0: there was none.
func position(ts *testscript.TestScript, _ bool, args []string) {
	s := seedsOf(ts)
	store, err := s.store()
	ts.Check(err)
	var n [7]int64
	for i, arg := range args[1:] {
		n[i], err = strconv.ParseInt(arg, 10, 64)
		ts.Check(err)
	}
	p := driver.Position{Next: n[1], Epoch: 1, Suspect: n[5], Tries: int(n[6])}
	p.Rewind.From, p.Rewind.Lost, p.Rewind.To = n[2], n[3], n[4]
	id := driver.PositionID{Consumer: args[0], Source: "kafka C1, group g, topic orders", Partition: int32(n[0])}
	_, err = store.ChangePosition(s.t.Context(), id, func(*driver.Position) (*driver.Position, error) { return &p, nil })
	ts.Check(err)
}
