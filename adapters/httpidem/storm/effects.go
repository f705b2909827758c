package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// EffectsAt returns a Config.Effects that asks a URL: a GET with these headers must be answered with a JSON number, or
// with a JSON array that has an element for each effect.
func EffectsAt(url string, headers http.Header) func(ctx context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return 0, err
		}
		r.Header = headers.Clone()
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("GET %s: %s", url, res.Status)
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return 0, err
		}
		var elements []json.RawMessage
		if json.Unmarshal(text, &elements) == nil {
			return len(elements), nil // null: no effect
		}
		n := 0
		if err := json.Unmarshal(text, &n); err != nil {
			return 0, fmt.Errorf("GET %s: %w", url, errNotCounted)
		}
		return n, nil
	}
}
