package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/internal/test/testdb"
)

// The README shows this very program.
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

// An order that is sent three times is charged and announced once.
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
	for _, id := range []string{"1", "1", "2", "1"} {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(`{"order_id": "` + id + `", "cents": 5}`)}); err != nil {
			t.Fatal(err)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- run(ctx, dsn, broker.ListenAddrs()) }()
	announced := func() int64 {
		end, err := client.GetOffset("charges", 0, sarama.OffsetNewest)
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	for deadline := time.After(time.Minute); announced() < 2; {
		select {
		case err := <-stopped:
			t.Fatalf("the worker ended: %v", err)
		case <-deadline:
			t.Fatal("not both orders were announced within a minute")
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	var charges, orders int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT order_id) FROM charges`).Scan(&charges, &orders); err != nil {
		t.Fatal(err)
	}
	if charges != 2 || orders != 2 || announced() != 2 {
		t.Errorf("%d charges of %d orders, %d announced; want 2 of each", charges, orders, announced())
	}
}
