package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBadOptionsAreNamed(t *testing.T) {
	t.Setenv("TXONCE_POSTGRES", "")
	for _, name := range []string{"TXONCE_KAFKA", "TXONCE_MYSQL", "TXONCE_SQS", "TXONCE_RABBITMQ"} {
		t.Setenv(name, "")
	}
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ args, want string }{
		{"-store oracle", "-store oracle: want sqlite or pgx or sql-postgres or mysql"},
		{"-broker nats", "-broker nats: want kfake or kafka or sqs or rabbitmq"},
		{"-store mysql", "-store mysql needs -mysql with the DSN"},
		{"-broker sqs", "-broker sqs needs -sqs with the URL"},
		{"-broker rabbitmq", "-broker rabbitmq needs -rabbitmq with the URL"},
		{"-mysql root@/x -store sqlite", "-mysql is of no use with -store sqlite; add -store mysql"},
		{"-sqs http://x", "-sqs is of no use with -broker kfake; add -broker sqs"},
		{"-rabbitmq amqp://x -broker kafka -kafka x:1", "-rabbitmq is of no use with -broker kafka"},
		{"-broken dual-write -store mysql -mysql x", "-broken is written for SQLite and PostgreSQL"},
		{"-rebalance sticky", "-rebalance sticky: want eager or cooperative"},
		{"-broken twice", "-broken twice: want mark-first or effect-first or dual-write"},
		{"-broken=", "-broken : want mark-first"},
		{"-messages 0", "-messages 0: want 100 to"},
		{"-messages -5", "-messages -5"},
		{"-messages many", `"many" for flag -messages`},
		{"-messages 100000000", "-messages 100000000"},
		{"-seed -1", `"-1" for flag -seed`},
		{"-kill-every 2", `"2" for flag -kill-every`},
		{"-kill-every -2s", "-kill-every -2s: want 250ms or more"},
		{"-kill-every 0", "-kill-every 0s: want 250ms or more"},
		{"-store pgx", "-store pgx needs -postgres"},
		{"-broker kafka", "-broker kafka needs -kafka"},
		{"-postgres postgres://x", "-postgres is of no use with -store sqlite"},
		{"-kafka localhost:1", "-kafka is of no use with -broker kfake"},
		{"-colour", "-colour"},
		{"now", `"now" is no flag`},
	} {
		_, err := parseOptions(strings.Fields(tt.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
	if _, err := parseOptions([]string{"-help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
	if code := demo([]string{"-store", "oracle"}, io.Discard, io.Discard); code != 2 {
		t.Errorf("exit code %d for a bad flag, want 2", code)
	}
}

func TestOptions(t *testing.T) {
	t.Setenv("TXONCE_POSTGRES", "")
	t.Setenv("TXONCE_KAFKA", "")
	dir := t.TempDir()
	t.Chdir(dir)
	o, err := parseOptions(nil, io.Discard)
	if err != nil || o.messages != 20_000 || o.store != "sqlite" || o.broker != "kfake" || o.kafka != nil ||
		o.killEvery != 0 {
		t.Errorf("defaults: %+v, %v", o, err)
	}

	// The servers of make services-up are found.
	if err := os.MkdirAll(filepath.Join(dir, ".services"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := "TXONCE_KAFKA=a:1,b:2\nTXONCE_POSTGRES=postgres://me@h/db?x=y\n"
	if err := os.WriteFile(filepath.Join(dir, ".services", "env"), []byte(env), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err = parseOptions(strings.Fields("-store sql-postgres -broker kafka -seed 0 -kill-every 2s"), io.Discard)
	if err != nil || o.postgres != "postgres://me@h/db?x=y" || len(o.kafka) != 2 || o.seed != 0 ||
		o.killEvery != 2*time.Second {
		t.Errorf("with services: %+v, %v", o, err)
	}
	t.Setenv("TXONCE_KAFKA", "c:3")
	if o, err = parseOptions(strings.Fields("-broker kafka"), io.Discard); err != nil || o.kafka[0] != "c:3" {
		t.Errorf("the environment does not go first: %+v, %v", o, err)
	}
	if o, err = parseOptions(strings.Fields("-broker kafka -kafka d:4"), io.Discard); err != nil ||
		o.kafka[0] != "d:4" {
		t.Errorf("the flag does not go first: %+v, %v", o, err)
	}
}
