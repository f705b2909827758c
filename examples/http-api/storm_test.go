package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/httpidem/storm"
)

// Twenty clients with one key, cut connections and retries: one order for each key, in the real database. Without the
// Guard there are more.
func TestStorm(t *testing.T) {
	const keys = 3
	databases(t, func(t *testing.T, file, dsn string) {
		for _, guarded := range []bool{true, false} {
			var out bytes.Buffer
			a := openTest(t, file, dsn)
			err := a.runStorm(t.Context(), listen(t), guarded, keys, &out)
			var runs []storm.Report
			for d := json.NewDecoder(&out); d.More(); {
				var r storm.Report
				if err := d.Decode(&r); err != nil {
					t.Fatal(err)
				}
				runs = append(runs, r)
			}
			if len(runs) != 2 || runs[0].Jitter || !runs[1].Jitter {
				t.Fatalf("guarded %t: %d runs, %v", guarded, len(runs), err)
			}
			for _, r := range runs {
				t.Logf("guarded %t, jitter %t: %d requests, %d cut, %v, %d effects of %d keys, peak %d", guarded, r.Jitter,
					r.Requests, r.Cut, r.Statuses, *r.Effects, r.Succeeded, r.Peak)
				if guarded && (*r.Effects != keys || r.Succeeded != keys || r.NoAnswer > 0 || len(r.Findings) > 0 || r.Cut == 0 ||
					r.Replayed == 0) {
					t.Errorf("%+v", r)
				}
				if !guarded && (*r.Effects < 2*keys || !strings.Contains(strings.Join(r.Findings, "\n"), "too many")) {
					t.Errorf("without a Guard nothing is wrong: %+v", r)
				}
			}
			if (err == nil) != guarded {
				t.Errorf("guarded %t: %v", guarded, err)
			}
		}
	})
}
