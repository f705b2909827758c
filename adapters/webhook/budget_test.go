package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
)

// believer accepts each delivery, so that large bodies cost little. Its source is GitHub's: it waits for 10 seconds.
type believer struct{ maxBody int64 }

func (b believer) Source() webhook.Source {
	return webhook.Source{
		Name: "shop", Horizon: time.Hour, Deadline: 10 * time.Second, GiveUpAfter: time.Hour,
		MaxBody: b.maxBody,
	}
}

func (believer) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	return []webhook.Event{{Message: consumer.Message{ID: "1", Tenant: "shop", Payload: d.Body}}}, nil
}

// bulk sends size bytes, and looks at each read how much the Receiver holds.
type bulk struct {
	receiver *webhook.Receiver
	most     *atomic.Int64
	left     int64
	stalls   bool // and then nothing, until the read deadline
	until    time.Time
}

func (s *bulk) Read(p []byte) (int, error) {
	for held := s.receiver.Held(); ; {
		if most := s.most.Load(); held <= most || s.most.CompareAndSwap(most, held) {
			break
		}
	}
	switch {
	case s.left == 0 && s.stalls:
		<-time.After(time.Until(s.until))
		return 0, os.ErrDeadlineExceeded
	case s.left == 0:
		return 0, io.EOF
	}
	n := min(int64(len(p)), s.left, 1<<20)
	clear(p[:n])
	s.left -= n
	return int(n), nil
}

func (s *bulk) send(ctx context.Context, declared int64) *http.Response {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", s)
	req.ContentLength = declared
	return do(s.receiver, req)
}

// Many deliveries of the largest size at once: all are handled, and the bodies never have more than MaxInFlight bytes.
func TestManyLargeDeliveries(t *testing.T) {
	for _, tt := range []struct {
		size        int64
		deliveries  int
		declares    bool
		maxInFlight int64
		want        int64
	}{
		{25 << 20, 12, true, 0, 150 << 20},
		{1 << 20, 40, true, 2 << 20, 2 << 20},
		{1 << 20, 40, false, 2 << 20, 2 << 20},
		{1 << 20, 40, true, 7 << 20, 7 << 20},
		{1 << 20, 40, false, 7 << 20, 7 << 20},
	} {
		size, deliveries := tt.size, tt.deliveries
		declared := int64(-1)
		if tt.declares {
			declared = size
		}
		t.Run(fmt.Sprintf("%d times %d bytes, declared %v, MaxInFlight %d", deliveries, size, tt.declares, tt.maxInFlight), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var most, inHandlers, handled atomic.Int64
				r := newReceiver(t, webhook.Config{Verifier: believer{size}, MaxInFlight: tt.maxInFlight, Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
					if now := inHandlers.Add(int64(len(msgs[0].Payload))); now > tt.want {
						t.Errorf("bodies of %d bytes are in handlers", now)
					}
					<-time.After(100 * time.Millisecond)
					inHandlers.Add(-int64(len(msgs[0].Payload)))
					handled.Add(1)
					return []error{nil}
				})})
				answered := make(chan int, deliveries)
				for range deliveries {
					s := &bulk{receiver: r, most: &most, left: size}
					go func() { answered <- s.send(t.Context(), declared).StatusCode }()
				}
				for range deliveries {
					if status := <-answered; status != 200 {
						t.Errorf("status %d", status)
					}
				}
				if most.Load() > tt.want || handled.Load() != int64(deliveries) {
					t.Errorf("held %d bytes, want %d at most; %d deliveries were handled", most.Load(), tt.want,
						handled.Load())
				}
				synctest.Wait() // the work returns its share after its answer
				if held := r.Held(); held != 0 {
					t.Errorf("%d bytes are held at the end", held)
				}
			})
		})
	}
}

