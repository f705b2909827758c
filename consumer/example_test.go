package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// The examples run on a store in memory, whose transaction is *deduptest.Tx. With pgxstore it is pgx.Tx, with sqlstore
// *sql.Tx.

type order struct {
	ID     string `json:"order_id"`
	Amount int    `json:"amount"`
}

func chargeOrder(_ context.Context, tx *deduptest.Tx, o order) error {
	if o.Amount < 0 {
		return consumer.Permanent(errors.New("negative amount"))
	}
	return tx.Add("charged " + o.ID)
}

// must is for examples only.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newBilling(store *consumertest.Store) *consumer.Consumer[*deduptest.Tx] {
	return must(consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(chargeOrder),
		Logger: slog.New(slog.DiscardHandler),
	}))
}

func Example() {
	store := consumertest.NewStore()
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name:   "billing",
		Store:  store,
		Key:    consumer.JSONKey("order_id"),
		Handle: consumer.JSON(chargeOrder), // func(ctx, tx, order) error
	})
	if err != nil {
		panic(err)
	}
	for range 3 { // brokers deliver at least once
		if err := billing.Process(context.Background(),
			&consumer.Message{Payload: []byte(`{"order_id": "A-42", "amount": 7}`)}); err != nil {
			panic(err)
		}
	}
	fmt.Println(store.Database().Count("charged A-42"))
	// Output: 1
}

func ExampleConsumer() {
	store := consumertest.NewStore()
	billing := newBilling(store)
	fmt.Println(billing.Process(context.Background(), &consumer.Message{Payload: []byte(`{"order_id": "A-1", "amount": 7}`)}))
	fmt.Println(billing.Process(context.Background(), &consumer.Message{Payload: []byte(`{"order_id": "A-2", "amount": -7}`)}))
	fmt.Println(store.Database().Count("charged A-1"), store.Database().Count("charged A-2"))
	// Output:
	// <nil>
	// <nil>
	// 1 0
}

func ExampleConfig() {
	_, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name:        "billing",
		Store:       consumertest.NewStore(),
		Key:         consumer.HeaderKey("order-id"),
		Tenant:      consumer.HeaderKey("tenant"),
		Fingerprint: consumer.JSONFields("order_id", "amount"), // producers re-serialise
		Window:      30 * 24 * time.Hour,
		MaxAttempts: 5,
	})
	fmt.Println(err)
	// Output: consumer: Config.Handle is required, or HandleBatch
}

