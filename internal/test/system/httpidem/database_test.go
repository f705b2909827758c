package httpidem_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

func (n *node) wantEffects(t testing.TB, want int) {
	t.Helper()
	got, err := n.count(context.WithoutCancel(t.Context()), `SELECT count(*) FROM effects`)
	if err != nil || got != want {
		t.Errorf("%d effects, %v; want %d", got, err, want)
	}
}

func wantStatus(t testing.TB, h http.Handler, q request, status int, replayed bool) {
	t.Helper()
	if w := serve(h, q.make(t.Context())); w.Code != status || isReplay(w) != replayed {
		t.Errorf("status %d, replayed %v; want %d, %v: %s", w.Code, isReplay(w), status, replayed, w.Body)
	}
}

// What must hold on every database.
func TestDatabases(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		dsn := e.Create(t)
		n := e.node(t, dsn, settings{})
		order := n.handle(e.order)
		effects := 0

		wantStatus(t, order, request{key: "case-7", body: "\x01x"}, http.StatusCreated, false)
		wantStatus(t, order, request{key: "case-7", body: "\x01x"}, http.StatusCreated, true)
		wantStatus(t, order, request{key: "case-7", body: "y"}, http.StatusUnprocessableEntity, false) // case 8
		effects++
		n.wantEffects(t, effects)

		for key, status := range map[string]int{
			"E1": http.StatusPaymentRequired, "case-20": http.StatusNotFound,
			"case-22": http.StatusServiceUnavailable,
		} {
			failing := n.handle(func(ctx context.Context, exec func(string, ...any) error, w http.ResponseWriter, r *http.Request) error {
				defer w.WriteHeader(status)
				return exec(e.Insert, key, "never")
			})
			for i := range 2 {
				wantStatus(t, failing, request{key: key}, status, i > 0 && status == http.StatusPaymentRequired)
			}
		}
		n.wantEffects(t, effects)

		aborted := n.handle(func(_ context.Context, exec func(string, ...any) error, w http.ResponseWriter, _ *http.Request) error {
			if err := exec(e.Insert, "E14", "never"); err != nil {
				return err
			}
			if exec(`INSERT INTO effects VALUES (NULL, NULL)`) == nil {
				t.Error("the constraint is missing")
			}
			w.WriteHeader(http.StatusCreated)
			return errors.New("a handler that returns the error of its statement")
		})
		wantStatus(t, aborted, request{key: "E14"}, http.StatusInternalServerError, false)
		n.wantEffects(t, effects)

		// E4: a handler that ends its transaction by text. Afterwards the key is free, or its answer is not retained;
		// it never runs unseen and never answers 2xx.
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			key := "E4-" + end
			ending := n.handle(func(_ context.Context, exec func(string, ...any) error, w http.ResponseWriter, _ *http.Request) error {
				_ = exec(end) // what the handler writes after this is not in the transaction, on SQLite in none
				w.WriteHeader(http.StatusCreated)
				return nil
			})
			if w := serve(ending, request{key: key}.make(t.Context())); w.Code < 500 {
				t.Errorf("%s: status %d", key, w.Code)
			}
			n.wantEffects(t, effects)
			w := serve(order, request{key: key}.make(t.Context()))
			switch {
			case w.Code == http.StatusCreated && !isReplay(w):
				effects++
			case w.Code == http.StatusConflict && end == "COMMIT":
			default:
				t.Errorf("%s: then status %d, replayed %v", key, w.Code, isReplay(w))
			}
			n.wantEffects(t, effects)
		}

		// E6: the old secret, both, and the old one again.
		old, both := e.node(t, dsn, settings{}), e.node(t, dsn, settings{secrets: [][]byte{secret("b"), secret("a")}})
		wantStatus(t, both.handle(e.order), request{key: "E6"}, http.StatusCreated, false)
		wantStatus(t, old.handle(e.order), request{key: "E6"}, http.StatusCreated, true)
		wantStatus(t, old.handle(e.order), request{key: "E6-2"}, http.StatusCreated, false)
		wantStatus(t, both.handle(e.order), request{key: "E6-2"}, http.StatusCreated, true)
		effects += 2
		n.wantEffects(t, effects)

		// Case 12: nothing in the table shows a key, a principal or a body.
		secretive := request{key: "a-very-secret-key", user: "a-very-secret-user", body: "a-very-secret-body"}
		wantStatus(t, n.handle(func(context.Context, func(string, ...any) error, http.ResponseWriter, *http.Request) error {
			return nil
		}), secretive, http.StatusOK, false)
		if shown, err := n.count(t.Context(), `SELECT count(*) FROM processed_messages WHERE consumer LIKE '%a-very-secret%' OR tenant LIKE '%a-very-secret%' OR id LIKE '%a-very-secret%'`); err != nil || shown != 0 {
			t.Errorf("case 12: %d rows show it, %v", shown, err)
		}
		if hashed, err := n.count(t.Context(), `SELECT count(*) FROM processed_messages WHERE consumer = 'api' AND length(id) <> 64`); err != nil || hashed != 0 {
			t.Errorf("case 12: %d rows have no HMAC, %v", hashed, err)
		}
	})
}
