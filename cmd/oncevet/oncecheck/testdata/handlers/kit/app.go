package kit

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/consumer"
)

// Handlers are the handlers of a program, and what App does with them.
type Handlers struct {
	OnOrder HandleFunc
	ByTopic map[string]HandleFunc
	All     []Module
	Closed  func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error // no handler
}

// App gives the handlers to txonce, behind middleware.
type App struct {
	Handlers
	around []func(HandleFunc) HandleFunc
}

func NewApp(h Handlers, around ...func(HandleFunc) HandleFunc) (configs []consumer.Config[pgx.Tx]) {
	a := &App{Handlers: h, around: around}
	configs = append(configs, consumer.Config[pgx.Tx]{Name: "orders", Handle: a.wrap(h.OnOrder)})
	for topic, handle := range a.ByTopic {
		configs = append(configs, consumer.Config[pgx.Tx]{Name: topic, Handle: handle})
	}
	for _, m := range a.All {
		configs = append(configs, consumer.Config[pgx.Tx]{Name: m.Name(), Handle: m.Handle})
	}
	return configs
}

func (a *App) wrap(handle HandleFunc) HandleFunc {
	for _, around := range a.around {
		handle = around(handle)
	}
	return handle
}

// Chain puts middleware around a handler.
func Chain(handle HandleFunc, around ...func(HandleFunc) HandleFunc) HandleFunc {
	for _, around := range slices.Backward(around) {
		handle = around(handle)
	}
	return handle
}

// Module is a handler with a name.
type Module interface {
	Name() string
	Handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error
}

func Register(m Module) consumer.Config[pgx.Tx] {
	return consumer.Config[pgx.Tx]{Name: m.Name(), Handle: m.Handle}
}

// Saver makes a handler for each type of body.
func Saver[T any](save func(ctx context.Context, tx pgx.Tx, body T) error) HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		var body T
		return save(ctx, tx, body)
	}
}
