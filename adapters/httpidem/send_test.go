package httpidem_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/dedup/deduptest"
)

// lostConnection is a ResponseWriter whose client takes nothing until the server gives up.
type lostConnection struct {
	*httptest.ResponseRecorder
	givenUp <-chan struct{}
}

func (c lostConnection) Write(p []byte) (int, error) {
	<-c.givenUp
	return len(p), nil
}

// A client that has lost its connection sends its request again at once. It gets an answer while the first one is still
// being written.
func TestSendsWithoutTheKey(t *testing.T) {
	for name, fails := range map[string]bool{"a response": false, "a refusal": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, func(c *config) { c.MaxConcurrent = 1 })
				first := a.create()
				if fails {
					first = a.guard.Handle(func(context.Context, *deduptest.Tx, http.ResponseWriter,
						*http.Request,
					) error {
						return errHandler
					})
				}
				givenUp := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() { first.ServeHTTP(lostConnection{httptest.NewRecorder(), givenUp}, request{}.make(t.Context())) })
				synctest.Wait()
				a.want(a.create(), request{}, http.StatusCreated, !fails)
				close(givenUp)
				wg.Wait()
				a.wantEffects(1)
			})
		})
	}
}
