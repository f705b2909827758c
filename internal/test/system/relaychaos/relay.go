//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/spawn"
	"github.com/txonce/txonce/outbox/relay"
)

// workers is the number of batches that a relay publishes concurrently.
const workers = 2

// relayMain runs a relay process and returns its exit code. The settings are the first line on standard input.
func relayMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// fails only if the parent is gone, and then this process ends too
	_ = json.NewEncoder(os.Stdout).Encode(report{Ready: true})
	var s settings
	in, err := spawn.Settings(&s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relaychaos: a relay is started by the command, which writes settings to its standard input:", err)
		return 2
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("relay", s.Name))
	if err := s.relay(ctx, in); err != nil {
		slog.Error("the relay ends", "error", err)
		return 1
	}
	return 0
}

// relay is an ordinary relay, with a breakpoint before its publisher.
func (s settings) relay(ctx context.Context, orders *bufio.Reader) error {
	pool, err := pgxpool.New(ctx, s.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		return err
	}
	cfg := kafka.NewConfig()
	cfg.ClientID = strings.ReplaceAll(s.Name, " ", "-")
	client, err := sarama.NewClient(s.Kafka, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	events, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	if err != nil {
		return err
	}
	defer events.Close()

	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	stand := newBreakpoint(events, func(messages int) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(report{Stopped: messages}) // fails only if the parent is gone, and then this process ends too
	})
	go obey(orders, stand)
	r, err := relay.New(relay.Config{
		Name: s.Name, Queue: breakQueue(s.Broken, store), Publisher: breakPublisher(s.Broken, stand),
		LeaseTTL: s.Lease, BatchSize: s.Batch, Workers: workers,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// obey executes the parent's orders, and ends the process when the parent is gone.
func obey(orders *bufio.Reader, s *breakpoint) {
	for {
		line, err := orders.ReadString('\n')
		switch strings.TrimSpace(line) {
		case orderBefore:
			s.At(beforePublish)
		case orderAfter:
			s.At(afterPublish)
		case orderFree:
			s.Free()
		}
		if err == io.EOF {
			os.Exit(3)
		}
	}
}
