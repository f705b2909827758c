package main

import (
	"slices"
	"strconv"
	"testing"

	"github.com/txonce/txonce/internal/test/brokers/testkafka"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

// addresses returns the flags with the addresses of a broker and a store.
func addresses(t *testing.T, broker, store string) []string {
	t.Helper()
	args := []string{"-broker", broker, "-store", store}
	switch broker {
	case "kafka":
		args = append(args, "-kafka", testkafka.Brokers(t)[0])
	case "sqs":
		args = append(args, "-sqs", *testsqs.Server(t).Options().BaseEndpoint)
	case "rabbitmq":
		args = append(args, "-rabbitmq", testrabbitmq.Server(t))
	}
	switch store {
	case "pgx", "sql-postgres":
		args = append(args, "-postgres", testdb.Postgres(t))
	case "mysql":
		args = append(args, "-mysql", testdb.MySQL(t))
	}
	return args
}

// chosen are pairs that, together with those of TestDemoOnServers and TestDemoSurvivesItsBroker, cover each broker and
// each store.
var chosen = []string{"kafka/mysql", "sqs/sql-postgres", "rabbitmq/sqlite"}

// TestDemoOnEveryPair runs the chosen pairs, and with TXONCE_TEST_ALL each broker with each store except the pairs of
// TestDemoOnServers. `make pairs` runs them with 20,000 messages.
func TestDemoOnEveryPair(t *testing.T) {
	for _, broker := range brokers[1:] { // skips kfake
		for _, store := range stores {
			if broker == "kafka" && (store == "pgx" || store == "sql-postgres") {
				continue
			}
			if !matrix.All() && !slices.Contains(chosen, broker+"/"+store) {
				continue
			}
			messages := 600
			if matrix.All() {
				messages = 1000
			}
			t.Run(broker+"/"+store, func(t *testing.T) {
				t.Parallel() // it waits for timeouts and for processes to start
				r := runDemo(t, append(addresses(t, broker, store), "-messages", strconv.Itoa(messages))...)
				r.check(t, messages)
				if broker == "sqs" && (r.Freezes != 1 || r.Redelivered == 0) {
					t.Errorf("%d freezes, %d redelivered: has a visibility timeout expired at all?", r.Freezes,
						r.Redelivered)
				}
			})
		}
	}
}

// TestDemoSurvivesItsBroker restarts the broker while workers are being killed.
func TestDemoSurvivesItsBroker(t *testing.T) {
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel() // it waits for the server to start
		if why := testrabbitmq.NoOwn(); why != "" {
			t.Fatal(why)
		}
		server := testrabbitmq.Start(t)
		t.Run("left in a silent queue", func(t *testing.T) { leftInASilentQueue(t, server) })
		args := slices.Concat([]string{"-broker", "rabbitmq", "-rabbitmq", server.URL, "-messages", "800"},
			addresses(t, "kfake", "pgx")[2:])
		r := runDemoDuring(t, func() {
			if err := server.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		}, args...)
		r.check(t, 800)
	})
	if !matrix.All() { // ElasticMQ costs half a minute of two processors here, and awssqs's suite restarts one too
		return
	}
	t.Run("sqs", func(t *testing.T) {
		t.Parallel() // it waits for timeouts
		if why := testsqs.NoOwn(); why != "" {
			t.Fatal(why)
		}
		server := testsqs.Start(t)
		args := slices.Concat([]string{"-broker", "sqs", "-sqs", server.Endpoint, "-messages", "600"},
			addresses(t, "kfake", "pgx")[2:])
		r := runDemoDuring(t, func() {
			if err := server.Stop(t.Context()); err != nil {
				// orderly: ElasticMQ confirms messages before it writes them to disk
				t.Error(err)
			}
			if err := server.Start(t.Context()); err != nil {
				t.Error(err)
			}
		}, args...)
		r.check(t, 600)
	})
}
