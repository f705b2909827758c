package wrong

import (
	"context"
	"database/sql"
	"handlers/shop"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

type other struct {
	store *pgxstore.Store
	http  *http.Client
}

// 21: context.Background in a statement and in Enqueue.
func (o other) background(ctx context.Context, tx pgx.Tx, order shop.Order) error {
	long, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := tx.Exec(long, insert, order.ID, order.Cents); err != nil { // want `tx.Exec gets context.Background`
		return err
	}
	return o.store.Enqueue(context.TODO(), tx, outbox.Message{Topic: "charges"}) // want `o.store.Enqueue gets context.Background`
}

// 22: context.Background for a helper, here and in another package.
func (o other) backgroundForHelper(ctx context.Context, tx *sql.Tx, order shop.Order) error {
	if err := insertOrder(context.Background(), tx, order); err != nil { // want `insertOrder \(others.go:\d+\) gets context.Background`
		return err
	}
	return shop.Save(context.Background(), tx, order) // want `shop.Save \(shop.go:\d+\) gets context.Background`
}

func insertOrder(ctx context.Context, tx *sql.Tx, order shop.Order) error {
	_, err := tx.ExecContext(ctx, insert, order.ID, order.Cents)
	return err
}

// 23: errors that nobody reads.
func (o other) dropped(ctx context.Context, tx pgx.Tx, order shop.Order) error {
	tx.Exec(ctx, insert, order.ID, order.Cents)                                 // want `tx.Exec: nobody reads its error`
	_, _ = tx.Exec(ctx, insert, order.ID, order.Cents)                          // want `tx.Exec: nobody reads its error`
	o.store.Enqueue(ctx, tx, outbox.Message{Topic: "charges"})                  // want `o.store.Enqueue: nobody reads its error`
	defer tx.Exec(ctx, `UPDATE orders SET seen = true WHERE id = $1`, order.ID) // want `tx.Exec: nobody reads its error`
	var cents int64
	tx.QueryRow(ctx, `SELECT cents FROM orders WHERE id = $1`, order.ID).Scan(&cents) // want `Scan: nobody reads its error`
	b := &pgx.Batch{}
	b.Queue(insert, order.ID, cents)
	tx.SendBatch(ctx, b).Close() // want `tx.SendBatch: nobody reads its error`
	return nil
}

// 24: rows that an error cuts short.
func rowsWithoutErr(ctx context.Context, tx *sql.Tx, order shop.Order) error {
	rows, err := tx.QueryContext(ctx, `SELECT cents FROM lines WHERE order_id = $1`, order.ID) // want `nobody calls Err on these rows`
	if err != nil {
		return err
	}
	defer rows.Close()
	total := int64(0)
	for rows.Next() {
		var cents int64
		if err := rows.Scan(&cents); err != nil {
			return err
		}
		total += cents
	}
	_, err = tx.ExecContext(ctx, insert, order.ID, total)
	return err
}

// 25: another system.
func (o other) calls(ctx context.Context, tx pgx.Tx, order shop.Order) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://psp.example/charges", nil)
	if err != nil {
		return err
	}
	resp, err := o.http.Do(req) // want `o.http.Do calls another system in the handler`
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// 26: IDs of outgoing messages.
func (o other) outgoing(ctx context.Context, tx pgx.Tx, order shop.Order) error {
	event := outbox.Message{Topic: "charges", ID: uuid.NewString()} // want `outbox.Message.ID is made of uuid.NewString`
	if err := o.store.Enqueue(ctx, tx, event); err != nil {
		return err
	}
	event.ID = shop.NewID() // want `outbox.Message.ID is made of uuid.NewString in shop.NewID`
	return o.store.Enqueue(ctx, tx, event)
}

// 27: an ignore without a reason.
func (s *service) noReason(ctx context.Context, tx pgx.Tx, order shop.Order) error {
	_, err := s.pool.Exec(ctx, insert, order.ID, order.Cents) //once:ignore // want `s.pool.Exec runs outside.*needs a reason`
	return err
}

// 28-35: keys.
func byAttempt(msg *consumer.Message) (string, error) {
	return msg.Topic + "/" + strconv.Itoa(msg.Attempt), nil // want `the key is made of Message.Attempt`
}

func byOffset(msg *consumer.Message) (string, error) {
	raw := msg.Raw.(*sarama.ConsumerMessage)
	key := strconv.FormatInt(raw.Offset, 10) // want `the key is made of ConsumerMessage.Offset`
	return key, nil
}

var (
	receipt consumer.KeyFunc = func(msg *consumer.Message) (string, error) {
		return *msg.Raw.(types.Message).ReceiptHandle, nil // want `the key is made of Message.ReceiptHandle`
	}
	_ = consumer.KeyFunc(func(msg *consumer.Message) (string, error) {
		return strconv.FormatUint(msg.Raw.(amqp.Delivery).DeliveryTag, 10), nil // want `the key is made of Delivery.DeliveryTag`
	})
	ofRandom = consumer.KeyOf(func(o shop.Order) (string, error) {
		return o.ID + strconv.Itoa(rand.IntN(10)), nil // want `the key is made of rand.IntN`
	})
	ofDay    = consumer.KeyOf(func(o shop.Order) (string, error) { return shop.Daily(o.ID), nil }) // want `the key is made of time.Now in shop.Daily`
	position = consumer.Config[pgx.Tx]{Key: shop.ByPosition}                                       // want `the key is made of Message.Position`
)

func incoming(m types.Message) (*consumer.Message, dedup.Key) {
	msg := &consumer.Message{ID: *m.MessageId}                          // want `Message.ID is made of Message.MessageId`
	return msg, dedup.Key{Consumer: "billing", ID: uuid.New().String()} // want `Key.ID is made of uuid.New`
}

func registerOthers(o other, s *service) {
	_ = consumer.Config[pgx.Tx]{Key: byAttempt, Handle: consumer.JSON(o.background)}
	_ = consumer.Config[*sql.Tx]{Key: byOffset, Handle: consumer.JSON(o.backgroundForHelper)}
	_ = consumer.JSON(o.dropped)
	_ = consumer.JSON(rowsWithoutErr)
	_ = consumer.JSON(o.calls)
	_ = consumer.JSON(o.outgoing)
	_ = consumer.JSON(s.noReason)
}
