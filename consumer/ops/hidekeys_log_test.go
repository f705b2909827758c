package ops_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/txonce/txonce/consumer/ops"
)

func TestHideKeysInLogs(t *testing.T) {
	hide := ops.HideKeys{Secret: []byte("s")}
	var out bytes.Buffer
	log := slog.New(hide.Handler(slog.NewTextHandler(&out, nil)))
	log.Warn("parked", "position", "queue/ann@example.org", "key", "ann@example.org")
	log.With("key", "ann@example.org").WithGroup("g").Warn("parked", "id", "ann@example.org", "topic", "orders", "n", 1)
	if got := out.String(); strings.Contains(got, "ann") || strings.Count(got, hide.Key("ann@example.org")) != 4 ||
		!strings.Contains(got, "g.topic=orders g.n=1") {
		t.Errorf("the line is %s", got)
	}
	plain := slog.DiscardHandler
	if (ops.HideKeys{}).Handler(plain) != plain {
		t.Error("without a secret there is another handler")
	}
}

func TestHidingHandlerKeepsTheRulesOfSlog(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return ops.HideKeys{Secret: []byte("s")}.Handler(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		line := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		return line
	})
}
