package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The README quotes main.go whole.
func TestREADME(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, shown, _ := strings.Cut(string(program), "\n"); !strings.Contains(string(readme), "```go\n"+shown+"```") {
		t.Error("README.md shows another worker than examples/worker/main.go")
	}
}

// An order that is sent several times is charged and announced once, also by a worker that starts later.
func TestWorker(t *testing.T) {
	dsn := testdb.Schema(t, testdb.Postgres(t))
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `CREATE TABLE charges (order_id text, cents bigint)`); err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "charges"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	client, err := sarama.NewClient(broker.ListenAddrs(), kafka.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()

	for _, step := range []struct {
		orders    []string
		announced int64 // by this run and those before
	}{
		{[]string{"1", "1", "2", "1"}, 2},
		{[]string{"1", "2", "3", "3"}, 3},
	} {
		for _, id := range step.orders {
			if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(`{"order_id": "` + id + `", "cents": 5}`)}); err != nil {
				t.Fatal(err)
			}
		}
		workUntil(t, dsn, client, broker, step.announced)
		var charges, orders int64
		if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM charges`).Scan(&charges,
			&orders); err != nil {
			t.Fatal(err)
		}
		if n := announced(t, client); charges != step.announced || orders != step.announced || n != step.announced {
			t.Errorf("%d charges of %d orders, %d announced; want %d of each", charges, orders, n, step.announced)
		}
	}
}

// workUntil runs the worker until want charges have been announced.
func workUntil(t *testing.T, dsn string, client sarama.Client, broker *kfake.Cluster, want int64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- run(ctx, dsn, broker.ListenAddrs()) }()
	for deadline := time.After(time.Minute); announced(t, client) < want; {
		select {
		case err := <-stopped:
			t.Fatalf("the worker ended: %v", err)
		case <-deadline:
			t.Fatalf("%d charges were announced within a minute, want %d", announced(t, client), want)
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func announced(t *testing.T, client sarama.Client) int64 {
	t.Helper()
	end, err := client.GetOffset("charges", 0, sarama.OffsetNewest)
	if err != nil {
		t.Fatal(err)
	}
	return end
}
