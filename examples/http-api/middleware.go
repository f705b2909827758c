package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

type accountKey struct{}

// accountOf returns who sent the request: the owner of its Idempotency-Key. It is not the token, which may be replaced
// between a request and its repeat.
func accountOf(ctx context.Context) string {
	account, _ := ctx.Value(accountKey{}).(string)
	return account
}

// authenticate takes the place of your own authentication. accounts has the owner of each token.
func authenticate(accounts map[string]string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		account, known := accounts[token]
		if !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			_ = reply(w, http.StatusUnauthorized, failure{"want Authorization: Bearer and a valid token"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, account)))
	})
}

// limit refuses an account that has more than most requests in progress. It protects the process and needs no database,
// so it is outside of the Guard and counts repeats too.
func limit(most int, next http.Handler) http.Handler {
	var mu sync.Mutex
	running := map[string]int{}
	add := func(account string, n int) (now int) {
		mu.Lock()
		defer mu.Unlock()
		if running[account] += n; running[account] == 0 {
			delete(running, account)
			return 0
		}
		return running[account]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := accountOf(r.Context())
		defer add(account, -1)
		if add(account, 1) > most {
			w.Header().Set("Retry-After", "1")
			_ = reply(w, http.StatusTooManyRequests, failure{"too many requests at once"})
			return
		}
		next.ServeHTTP(w, r)
	})
}