// Senders that declare a large body, or stop in the middle of it, hold neither the budget for ever nor others up.
func TestSlowSendersHoldNoBudget(t *testing.T) {
	const (
		size        = 1 << 20
		readTimeout = 9 * time.Second // of a believer's Receiver
	)
	start := func(t *testing.T, r *webhook.Receiver, n int, sent int64, most *atomic.Int64, stall time.Duration) chan *http.Response {
		answered := make(chan *http.Response, n)
		for range n {
			s := &bulk{receiver: r, most: most, left: sent, stalls: true, until: time.Now().Add(stall)}
			go func() { answered <- s.send(t.Context(), size) }()
		}
		synctest.Wait()
		return answered
	}
	t.Run("a body that is only declared takes little", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var most atomic.Int64
			r := newReceiver(t, webhook.Config{
				Verifier: believer{size}, MaxInFlight: 10 * size,
				Processor: always(nil),
			})
			answered := start(t, r, 1000, 0, &most, readTimeout)
			if held := r.Held(); held > 1000*4<<10 {
				t.Errorf("%d bytes are held", held)
			}
			began := time.Now()
			s := &bulk{receiver: r, most: &most, left: size}
			if res := s.send(t.Context(), size); res.StatusCode != 200 || time.Since(began) > 0 {
				t.Errorf("status %d after %v", res.StatusCode, time.Since(began))
			}
			for range 1000 {
				wantStatus(t, <-answered, 408)
			}
		})
	})
	// Those that wait for room get it when the first ones end, which may be too late to read the rest: the answer is still
	// that of a full budget.
	for _, stall := range []time.Duration{readTimeout, readTimeout - 100*time.Millisecond} {
		t.Run(fmt.Sprintf("bodies that stop in the middle, for %v", stall), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var most atomic.Int64
				r := newReceiver(t, webhook.Config{Verifier: believer{size}, MaxInFlight: 4 * size, Processor: always(nil)})
				slow := start(t, r, 20, size-1, &most, stall) // the budget is spent, also the express
				<-time.After(time.Second)
				answered := make(chan *http.Response)
				go func() { // it waits until the slow ones are answered
					s := &bulk{receiver: r, most: &most, left: size}
					answered <- s.send(t.Context(), size)
				}()
				busy := 0
				for range 20 {
					switch res := <-slow; {
					case res.StatusCode == 503 && res.Header.Get("Retry-After") == "5" &&
						res.Header.Get("Connection") == "close":
						busy++
					case res.StatusCode != 408:
						t.Errorf("status %d, %v", res.StatusCode, res.Header)
					}
				}
				wantStatus(t, <-answered, 200)
				synctest.Wait()
				if busy == 0 || most.Load() > 4*size || r.Held() != 0 {
					t.Errorf("%d were answered with 503; at most %d bytes were held, and %d are left", busy, most.Load(),
						r.Held())
				}
			})
		})
	}
	t.Run("a client that is gone waits no longer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var most atomic.Int64
			r := newReceiver(t, webhook.Config{Verifier: believer{size}, MaxInFlight: 2 * size, Processor: always(nil)})
			slow := start(t, r, 1, size-1, &most, readTimeout)
			ctx, hangUp := context.WithCancel(t.Context())
			answered := make(chan *http.Response)
			go func() { answered <- (&bulk{receiver: r, most: &most, left: size}).send(ctx, size) }()
			synctest.Wait()
			hangUp()
			<-answered
			wantStatus(t, <-slow, 408)
			synctest.Wait()
			if held := r.Held(); held != 0 {
				t.Errorf("%d bytes are held at the end", held)
			}
		})
	})
}

// Work that outlives its request keeps its body's share.
func TestLateWorkHoldsItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		consumer := billing(t, consumer.Config[tx]{Handle: func(context.Context, tx, *consumer.Message) error {
			<-time.After(time.Minute)
			return nil
		}})
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: consumer, AcceptedRisks: []webhook.Risk{webhook.RiskShortWindow}})
		wantStatus(t, s.send(t, r, shopEvent{ID: "1", Type: "x", Created: time.Now()}), 503)
		if r.Held() == 0 {
			t.Error("the handler runs, and its body is not counted")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if held := r.Held(); held != 0 {
			t.Errorf("%d bytes are held after the handler", held)
		}
	})
}

// A body arrives whole, whatever its size, and in whatever pieces.
func TestBodiesOfAllSizes(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 16384, 16385, 99_999, 100_000} {
		for _, declared := range []bool{true, false} {
			want := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
			got := []byte("none")
			r := newReceiver(t, webhook.Config{Verifier: believer{100_000}, Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
				got = msgs[0].Payload
				return []error{nil}
			})})
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
				io.MultiReader(bytes.NewReader(want[:size/3]), bytes.NewReader(want[size/3:])))
			if req.ContentLength = -1; declared {
				req.ContentLength = int64(size)
			}
			wantStatus(t, do(r, req), 200)
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes, declared %v: the Verifier got %d", size, declared, len(got))
			}
		}
	}
}
