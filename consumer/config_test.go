package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestNewNamesTheFieldItRefuses(t *testing.T) {
	good := config{Name: "billing", Store: consumertest.NewStore(), Key: consumer.MessageID, Handle: effect}
	batch := func(context.Context, tx, []*consumer.Message) error { return nil }
	for _, tc := range []struct {
		name string
		cfg  func(*config)
		want string
	}{
		{"no name", func(c *config) { c.Name = "" }, "Config.Name"},
		{"oversize name", func(c *config) { c.Name = strings.Repeat("x", 256) }, "Config.Name"},
		{"name of invalid UTF-8", func(c *config) { c.Name = "\xff" }, "Config.Name"},
		{"no store", func(c *config) { c.Store = nil }, "Config.Store"},
		{"no key", func(c *config) { c.Key = nil }, "Config.Key"},
		{"short window", func(c *config) { c.Window = time.Hour - 1 }, "Config.Window"},
		{"negative window", func(c *config) { c.Window = -time.Hour }, "Config.Window"},
		{"no handler", func(c *config) { c.Handle = nil }, "Config.Handle"},
		{"two handlers", func(c *config) { c.HandleBatch = batch }, "Config.HandleBatch"},
		{
			"interleaved batches of one", func(c *config) { c.Interleave, c.MaxPerTransaction = true, 1 },
			"Config.Interleave",
		},
		{"a negative batch", func(c *config) { c.MaxPerTransaction = -1 }, "Config.MaxPerTransaction"},
		{"negative attempts", func(c *config) { c.MaxAttempts = -1 }, "Config.MaxAttempts"},
		{"negative handler timeout", func(c *config) { c.HandlerTimeout = -1 }, "Config.HandlerTimeout"},
		{"handler timeout without a unit", func(c *config) { c.HandlerTimeout = 5 }, "Config.HandlerTimeout"},
		{"blank name", func(c *config) { c.Name = " \t" }, "Config.Name"},
		{"park limit without burst", func(c *config) { c.ParkLimit.PerMinute = 1 }, "Config.ParkLimit.Burst"},
		{"park limit without rate", func(c *config) { c.ParkLimit.Burst = 1 }, "Config.ParkLimit.PerMinute"},
		{
			"negative park limit", func(c *config) { c.ParkLimit = consumer.ParkLimit{Burst: 1, PerMinute: -1} },
			"Config.ParkLimit.PerMinute",
		},
		{"park limit and none", func(c *config) { c.ParkLimit = consumer.ParkLimit{Burst: 1, PerMinute: 1, Unlimited: true} }, "Config.ParkLimit.Unlimited"},
		{"park limit of a store that does not park", func(c *config) {
			c.Store, c.RejectGivenUp, c.TrustHandlers = struct{ dedup.Store[tx] }{c.Store}, true, true
			c.ParkLimit = consumer.ParkLimit{Unlimited: true}
		}, "Config.ParkLimit"},
		{"rejections of a store that parks", func(c *config) { c.RejectGivenUp = true }, "Config.RejectGivenUp"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := good
			tc.cfg(&cfg)
			c, err := consumer.New(cfg)
			if err == nil || c != nil || !strings.Contains(err.Error(), tc.want+" ") && !strings.Contains(err.Error(),
				tc.want+":") {
				t.Errorf("err = %v, want it to name %s", err, tc.want)
			}
		})
	}
	if c, err := consumer.New(good); err != nil || c.Window() != dedup.DefaultWindow {
		t.Errorf("New: %v", err)
	}
	good.Window = 2 * time.Hour
	if c, err := consumer.New(good); err != nil || c.Window() != 2*time.Hour {
		t.Errorf("New: %v", err)
	}
}

// A wrapper that embeds dedup.Store compiles, and loses what its store can do. New says what is lost, and how to keep
// it.
func TestNewRefusesAStoreThatLost(t *testing.T) {
	store := consumertest.NewStore()
	type wrapper struct{ dedup.Store[tx] }
	for _, tc := range []struct {
		name  string
		cfg   config
		words []string // nil: accepted
	}{
		{
			"the parking lot",
			config{Store: struct{ *deduptest.Store }{store.Store}},
			[]string{
				"Config.Store", "*deduptest.Store", "Park, TakeDeadLetter and DeadLetters", "embed",
				"Config.RejectGivenUp",
			},
		},
		{
			"verification",
			config{Store: struct {
				dedup.Store[tx]
				driver.ParkingLot[tx]
			}{store, store}},
			[]string{"Config.Store", "VerifyTx", "embed", "Config.TrustHandlers"},
		},
		{"both", config{Store: wrapper{store}}, []string{"wrapper", "Park"}},
		{
			"both, and the Config names one",
			config{Store: wrapper{store}, RejectGivenUp: true},
			[]string{"wrapper", "VerifyTx"},
		},
		{"both, and the Config names both", config{Store: wrapper{store}, RejectGivenUp: true, TrustHandlers: true}, nil},
		{"nothing", config{Store: struct{ *consumertest.Store }{store}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.Name, tc.cfg.Key, tc.cfg.Handle = "billing", consumer.MessageID, effect
			_, err := consumer.New(tc.cfg)
			if (err == nil) != (tc.words == nil) {
				t.Fatalf("err = %v, want one: %v", err, tc.words != nil)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("err = %v, want it to name %s", err, word)
				}
			}
		})
	}
}

