// Package webhookdemo is what the demos of the webhook examples share: it sends deliveries to a server and checks the
// answers, and counts what is in the database afterwards.
package webhookdemo

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
)

// Sender sends deliveries to a server, and remembers each result that is wrong.
type Sender struct {
	Out   io.Writer
	Run   string // part of the IDs: PostgreSQL has those of earlier runs
	Wrong []error
}

// New returns a Sender with a Run of its own. It prints to out.
func New(out io.Writer) *Sender { return &Sender{Out: out, Run: rand.Text()[:8]} }

// Serve runs a server while use sends to it.
func Serve(ctx context.Context, run func(ctx context.Context, ready func(address string)) error,
	use func(ctx context.Context, address string),
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	address, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- run(ctx, func(a string) { address <- a }) }()
	select {
	case a := <-address:
		use(ctx, a)
	case err := <-ended:
		return err
	}
	stop() // as SIGTERM does
	return <-ended
}

// Send delivers once, prints the answer, and remembers it if it is not want.
func (s *Sender) Send(ctx context.Context, url, what string, body []byte, header http.Header, want int) {
	status, err := post(ctx, url, body, header)
	fmt.Fprintf(s.Out, "  %d  %s\n", status, what)
	if status != want {
		s.Fail(fmt.Errorf("%s: status %d, want %d; error %s", what, status, want, fmt.Sprint(err)))
	}
}

// Storm delivers 20 times at once, and again where the answer is 503, as a sender does. sign makes the headers of each.
func (s *Sender) Storm(ctx context.Context, url, what string, body []byte, sign func() http.Header) {
	var all sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for range 20 {
		all.Go(func() {
			for range 20 {
				status, _ := post(ctx, url, body, sign())
				if status == http.StatusServiceUnavailable {
					<-time.After(50 * time.Millisecond) // it is being handled; a real sender waits much longer
					continue
				}
				mu.Lock()
				defer mu.Unlock()
				if status == http.StatusOK {
					accepted++
				}
				return
			}
		})
	}
	all.Wait()
	fmt.Fprintf(s.Out, "  200  %s %d times at once\n", what, accepted)
	if accepted != 20 {
		s.Fail(fmt.Errorf("%s: %d of 20 deliveries were accepted", what, accepted))
	}
}

func post(ctx context.Context, url string, body []byte, header http.Header) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// Count compares a number of rows in the database with the number of events that were sent.
func (s *Sender) Count(ctx context.Context, db *sql.DB, what string, want int, query string, args ...any) {
	var got int
	err := db.QueryRowContext(ctx, query, args...).Scan(&got)
	s.check(what, got, err, want)
}

// CountParked compares the number of dead letters of a message with 1.
func (s *Sender) CountParked(ctx context.Context, store *sqlstore.Store, what, consumerName, id string) {
	letters, err := store.DeadLetters(ctx, consumer.DeadLetterFilter{Consumer: consumerName})
	parked := 0
	for _, l := range letters {
		if l.Message.ID == id {
			parked++
		}
	}
	s.check(what, parked, err, 1)
}

func (s *Sender) check(what string, got int, err error, want int) {
	fmt.Fprintf(s.Out, "  %d  %s\n", got, what)
	if got != want || err != nil {
		s.Fail(fmt.Errorf("%d %s, want %d; error %s", got, what, want, fmt.Sprint(err)))
	}
}

// Fail remembers a result that is wrong.
func (s *Sender) Fail(err error) { s.Wrong = append(s.Wrong, err) }

// Err returns all results that are wrong.
func (s *Sender) Err() error {
	if len(s.Wrong) > 0 {
		return fmt.Errorf("%d results are wrong: %w", len(s.Wrong), errors.Join(s.Wrong...))
	}
	fmt.Fprintln(s.Out, "All is as it must be.")
	return nil
}
