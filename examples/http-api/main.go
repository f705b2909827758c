// Command http-api is an API that takes orders and charges cards. A client that got no answer sends its request again
// with the same Idempotency-Key. The order is stored once, the card is charged once, and both requests get the same
// response.
//
//	go run ./examples/http-api          # prints curl commands to paste; the data is in a temporary SQLite file
//	go run ./examples/http-api -demo    # sends repeats, other bodies and cut connections to itself, and audits the orders
//	go run ./examples/http-api -storm   # sends itself a storm of repeats; with -unguarded to a handler without a Guard
package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	file := flag.String("sqlite", "", "`file` of the SQLite database; without it, a temporary one")
	dsn := flag.String("postgres", "", "PostgreSQL's `DSN`, instead of SQLite")
	isDemo := flag.Bool("demo", false, "send requests, repeats and cut connections to a server of its own, audit, and exit with 0 or 1")
	isStorm := flag.Bool("storm", false, "send a storm of repeats to a server of its own, and exit with 0 or 1")
	unguarded := flag.Bool("unguarded", false, "with -storm: a handler without a Guard")
	flag.Parse()
	if *unguarded && !*isStorm || *isStorm && *isDemo {
		log.Fatal("-unguarded needs -storm, and -storm excludes -demo")
	}
	m := serving
	switch {
	case *isDemo:
		m = demonstrating
	case *isStorm && *unguarded:
		m = stormingUnguarded
	case *isStorm:
		m = storming
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if m != serving {
		*addr = "127.0.0.1:0"
	}
	if err := run(ctx, *addr, *file, *dsn, m); err != nil {
		log.Fatal(err)
	}
}

// mode is what the program does.
type mode int

const (
	serving mode = iota
	demonstrating
	storming
	stormingUnguarded
)

func run(ctx context.Context, addr, file, dsn string, m mode) error {
	secret, err := secretFor(m != serving || file == "" && dsn == "")
	if err != nil {
		return err
	}
	db, dialect, closeDB, err := open(ctx, file, dsn)
	if err != nil {
		return err
	}
	defer closeDB()
	a, err := newAPI(ctx, db, dialect, secret)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	switch m {
	case demonstrating:
		return a.runDemo(ctx, listener, func(routes http.Handler) http.Handler { return routes })
	case storming, stormingUnguarded:
		return a.runStorm(ctx, listener, m == storming, 10, os.Stdout)
	case serving:
	}
	if err := a.addAccount(ctx, "alice", 1000); err != nil {
		return err
	}
	printCommands(os.Stdout, "http://"+listener.Addr().String(), rand.Text()[:12])
	return a.serve(ctx, listener, a.routes(map[string]string{"token-of-alice": "alice"}))
}

// secretFor returns the secret that hides the clients' keys in the database. All processes and all later runs need the
// same one.
func secretFor(temporary bool) ([]byte, error) {
	text := os.Getenv("IDEMPOTENCY_SECRET")
	if text == "" && temporary {
		return []byte(rand.Text() + rand.Text()), nil
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil || text == "" {
		return nil, errors.New(`set IDEMPOTENCY_SECRET to the same value in each run: export IDEMPOTENCY_SECRET="$(openssl rand -base64 32)"`)
	}
	return secret, nil // the Guard refuses a short one
}

// printCommands prints what to paste. The README shows the same commands, and their answers.
func printCommands(w io.Writer, url, key string) {
	fmt.Fprintf(w, `The API listens on %s. Paste:

order() {
  curl -i %[1]s/orders -H 'Authorization: Bearer token-of-alice' -H 'Content-Type: application/json' -H "Idempotency-Key: $1" -d "$2"
}
order %s-1 '{"item": "book", "cents": 1999, "card": "visa"}'      # 201: the order is stored and the card is charged
order %[2]s-1 '{"item": "book", "cents": 1999, "card": "visa"}'      # a repeat: 201, the same response, "Idempotent-Replayed: true"
order %[2]s-1 '{"item": "pen", "cents": 250, "card": "visa"}'        # 422: the key was used for another request
order %[2]s-2 '{"item": "book", "cents": 1999, "card": "visa"}'      # 201: another key, another order
order %[2]s-3 '{"item": "book", "cents": 1999, "card": "declined"}'  # 402: nothing is stored but this response, so a repeat gets 402 too
curl %[1]s/orders -H 'Authorization: Bearer token-of-alice'      # two orders

`, url, key)
}
