package httpidem_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/child"
)

var rounds = flag.Int("httpidem.rounds", 10, "rounds of each client in TestChaos; the full run has 1000")

const (
	chaosClients = 50
	chaosTwins   = 5 // clients that send each request at the same time
	chaosServers = 2
)

// Clients repeat requests while processes are killed at any time and a proxy delays and cuts COMMITs. Afterwards each
// key has one effect, all its responses are equal, and each response is of the effect that is committed.
func TestChaos(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		dsn := e.Create(t)
		through := dsn
		var faults [3]atomic.Int64
		if e.Chaos != nil {
			through = e.Chaos(t, dsn, func() (deduptest.Fault, bool) {
				f := deduptest.Fault(mathrand.IntN(len(faults)))
				strike := mathrand.IntN(10) == 0
				if strike {
					faults[f].Add(1)
				}
				return f, strike
			})
		}
		servers := child.StartGroup(t, chaosServers, func(int) []string { return []string{e.Name, steady, through} })
		defer servers.Stop()
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: chaosClients}, Timeout: 20 * time.Second}
		defer client.CloseIdleConnections()

		ctx, cancel := context.WithCancel(t.Context())
		var killing, wg sync.WaitGroup
		killing.Go(func() { servers.KillSome(ctx) })
		answers := make([][]answer, chaosClients) // by client and round
		for i := range chaosClients {
			answers[i] = make([]answer, *rounds)
			wg.Go(func() {
				for round := range *rounds {
					answers[i][round] = chaosOrder(t, servers, client, chaosKey(i, round))
				}
			})
		}
		wg.Wait()
		cancel()
		killing.Wait()
		killed := servers.Stop()

		sound := e.node(t, dsn, settings{wait: 10 * time.Second})
		replays := audit(t, sound, e, answers)
		t.Logf("%d keys, %d answers, %d of them replays; %d kills; COMMITs lost %d, answers lost %d, COMMITs late %d",
			chaosClients/chaosTwins**rounds, chaosClients**rounds, replays, killed, faults[0].Load(), faults[1].Load(),
			faults[2].Load())
		if killed == 0 || e.Chaos != nil && faults[0].Load()+faults[1].Load()+faults[2].Load() == 0 {
			t.Error("nothing went wrong, so this test has shown nothing")
		}
	})
}

func chaosKey(client, round int) string { return fmt.Sprintf("k-%d-%d", client/chaosTwins, round) }

// audit compares the answers with what is committed.
func audit(t *testing.T, n *node, e engine, answers [][]answer) (replays int) {
	t.Helper()
	n.wantEffects(t, chaosClients/chaosTwins**rounds)
	if doubled, err := n.count(t.Context(), `SELECT count(*) FROM (SELECT name FROM effects GROUP BY name HAVING count(*) > 1) doubled`); err != nil || doubled != 0 {
		t.Errorf("%d keys have several effects, %v", doubled, err)
	}
	for i := range chaosClients {
		for round, got := range answers[i] {
			first := answers[i-i%chaosTwins][round]
			if got.replayed {
				replays++
			}
			if got.status != http.StatusCreated || got.body != first.body || !cmp.Equal(got.header, first.header) {
				t.Fatalf("%s: client %d got %+v, and a twin got %+v", chaosKey(i, round), i, got, first)
			}
			if i%chaosTwins == 0 {
				key := chaosKey(i, round)
				if committed, err := n.count(t.Context(), `SELECT count(*) FROM effects WHERE name = '`+key+
					`' AND token = '`+got.token()+`'`); err != nil || committed != 1 {
					t.Fatalf("%s: the answer is %q, which is not committed (%d, %v)", key, got.body, committed, err)
				}
				replay := untilAnswered(t, n.handle(e.order), request{key: key, body: "{}"})
				if !isReplay(replay) || replay.Body.String() != first.body {
					t.Fatalf("%s: a late replay is %d %q, want %q", key, replay.Code, replay.Body, first.body)
				}
			}
		}
	}
	return replays
}

// answer is the final answer that a client got.
type answer struct {
	status   int
	header   http.Header // without Date and Idempotent-Replayed
	body     string      // ends with the token of the run that made it
	replayed bool
}

func (a answer) token() string { return a.body[max(0, len(a.body)-26):] }

// chaosOrder sends a request until it gets a final answer, and sometimes goes away before the answer comes.
func chaosOrder(t *testing.T, servers *child.Group, client *http.Client, key string) answer {
	for began := time.Now(); time.Since(began) < 5*time.Minute; <-time.After(time.Duration(1+mathrand.IntN(20)) * time.Millisecond) {
		ctx, cancel := context.WithCancel(t.Context())
		if mathrand.IntN(20) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(mathrand.IntN(5000))*time.Microsecond)
		}
		status, header, body, err := postOrder(ctx, servers.Any(), client, key, "{}")
		cancel()
		if err != nil || status == http.StatusConflict || status == http.StatusServiceUnavailable {
			continue
		}
		replayed := header.Get("Idempotent-Replayed") == "true"
		header.Del("Idempotent-Replayed")
		header.Del("Date")
		return answer{status: status, header: header, body: body, replayed: replayed}
	}
	return answer{}
}

// tokenOrder is order with a token that is different in each run, so that a response shows which run made it.
func (e engine) tokenOrder(_ context.Context, exec func(string, ...any) error, w http.ResponseWriter,
	r *http.Request,
) error {
	token := rand.Text()
	if err := exec(e.Insert, r.Header.Get("Idempotency-Key"), token); err != nil {
		return err
	}
	w.Header().Set("Etag", token)
	w.WriteHeader(http.StatusCreated)
	_, err := fmt.Fprint(w, "ordered ", token)
	return err
}
