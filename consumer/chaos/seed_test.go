package chaos_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/chaos"
)

// Without a Seed each start of a program has other faults, so that no message ends each of them. The text of a panic
// has the seed, and the seed has the panic again, at the same call.
func TestWithoutSeed(t *testing.T) {
	calls := map[int]bool{}
	for range 50 {
		seed, call := dies(t, 0)
		calls[call] = true
		if again, at := dies(t, seed); again != seed || at != call {
			t.Fatalf("with the seed %d of call %d, call %d dies, of seed %d", seed, call, at, again)
		}
	}
	if len(calls) < 3 {
		t.Errorf("50 starts die in the calls %v only", calls)
	}
}

var death = regexp.MustCompile(`\(call (\d+) of Config.Seed (\d+)\)$`)

// dies delivers messages until the program dies, and returns what the panic says.
func dies(t *testing.T, seed uint64) (of uint64, call int) {
	t.Helper()
	p := wrap(t, answering{}, chaos.Config{Seed: seed, Panic: .2})
	for delivered := 1; delivered < 1000; delivered++ {
		said := func() (value any) {
			defer func() { value = recover() }()
			return p.Process(t.Context(), &consumer.Message{ID: "m"})
		}()
		if said == nil {
			continue
		}
		found := death.FindStringSubmatch(fmt.Sprint(said))
		if found == nil {
			t.Fatalf("a panic has no seed: %v", said)
		}
		call, err := strconv.Atoi(found[1])
		of, err2 := strconv.ParseUint(found[2], 10, 64)
		if err != nil || err2 != nil || call != delivered {
			t.Fatalf("delivery %d dies with %v", delivered, said)
		}
		return of, call
	}
	t.Fatal("nothing dies")
	return 0, 0
}