// registrar is a store whose Register fails with an error of the test.
type registrar struct {
	*consumertest.Store
	fail  func() error
	calls int
}

func (r *registrar) Register(ctx context.Context, name string, window time.Duration) error {
	r.calls++
	if err := r.fail(); err != nil {
		return err
	}
	return r.Store.Register(ctx, name, window)
}

func TestStart(t *testing.T) {
	errSchema := errors.Join(dedup.ErrSchema, errors.New("run: txonce migrate"))
	t.Run("registers once", func(t *testing.T) {
		store, log := &registrar{Store: consumertest.NewStore(), fail: times(0, nil)}, &logs{}
		c := newConsumer(t, config{Store: store, Logger: log.logger()})
		for range 2 {
			if err := c.Start(t.Context()); err != nil {
				t.Error(err)
			}
			process(t, c, msg("1", ""))
		}
		if store.calls != 1 || log.lines("consumer starts") != 1 || log.lines("messages_without_time=process") != 1 {
			t.Errorf("registered %d times; log:\n%s", store.calls, log.buf.String())
		}
	})
	t.Run("says why not, and may be called again", func(t *testing.T) {
		store := &registrar{Store: consumertest.NewStore(), fail: times(1, errSchema)}
		c := newConsumer(t, config{Store: store})
		if err := c.Start(t.Context()); !errors.Is(err, dedup.ErrSchema) || !strings.Contains(err.Error(), "billing") {
			t.Errorf("err = %v", err)
		}
		if err := c.Start(t.Context()); err != nil || store.calls != 2 {
			t.Errorf("err = %v after %d calls", err, store.calls)
		}
	})
	t.Run("no message runs before", func(t *testing.T) {
		store, traced := &registrar{Store: consumertest.NewStore(), fail: times(5, errSchema)}, &events{}
		c := newConsumer(t, config{Store: store, Trace: traced.trace(), Backoff: noBackoff})
		wantRetry(t, c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "")})[0], true)
		process(t, c, msg("1", ""))
		wantCount(t, store.Database(), "1", 1)
		if store.calls != 6 || traced.count("held(database)") != 5 || traced.count("claimed") != 1 {
			t.Errorf("registered %d times: %v", store.calls, traced.take())
		}
	})
	t.Run("ctx has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := newConsumer(t, config{Store: consumertest.NewStore()})
		if err := c.Start(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		wantRetry(t, c.Process(ctx, msg("1", "")), true)
	})
	t.Run("the program has registered the name", func(t *testing.T) {
		store, cfg := consumertest.NewStore(), config{Name: "billing", Key: consumer.MessageID, Handle: effect}
		cfg.Store = store
		before := newConsumer(t, cfg)
		if err := store.Register(t.Context(), "billing", 0); err != nil {
			t.Fatal(err)
		}
		_, err := consumer.New(cfg)
		for what, err := range map[string]error{"New": err, "Start of one that was made before": before.Start(t.Context())} {
			if !errors.Is(err, dedup.ErrNameTaken) || !strings.Contains(err.Error(), "a call of Register") ||
				strings.Contains(err.Error(), "close") {
				t.Errorf("%s: %v, want an error that names the call of Register", what, err)
			}
		}
		before.Close() // it does not have the name
		if _, err := consumer.New(cfg); !errors.Is(err, dedup.ErrNameTaken) {
			t.Errorf("Close of a Consumer that was refused released the name: %v", err)
		}
		cfg.Store = consumertest.NewStoreOn(store.Database())
		process(t, newConsumer(t, cfg), msg("1", "")) // on another Store, as in another process
		store.Release("billing")
		cfg.Store = store
		c := newConsumer(t, cfg)
		process(t, c, msg("2", ""))
		if err := store.Register(t.Context(), "billing", 0); !errors.Is(err, dedup.ErrNameTaken) ||
			!strings.Contains(err.Error(), "a Consumer has registered") {
			t.Errorf("Register after a Consumer: %v", err)
		}
		c.Close()
		if err := store.Register(t.Context(), "billing", 0); err != nil {
			t.Errorf("Register after a Consumer was closed: %v", err)
		}
	})
	t.Run("a name twice on one store", func(t *testing.T) {
		store := consumertest.NewStore()
		if err := newConsumer(t, config{Store: store}).Start(t.Context()); err != nil {
			t.Error(err)
		}
		if err := newConsumer(t, config{Store: store}).Start(t.Context()); !errors.Is(err, dedup.ErrNameTaken) {
			t.Errorf("err = %v, want ErrNameTaken", err)
		}
	})
}

// After keys were forgotten, Config decides whether a message without a time runs. TestWhatIsParkedAndWhy tests that it
// is parked.
func TestUntimedMessagesRunByDefault(t *testing.T) {
	store, log := consumertest.NewStore(), &logs{}
	c := newConsumer(t, config{Store: store})
	process(t, c, msg("1", ""))
	forget(t, store)
	process(t, c, msg("1", "")) // a very late redelivery
	wantCount(t, store.Database(), "1", 2)

	strict := newConsumer(t, config{Store: consumertest.NewStore(), ParkUntimed: true, Logger: log.logger()})
	process(t, strict, msg("1", "")) // nothing was forgotten here
	if log.lines("park once keys were deleted") != 1 || len(letters(t, strict)) != 0 {
		t.Errorf("%d letters; log:\n%s", len(letters(t, strict)), log.buf.String())
	}
}
