package rabbitmqtest

import (
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bury removes m from q for good: m goes to the dead letter exchange, or is lost if there is none. RabbitMQ does the
// same with a message that exceeds its delivery limit, expires or is rejected.
func (q *queue) bury(m *message, reason string) {
	if q.deadLets == nil {
		return
	}
	e := q.s.exchanges[*q.deadLets]
	if e == nil {
		return
	}
	dead := &message{p: copied(m.p), exchange: *q.deadLets, key: m.key}
	if q.deadKey != nil {
		dead.key = *q.deadKey
	}
	q.certify(dead, m, reason)
	for _, to := range q.s.route(e, dead.key, nil) {
		if !circles(dead, to, reason) {
			to.put(&message{p: copied(dead.p), exchange: dead.exchange, key: dead.key})
		}
	}
}

// certify writes into dead's headers when and why m died.
func (q *queue) certify(dead, m *message, reason string) {
	if dead.p.Headers == nil {
		dead.p.Headers = amqp.Table{}
	}
	h := dead.p.Headers
	deaths, _ := h["x-death"].([]any)
	same := func(d any) bool {
		t, ok := d.(amqp.Table)
		return ok && t["queue"] == q.name && t["reason"] == reason
	}
	var entry amqp.Table
	if at := slices.IndexFunc(deaths, same); at >= 0 {
		entry = deaths[at].(amqp.Table)
		count, _ := number(entry["count"])
		entry["count"] = count + 1
		deaths = slices.Delete(deaths, at, at+1)
	} else {
		entry = amqp.Table{
			"count": int64(1), "reason": reason, "queue": q.name, "time": time.Unix(time.Now().Unix(), 0),
			"exchange":     m.exchange,
			"routing-keys": []any{m.key},
		}
		if m.p.Expiration != "" {
			entry["original-expiration"] = m.p.Expiration
		}
	}
	h["x-death"] = append([]any{entry}, deaths...)
	if _, ok := h["x-first-death-reason"]; !ok {
		h["x-first-death-reason"], h["x-first-death-queue"], h["x-first-death-exchange"] = reason, q.name, m.exchange
	}
	dead.p.Expiration = "" // otherwise it would expire there as well
}

// circles reports whether a message would come back to a queue and was never rejected. RabbitMQ drops such a message.
func circles(dead *message, to *queue, reason string) bool {
	if reason == "rejected" {
		return false
	}
	deaths, _ := dead.p.Headers["x-death"].([]any)
	for _, d := range deaths {
		t, _ := d.(amqp.Table)
		if t["reason"] == "rejected" {
			return false
		}
		if t["queue"] == to.name {
			return true
		}
	}
	return false
}
