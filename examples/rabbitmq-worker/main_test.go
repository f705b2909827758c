package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/self"
	"github.com/txonce/txonce/internal/test/testdb"
)

func TestMain(m *testing.M) { self.Main(m, main) }

// place makes a schema and names queues for one test.
func place(t *testing.T) (args []string, charges func() (all, distinct int), announced func(least int) int) {
	dsn, url := testdb.Postgres(t), testrabbitmq.Server(t)
	name := fmt.Sprintf("worker_%d_%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		conn, err := amqp.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{name + "-orders", name + "-charged"} {
			if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
				t.Error(err)
			}
		}
	})
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // the test's own has ended
		defer db.Close(ctx)
		if _, err := db.Exec(ctx, "DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	charges = func() (all, distinct int) {
		if err := db.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT order_id) FROM "+name+".charges").Scan(&all,
			&distinct); err != nil {
			t.Fatal(err)
		}
		return all, distinct
	}
	announced = func(least int) (n int) { // RabbitMQ may report a busy quorum queue as empty
		for end := time.Now().Add(2 * time.Minute); n < least &&
			time.Now().Before(end); <-time.After(50 * time.Millisecond) {
			n = testrabbitmq.Ready(t, url, name+"-charged")
		}
		return n
	}
	return []string{"-postgres", dsn, "-rabbitmq", url, "-name", name}, charges, announced
}

// Every order is sent twice and charged once, and then the command ends.
func TestChargesOnce(t *testing.T) {
	args, charges, announced := place(t)
	cmd, out := self.Recorded(t, append(args, "-orders", "300")...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "every order is charged once") {
		t.Errorf("it says\n%s", out)
	}
	all, distinct := charges()
	if n := announced(all); all != 300 || distinct != 300 || n < 300 {
		t.Errorf("%d charges of %d orders, %d announced", all, distinct, n)
	}
}

// After SIGKILL and another run each order is still charged once. Ctrl-C ends the command without an error.
func TestKilled(t *testing.T) {
	args, charges, announced := place(t)
	for _, with := range []os.Signal{syscall.SIGKILL, syscall.SIGINT} {
		cmd, out := self.Recorded(t, append(args, "-orders", "1500")...)
		said, err := startSaying(cmd)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(said); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			if strings.Contains(lines.Text(), "deliveries wait") { // it works
				break
			}
		}
		if err := cmd.Process.Signal(with); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(out, said)
		if err := cmd.Wait(); err != nil && with == syscall.SIGINT {
			t.Errorf("after %v: %v\n%s", with, err, out)
		}
	}
	// Send the same number of orders again. With fewer, the command could end while it still holds deliveries that the
	// queue no longer counts as waiting.
	cmd, out := self.Recorded(t, append(args, "-orders", "1500")...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all, distinct := charges()
	if n := announced(all); all != 1500 || distinct != 1500 || n < all {
		t.Errorf("%d charges of %d orders, %d announced\n%s", all, distinct, n, out)
	}
}

// startSaying starts cmd and returns its output.
func startSaying(cmd *exec.Cmd) (io.Reader, error) {
	cmd.Stdout, cmd.Stderr = nil, nil
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	return said, cmd.Start()
}

// The error names a missing server.
func TestNamesWhatIsMissing(t *testing.T) {
	args, _, _ := place(t)
	cmd, out := self.Recorded(t, append(args, "-rabbitmq", "amqp://127.0.0.1:1/")...)
	if err := cmd.Run(); err == nil || !strings.Contains(out.String(), "is RabbitMQ there?") {
		t.Errorf("%v\n%s", err, out)
	}
}
