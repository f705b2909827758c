package sqlstore_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	command "os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

func (d *sqliteDB) outbox(t testing.TB) *node {
	return newNode(t, openDB(t, "sqlite", d.dsn), sqlstore.Config{Dialect: sqlstore.SQLite})
}

func enqueue(t testing.TB, n *node, msgs ...outbox.Message) {
	t.Helper()
	err := n.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error { return n.Enqueue(t.Context(), tx, msgs...) })
	if err != nil {
		t.Fatal(err)
	}
}

// messages returns n messages with the given number of keys.
func messages(prefix string, n, keys int) (msgs []outbox.Message) {
	for i := range n {
		msgs = append(msgs, outbox.Message{ID: fmt.Sprintf("%s-%d", prefix, i), Topic: "t", OrderingKey: fmt.Sprint(i % keys), Payload: []byte("x")})
	}
	return msgs
}

// relayTo runs a relay until the test ends.
func relayTo(t *testing.T, q driver.Queue, to outbox.Publisher, ttl time.Duration) {
	t.Helper()
	r, err := relay.New(relay.Config{Queue: q, Publisher: to, LeaseTTL: ttl, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
}

// await waits until done reports true.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(2 * time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("did not happen within two minutes: %s", what)
		}
	}
}

// A relay's process is killed after it has leased all messages. Another relay, with its own Store and pool, takes over
// once the lease has expired, and publishes all of them.
func TestOutboxSQLiteRelayProcessKilled(t *testing.T) {
	const ttl = time.Hour
	if dsn := os.Getenv("TXONCE_OUTBOX_CHILD"); dsn != "" {
		n := (&sqliteDB{dsn: dsn}).outbox(t)
		s := open(t, n, ttl)
		hold := renew(t, s)
		fmt.Printf("holds %d, leased %d\n", hold.Shards, len(lease(t, s)))
		_, _ = io.Copy(io.Discard, os.Stdin) // wait to be killed
		return
	}
	d := openSQLite(t)
	n := d.outbox(t)
	enqueue(t, n, messages("m", 200, 100)...)
	child := command.Command(os.Args[0], "-test.run=^TestOutboxSQLiteRelayProcessKilled$")
	child.Env = append(os.Environ(), "TXONCE_OUTBOX_CHILD="+d.dsn)
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "holds 64, leased 200\n" {
		t.Errorf("child: %q, %v", line, err)
	}
	s := open(t, n, ttl)
	if hold := renew(t, s); hold.Shards != 0 || hold.SameName != 1 {
		t.Errorf("beside a living process: %+v", hold)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	// the hold has expired
	exec(t, d.db, fmt.Sprintf(`UPDATE txonce_relays SET until = until - %d`, (ttl+time.Millisecond).Microseconds()))
	fake := &outboxtest.FakePublisher{}
	relayTo(t, n, fake, time.Minute)
	_ = s.Close(t.Context())
	await(t, "all 200 messages are published", func() bool { return len(fake.Confirmed()) >= 200 })
	await(t, "nothing is pending", func() bool {
		st, err := n.Outbox().Stats(t.Context())
		return err == nil && st.Pending == 0
	})
}

// Two Stores on one file, as in two processes, share the shards. Neither leases messages of the other one's shards.
func TestOutboxSQLiteTwoStoresShare(t *testing.T) {
	d := openSQLite(t)
	a, b := d.outbox(t), d.outbox(t)
	enqueue(t, a, messages("m", 300, 300)...)
	one, two := open(t, a, time.Minute), open(t, b, time.Minute)
	if hold := renew(t, one); hold.Shards != 64 || hold.Relays != 1 {
		t.Fatalf("alone: %+v", hold)
	}
	all := lease(t, one)
	if len(all) != 300 {
		t.Fatalf("%d leased", len(all))
	}
	if renew(t, two); len(lease(t, two)) != 0 {
		t.Fatal("a second session has leased what the first one holds")
	}
	for range 2 { // in the second round each finds that the other one has renewed
		if hold := renew(t, one); hold.Shards != 64 || hold.Relays != 2 {
			t.Errorf("with everything leased: %+v", hold)
		}
		<-time.After(5 * time.Millisecond) // let the database's clock advance
		renew(t, two)
	}
	renew(t, one)
	settle(t, one, outcomes(driver.Returned, all...))
	if got := len(lease(t, one)); got == 0 || got == 300 {
		t.Errorf("%d leased, though half of the shards were given back and the other half not", got)
	}
	if hold := renew(t, two); hold.Shards != 32 || len(lease(t, two)) == 0 {
		t.Errorf("the second: %+v", hold)
	}
}

// Handlers of two processes write without a pause, and a relay runs on a third Store. Each of them makes progress.
func TestOutboxSQLiteRelayBesideBusyHandlers(t *testing.T) {
	d := openSQLite(t)
	// The test does not simulate power loss, and with synchronous on each commit would wait for the disk.
	store := func() *node {
		return newNode(t, openDB(t, "sqlite", d.dsn+"&_pragma=synchronous(off)"),
			sqlstore.Config{Dialect: sqlstore.SQLite})
	}
	fake := &outboxtest.FakePublisher{}
	relayTo(t, store(), fake, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var handled [2]atomic.Int64
	for i := range handled {
		n := store()
		for j := range 4 {
			wg.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					m := outbox.Message{ID: fmt.Sprintf("%d-%d-%d", i, j, k), Topic: "t", OrderingKey: fmt.Sprint(i, j)}
					err := n.InTx(ctx, nil, func(tx *sql.Tx, _ []dedup.Claim) error {
						if _, err := tx.ExecContext(ctx, `INSERT INTO effects (name) VALUES ('x')`); err != nil {
							return err
						}
						return n.Enqueue(ctx, tx, m)
					})
					switch {
					case err == nil:
						handled[i].Add(1)
					case ctx.Err() == nil && !n.Retryable(err):
						t.Errorf("handler: %v", err)
						return
					}
				}
			})
		}
	}
	await(t, "both processes' handlers and the relay make progress", func() bool {
		return handled[0].Load() > 150 && handled[1].Load() > 150 && len(fake.Confirmed()) > 300
	})
	cancel()
	wg.Wait()
	committed := len(stringsOf(t, d.db, `SELECT name FROM effects`))
	await(t, "everything is published", func() bool { return len(fake.Confirmed()) >= committed })
	next, seen := map[string]int{}, map[string]bool{}
	for _, p := range fake.Published() {
		if seen[p.ID] {
			continue // a repeated message may come late
		}
		seen[p.ID] = true
		var k int
		if _, err := fmt.Sscanf(p.ID[strings.LastIndex(p.ID, "-")+1:], "%d", &k); err != nil {
			t.Fatal(err)
		}
		if k < next[p.OrderingKey] {
			t.Fatalf("key %s: %s after number %d", p.OrderingKey, p.ID, next[p.OrderingKey])
		}
		next[p.OrderingKey] = k
	}
	t.Logf("%d and %d handled, %d published", handled[0].Load(), handled[1].Load(), committed)
}

