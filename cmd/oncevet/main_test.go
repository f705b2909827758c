package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const examples = "github.com/txonce/txonce/examples"

// The examples, one of which README shows, have no mistakes, and the mistakes that are planted in that one are found.
func TestExamples(t *testing.T) {
	tool := build(t)
	if out := vet(t, tool, examples+"/..."); out != "" {
		t.Errorf("oncevet finds mistakes in the examples:\n%s", out)
	}
	worker := filepath.Join("..", "..", "examples", "worker", "main.go")
	for _, mistake := range []struct {
		name    string
		plant   []string // pairs: what is replaced, and by what
		reports string
	}{
		{
			"the pool",
			[]string{"tx.Exec(ctx, `INSERT", "b.pool.Exec(ctx, `INSERT"},
			`b.pool.Exec runs outside of the handler's transaction.*; use tx.Exec`,
		},
		{
			"the pool in a helper",
			[]string{
				"tx.Exec(ctx, `INSERT INTO charges (order_id, cents) VALUES ($1, $2)`, o.OrderID, o.Cents)",
				"b.save(ctx, o)",
				"func run(", `
func (b billing) save(ctx context.Context, o OrderPlaced) (int64, error) {
	tag, err := b.pool.Exec(ctx, "INSERT INTO charges VALUES ($1, $2)", o.OrderID, o.Cents)
	return tag.RowsAffected(), err
}

func run(`,
			},
			`b.pool.Exec runs outside of the handler's transaction`,
		},
		{
			"a handler that was assigned to a variable",
			[]string{
				"Handle: consumer.JSON(billing{store, pool}.charge)", "Handle: handle",
				"orders := must(", `
	handle := consumer.Handler[pgx.Tx](nil)
	handle = func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		_, err := pool.Exec(ctx, "INSERT INTO charges VALUES ($1, 1)", string(msg.Payload))
		return err
	}
	orders := must(`,
			},
			`pool.Exec runs outside of the handler's transaction`,
		},
		{
			"a key of the time",
			[]string{
				`consumer.JSONKey("order_id")`,
				`consumer.KeyOf(func(o OrderPlaced) (string, error) { return o.OrderID + time.Now().String(), nil })`,
			},
			`the key is made of time.Now`,
		},
		{
			"context.Background",
			[]string{"b.store.Enqueue(ctx,", "b.store.Enqueue(context.Background(),"},
			`b.store.Enqueue gets context.Background`,
		},
		{
			"an error that nobody reads",
			[]string{
				"return b.store.Enqueue(ctx,", "b.store.Enqueue(ctx,",
				"Payload: []byte(`{\"charged\": \"` + o.OrderID + `\"}`)})", "Payload: nil})\n\treturn nil",
			},
			`b.store.Enqueue: nobody reads its error`,
		},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			source := strings.NewReplacer(
				"type billing struct{ store *pgxstore.Store }", `
type billing struct {
	store *pgxstore.Store
	pool  *pgxpool.Pool
}

var _ = time.Now`,
				"billing{store}", "billing{store, pool}", `"syscall"`, "\"syscall\"\n\t\"time\"",
			).Replace(read(t, worker))
			for i := 0; i < len(mistake.plant); i += 2 {
				if !strings.Contains(source, mistake.plant[i]) {
					t.Fatalf("examples/worker has no %q", mistake.plant[i])
				}
				source = strings.Replace(source, mistake.plant[i], mistake.plant[i+1], 1)
			}
			out := vet(t, tool, "-overlay="+overlay(t, worker, source), examples+"/worker")
			if found := regexp.MustCompile(`(?m)^\S+main\.go:\d+:\d+: `).FindAllString(out, -1); len(found) != 1 {
				t.Errorf("%d findings, want 1:\n%s", len(found), out)
			}
			if !regexp.MustCompile(mistake.reports).MatchString(out) {
				t.Errorf("nothing that matches %q is reported:\n%s", mistake.reports, out)
			}
		})
	}
}

// Without go vet, oncevet calls it, and its flags are go vet's.
func TestPackagesAsArguments(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), build(t), "-oncecall.on", "-oncerows=false", examples+"/worker")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("oncevet: %v\n%s", err, out)
	}
}

func build(t *testing.T) (tool string) {
	t.Helper()
	tool = filepath.Join(t.TempDir(), "oncevet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return tool
}

// vet runs go vet, and returns what it reports.
func vet(t *testing.T, tool string, args ...string) string {
	t.Helper()
	args = append([]string{"vet", "-vettool=" + tool}, args...)
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	if (err != nil) != (len(out) > 0) {
		t.Fatalf("go vet: %v\n%s", err, out)
	}
	return string(out)
}

// overlay writes a file for go's flag -overlay that gives a source file another content.
func overlay(t *testing.T, file, content string) string {
	t.Helper()
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "main.go")
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{file: other}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{other: content, filepath.Join(dir, "overlay.json"): string(data)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "overlay.json")
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
