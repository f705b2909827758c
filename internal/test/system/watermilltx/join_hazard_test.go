package watermilltx_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
)

// The hazards are real: this is what watermill-sql does to a handler without a Middleware. If one of these cases fails,
// watermill has removed the hazard.
func TestHazardsOfWatermillSQL(t *testing.T) {
	if testing.Short() {
		t.Log("-short: there is no watermill-sql without a server")
		return
	}
	t.Run("insert, fail, retry gives two effects", func(t *testing.T) {
		t.Parallel()
		o := newTopic(t, newPostgres(t), 10*time.Minute)
		o.publish("1")
		tries := 0
		o.run(t, func(msg *message.Message) error {
			_, query := insertID(msg)
			if err := joinedExec(msg, query); err != nil {
				return err
			}
			if tries++; tries == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		eventually(t, func() bool { return o.offset() == 1 })
		o.wantEffects("1", "1")
	})
	t.Run("after an SQL error every retry fails", func(t *testing.T) {
		t.Parallel()
		o := newTopic(t, newPostgres(t), 10*time.Minute)
		o.publish("1")
		var mu sync.Mutex
		aborted, tries := 0, 0
		o.run(t, func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries == 1 {
				return joinedExec(msg, `INSERT INTO missing VALUES (1)`)
			}
			_, query := insertID(msg)
			err := joinedExec(msg, query)
			if err != nil && strings.Contains(err.Error(), "25P02") {
				aborted++
			}
			return err
		})
		eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return aborted >= 5 })
	})
	t.Run("half an effect is committed when AckDeadline passes", func(t *testing.T) {
		t.Parallel()
		o := newTopic(t, newPostgres(t), time.Second)
		o.publish("1")
		o.run(t, func(msg *message.Message) error {
			_, query := insertID(msg)
			if err := joinedExec(msg, query); err != nil {
				return err
			}
			<-msg.Context().Done()
			return msg.Context().Err()
		})
		eventually(t, func() bool { return len(o.effects()) > 0 })
		if o.offset() != 0 {
			t.Error("the message was acknowledged")
		}
	})
}

// TestJoinedAttempts is the same with a Middleware, and more.
func TestJoinedAttempts(t *testing.T) {
	if testing.Short() {
		t.Log("-short: there is no watermill-sql without a server")
		return
	}
	retry := middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}
	for _, test := range []struct {
		name string
		fail func(msg *message.Message, try int) error // after the effect
	}{
		{"an error", func(_ *message.Message, try int) error { return failing(try, 5, errors.New("not yet")) }},
		{"an SQL error", func(msg *message.Message, try int) error {
			return failing(try, 5, joinedExecIf(msg, try <= 5, `INSERT INTO missing VALUES (1)`))
		}},
		{"an SQL error that is swallowed once", func(msg *message.Message, try int) error {
			if try == 1 {
				_ = joinedExec(msg, `SAVEPOINT mine; SELECT 1/0`)
				return errors.New("of another kind")
			}
			return nil
		}},
		{"a panic", func(_ *message.Message, try int) error {
			if try <= 2 {
				panic("oh")
			}
			return nil
		}},
		{"COMMIT by the handler", func(msg *message.Message, try int) error {
			if try == 1 {
				tx, _ := watermillsql.TxFromContext(msg.Context())
				if err := tx.Commit(); err == nil {
					panic("the cursor did not refuse the handler's COMMIT")
				}
				return errors.New("committed")
			}
			return nil
		}},
		{"AckDeadline passes", func(msg *message.Message, try int) error {
			if try <= 2 {
				<-msg.Context().Done()
				<-time.After(100 * time.Millisecond) // the COMMIT comes meanwhile
				return msg.Context().Err()
			}
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			deadline := 10 * time.Minute
			if test.name == "AckDeadline passes" {
				deadline = 1500 * time.Millisecond // which the other attempts must not need
			}
			o := newTopic(t, newPostgres(t), deadline)
			o.publish("1", "2", "3")
			once := newMiddleware(t, joinConfig(o.base))
			var mu sync.Mutex
			tries := map[string]int{}
			o.run(t, func(msg *message.Message) error {
				id, query := insertID(msg)
				if tx, ok := watermillsql.TxFromContext(msg.Context()); !ok ||
					tx != watermilltx.Tx[*sql.Tx](msg.Context()) {
					return consumer.Permanent(errors.New("Tx is not the subscriber's transaction"))
				}
				if err := joinedExec(msg, query); err != nil {
					return err
				}
				mu.Lock()
				tries[id]++
				try := tries[id]
				mu.Unlock()
				if id != "2" {
					return nil
				}
				return test.fail(msg, try)
			}, retry.Middleware, once.Middleware)
			eventually(t, func() bool { return o.offset() == 3 })
			o.wantEffects("1", "2", "3")
			if all := letters(t, once); len(all) != 0 {
				t.Errorf("parked: %+v", all)
			}
			mu.Lock()
			defer mu.Unlock()
			if tries["2"] < 2 {
				t.Errorf("the message was tried %d times: nothing has failed", tries["2"])
			}
		})
	}
}

func failing(try, tries int, err error) error {
	if try <= tries {
		return err
	}
	return nil
}
