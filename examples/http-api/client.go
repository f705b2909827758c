package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// answer is what a client sees.
type answer struct {
	status   int
	replayed bool
	body     string
	orderID  string
}

// order sends a request until it gets an answer that is final, as a client must: always with the same key and body.
func (d *demo) order(ctx context.Context, from demoAccount, key, body string) (r answer, err error) {
	for range 10 {
		r, err = d.try(ctx, from, key, body)
		switch {
		case ctx.Err() != nil:
			return r, ctx.Err()
		case err == nil && r.status != http.StatusConflict && r.status != http.StatusTooManyRequests && r.status < 500:
			return r, nil
		}
		select {
		case <-time.After(time.Second): // as Retry-After says
		case <-ctx.Done():
		}
	}
	return r, fmt.Errorf("no final answer in ten tries: %v, %w", r, err)
}

// try sends a request once.
func (d *demo) try(ctx context.Context, from demoAccount, key, body string) (r answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, strings.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("Authorization", "Bearer "+from.token)
	req.Header.Set("Content-Type", "application/json")
	if req.Header.Set("Idempotency-Key", key); key == "" {
		req.Header.Del("Idempotency-Key")
	}
	// or net/http itself repeats requests that have an Idempotency-Key, and the demo would not count them
	req.GetBody = nil
	res, err := d.client.Do(req)
	if err != nil {
		return r, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{
		res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true", string(text),
		res.Header.Get("X-Order-Id"),
	}, err
}

func item(i int) string { return fmt.Sprintf("book %d", i) }

func body(i int, card string) string {
	return fmt.Sprintf(`{"item": %q, "cents": %d, "card": %q}`, item(i), 1000+i, card)
}