func ExampleMessage() {
	m := consumer.Message{
		Topic: "orders", OrderingKey: "customer-7", Position: "orders/3/1042", Attempt: 1,
		Payload: []byte(`{"order_id": "A-42"}`), Headers: map[string]string{"tenant": "acme"},
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	fmt.Println(consumer.JSONKey("order_id")(&m))
	// Output: A-42 <nil>
}

func ExampleHandler() {
	// A handler that uses the message as it is needs no decoder.
	var handle consumer.Handler[*deduptest.Tx] = func(_ context.Context, tx *deduptest.Tx, m *consumer.Message) error {
		return tx.Add("seen " + string(m.Payload))
	}
	store := consumertest.NewStore()
	c := must(consumer.New(consumer.Config[*deduptest.Tx]{Name: "audit", Store: store, Key: consumer.MessageID, Handle: handle}))
	_ = c.Process(context.Background(), &consumer.Message{ID: "1", Payload: []byte("hello")})
	fmt.Println(store.Database().Count("seen hello"))
	// Output: 1
}

func ExampleBatchHandler() {
	// A BatchHandler is for effects that one statement can write for all messages.
	var handle consumer.BatchHandler[*deduptest.Tx] = func(ctx context.Context, tx *deduptest.Tx,
		msgs []*consumer.Message,
	) error {
		return tx.Update(ctx, "total", func(old any) any { n, _ := old.(int); return n + len(msgs) })
	}
	store := consumertest.NewStore()
	c := must(consumer.New(consumer.Config[*deduptest.Tx]{Name: "totals", Store: store, Key: consumer.MessageID, HandleBatch: handle}))
	errs := c.ProcessBatch(context.Background(), []*consumer.Message{{ID: "1"}, {ID: "2"}, {ID: "1"}})
	fmt.Println(errs, store.Database().Value("total"))
	// Output: [<nil> <nil> <nil>] 2
}

// What a subscriber does with the answer.
func ExampleProcessor() {
	deliver := func(p consumer.Processor, m *consumer.Message) string {
		err := p.Process(context.Background(), m)
		retry, again := errors.AsType[*consumer.RetryError](err)
		switch {
		case err == nil:
			return "acknowledge"
		case again:
			return "deliver again after " + retry.After.String()
		default:
			return "reject"
		}
	}
	fmt.Println(deliver(newBilling(consumertest.NewStore()),
		&consumer.Message{Payload: []byte(`{"order_id": "A-42"}`)}))
	// Output: acknowledge
}

func ExampleBatchProcessor() {
	var p driver.BatchProcessor = newBilling(consumertest.NewStore())
	msgs := []*consumer.Message{{Payload: []byte(`{"order_id": "A"}`)}, {Payload: []byte(`{"order_id": "B"}`)}}
	for i, err := range p.ProcessBatch(context.Background(), msgs) {
		fmt.Println(i, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}

func ExampleStarter() {
	var p consumer.Processor = newBilling(consumertest.NewStore())
	if s, ok := p.(driver.Starter); ok {
		fmt.Println(s.Start(context.Background()))
	}
	// Output: <nil>
}

func ExampleWindowed() {
	var p consumer.Processor = newBilling(consumertest.NewStore())
	if w, ok := p.(driver.Windowed); ok {
		fmt.Println(w.Window() > 7*24*time.Hour)
	}
	// Output: true
}

func ExamplePositioned() {
	var p consumer.Processor = newBilling(consumertest.NewStore())
	if positioned, ok := p.(driver.Positioned); ok {
		store, name := positioned.Positions()
		rows, err := store.ListPositions(context.Background(), name)
		fmt.Println(name, len(rows), err)
	}
	// Output: billing 0 <nil>
}

func ExamplePermanent() {
	err := consumer.Permanent(errors.New("no such product"))
	fmt.Println(err, consumer.IsPermanent(err), consumer.IsPermanent(fmt.Errorf("charge: %w", err)))
	// Output: no such product true true
}

func ExampleRetryError() {
	err := consumer.RetryAfter(errors.New("rate limit of the bank"), time.Minute)
	retry, _ := errors.AsType[*consumer.RetryError](err)
	fmt.Println(err, retry.After, retry.Held)
	// Output: rate limit of the bank 1m0s false
}

func ExamplePanicError() {
	err := error(&consumer.PanicError{Value: errors.New("index out of range"), Stack: []byte("goroutine 1 [running]: …")})
	line, _, _ := strings.Cut(err.Error(), "\n")
	fmt.Println(line)
	// Output: consumer: panic: index out of range
}

func ExampleDeadLetter() {
	ctx := context.Background()
	billing := newBilling(consumertest.NewStore())
	_ = billing.Process(ctx, &consumer.Message{Payload: []byte(`{"order_id": "A-42", "amount": -7}`)})
	for _, l := range must(billing.DeadLetters(ctx, consumer.DeadLetterFilter{})) {
		fmt.Printf("%s: %s: %s, parked %d times\n", l.Record.Key.ID, l.Cause, l.Error, l.Times)
	}
	// Output: A-42: permanent: negative amount, parked 1 times
}

func ExampleConsumer_DeadLetters() {
	ctx := context.Background()
	billing := newBilling(consumertest.NewStore())
	for _, payload := range []string{`{"order_id": "A"}`, `{"order_id": "A", "amount": 7}`, `{}`} {
		_ = billing.Process(ctx, &consumer.Message{Payload: []byte(payload)})
	}
	for _, cause := range []observe.Cause{observe.CauseMismatch, observe.CauseNoKey} {
		for _, l := range must(billing.DeadLetters(ctx, consumer.DeadLetterFilter{Cause: cause})) {
			fmt.Println(l.Cause, "-", l.Error)
		}
	}
	// Output:
	// mismatch - dedup: key was used for other content
	// no_key - dedup: message has no business key: field "order_id" is missing
}

func ExampleDeadLetterID() {
	id, err := consumer.ParseDeadLetterID("00112233445566778899aabbccddeeff")
	fmt.Println(id, err)
	id, err = consumer.ParseDeadLetterID("00112233-4455-6677-8899-aabbccddeeff") // as psql prints it
	fmt.Println(id, err)
	_, err = consumer.ParseDeadLetterID("42")
	fmt.Println(err)
	// Output:
	// 00112233445566778899aabbccddeeff <nil>
	// 00112233445566778899aabbccddeeff <nil>
	// consumer: "42" is not a dead letter's id: want 32 hexadecimal digits, not all zero
}

// All dead letters, page by page.
func ExampleDeadLetterFilter() {
	ctx := context.Background()
	billing := newBilling(consumertest.NewStore())
	for i := range 5 {
		_ = billing.Process(ctx, &consumer.Message{Payload: []byte(`{}`), Position: fmt.Sprint("0/", i)})
	}
	pages, n := 0, 0
	for filter := (consumer.DeadLetterFilter{Limit: 2}); ; pages++ {
		page := must(billing.DeadLetters(ctx, filter))
		if len(page) == 0 {
			break
		}
		n += len(page)
		filter.After = page[len(page)-1].Cursor()
	}
	fmt.Println(n, "letters on", pages, "pages")
	// Output: 5 letters on 3 pages
}

// Stores write and remove dead letters in the transaction that they get.
func ExampleParkingLot() {
	ctx := context.Background()
	store := consumertest.NewStore()
	var lot driver.ParkingLot[*deduptest.Tx] = store
	letter := consumer.DeadLetter{ID: consumer.DeadLetterID{1}, Cause: observe.CauseExhausted, Error: "parked by hand"}
	err := store.InTx(ctx, nil, func(tx *deduptest.Tx, _ []dedup.Claim) error { return lot.Park(ctx, tx, letter) })
	fmt.Println(err, len(must(lot.DeadLetters(ctx, consumer.DeadLetterFilter{}))))
	err = store.InTx(ctx, nil, func(tx *deduptest.Tx, _ []dedup.Claim) error { return lot.TakeDeadLetter(ctx, tx, letter) })
	fmt.Println(err, len(must(lot.DeadLetters(ctx, consumer.DeadLetterFilter{}))))
	// Output:
	// <nil> 1
	// <nil> 0
}

func ExampleReplay() {
	fix := consumer.Replay{Repair: func(m *consumer.Message) error {
		m.Payload = []byte(strings.ReplaceAll(string(m.Payload), "-7", "7"))
		return nil
	}}
	ctx := context.Background()
	store := consumertest.NewStore()
	billing := newBilling(store)
	_ = billing.Process(ctx, &consumer.Message{Payload: []byte(`{"order_id": "A-42", "amount": -7}`)})
	for _, l := range must(billing.DeadLetters(ctx, consumer.DeadLetterFilter{})) {
		fmt.Println(billing.Replay(ctx, l, fix))
	}
	fmt.Println(store.Database().Count("charged A-42"))
	// Output:
	// true <nil>
	// 1
}

func ExampleTrace() {
	billing := must(consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: consumertest.NewStore(), Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(chargeOrder),
		Trace: &consumer.Trace{
			Done: func(_ context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
				for i, o := range outcomes {
					fmt.Println(d.Consumer, o.Outcome, d.Messages[i].Position)
				}
			},
		},
	}))
	for i := range 2 {
		_ = billing.Process(context.Background(), &consumer.Message{
			Payload:  []byte(`{"order_id": "A"}`),
			Position: fmt.Sprint("orders/0/", i),
		})
	}
	// Output:
	// billing processed orders/0/0
	// billing duplicate orders/0/1
}

func ExampleConfig_mismatchIsDuplicate() {
	store := consumertest.NewStore()
	c := must(consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(chargeOrder),
		MismatchIsDuplicate: true,
	}))
	for _, payload := range []string{`{"order_id": "A"}`, `{"order_id": "A", "resent": true}`} {
		_ = c.Process(context.Background(), &consumer.Message{Payload: []byte(payload)})
	}
	fmt.Println(store.Database().Count("charged A"),
		len(must(c.DeadLetters(context.Background(), consumer.DeadLetterFilter{}))))
	// Output: 1 0
}

func ExampleParkLimit() {
	c := must(consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: consumertest.NewStore(), Key: consumer.MessageID, Handle: consumer.JSON(chargeOrder),
		ParkLimit: consumer.ParkLimit{Burst: 2, PerMinute: 1}, Logger: slog.New(slog.DiscardHandler),
	}))
	for i, err := range c.ProcessBatch(context.Background(), []*consumer.Message{{ID: "1"}, {ID: "2"}, {ID: "3"}}) {
		fmt.Println(i, errors.Is(err, consumer.ErrParkLimit)) // undecodable, all of them
	}
	// Output:
	// 0 false
	// 1 false
	// 2 true
}