// A transaction that has read cannot write once another one has written, and waiting does not help. Enqueue must fail
// at once with a Retryable error.
func TestOutboxSQLiteEnqueueAfterRead(t *testing.T) {
	d := openSQLite(t)
	n := d.open(t, d.dsn, deduptest.Options{Wait: 2 * time.Minute})
	tx, err := n.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var count int
	if err := tx.QueryRow(`SELECT count(*) FROM effects`).Scan(&count); err != nil {
		t.Fatal(err)
	}
	exec(t, d.db, `INSERT INTO effects (name) VALUES ('x')`)
	began := time.Now()
	err = n.Enqueue(t.Context(), tx, messages("m", 1, 1)...)
	if err == nil || !n.Retryable(err) || time.Since(began) > time.Minute {
		t.Errorf("%v after %v, retryable %v", err, time.Since(began), n.Retryable(err))
	}
}

// Enqueue in a caller's transaction that has not read yet waits for the writing transaction.
func TestOutboxSQLiteEnqueueWaitsForTheWriter(t *testing.T) {
	d := openSQLite(t)
	n := d.open(t, d.dsn, deduptest.Options{Wait: 2 * time.Minute})
	writer, err := d.own.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	timer := time.AfterFunc(200*time.Millisecond, func() { _ = writer.Commit() })
	defer timer.Stop()
	err = inTx(t.Context(), n.db, nil, func(tx *sql.Tx) error { return n.Enqueue(t.Context(), tx, messages("m", 1, 1)...) })
	if err != nil {
		t.Fatal(err)
	}
}

// LockOrderingKey makes a caller's transaction the writing one before it has read anything.
func TestOutboxSQLiteSerializeWrites(t *testing.T) {
	d := openSQLite(t)
	n := d.outbox(t)
	err := inTx(t.Context(), n.db, nil, func(tx *sql.Tx) error {
		if err := n.LockOrderingKey(t.Context(), tx, "k"); err != nil {
			return err
		}
		if _, err := d.own.Exec(`INSERT INTO effects (name) VALUES ('between')`); err == nil {
			t.Error("another transaction has written after LockOrderingKey")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
