package consumer_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

func TestALetterKeepsTheMessage(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{
		Store: store, Handle: poison, MaxAttempts: 7, Window: 48 * time.Hour,
		Tenant: consumer.HeaderKey("tenant"),
	})
	m := &consumer.Message{
		ID: "1", Topic: "orders", OrderingKey: "k", Position: "orders/3/1042", Payload: []byte("poison"),
		Headers: map[string]string{"tenant": "acme", "bytes": "\x00\xff"}, Time: time.Now().Add(-time.Minute),
		Attempt: 2, Raw: t,
	}
	process(t, c, m)
	want := *m
	want.Raw = nil
	l := letters(t, c)[0]
	if diff := cmp.Diff(want, l.Message); diff != "" {
		t.Error(diff)
	}
	wantRec := dedup.Record{
		Key:         dedup.Key{Consumer: "billing", Tenant: "acme", ID: "1"},
		Fingerprint: dedup.FingerprintOf(m.Payload), Time: m.Time, Window: 48 * time.Hour,
	}
	if diff := cmp.Diff(wantRec, l.Record); diff != "" {
		t.Error(diff)
	}
}

// The IDs of letters must be the same in every version. If they change, letters are lost or doubled.
func TestLetterIDIsFrozen(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	for _, tc := range []struct {
		name string
		msg  consumer.Message
		want string
	}{
		{
			"key",
			consumer.Message{ID: "1", Payload: []byte("poison"), Position: "p", Time: at},
			"21a456f75f2254178912a781ba5456bf",
		},
		{
			"tenant",
			consumer.Message{ID: "1", Payload: []byte("poison"), Tenant: "t"},
			"c1f4b9f1068a5cbeb84ddbcb7943561d",
		},
		{
			"fields do not run together",
			consumer.Message{ID: "t1", Payload: []byte("poison")},
			"76e996cca90ad4162f6da5a867160ff2",
		},
		{
			"position",
			consumer.Message{Payload: []byte("poison"), Topic: "t", Position: "p", Time: at},
			"20210f68172327fdbe9d02f1a248ee41",
		},
		{
			"position without time",
			consumer.Message{Payload: []byte("poison"), Topic: "t", Position: "p"},
			"5e08e9e0d0da8471d25a46727cb2463f",
		},
		{"nothing", consumer.Message{}, "07c133b126fad20f9229f20249208394"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison})
			process(t, c, &tc.msg)
			if got := letters(t, c)[0].ID.String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTwoLettersAreTwo(t *testing.T) {
	for _, tc := range []struct {
		name string
		msgs []consumer.Message
		want int
	}{
		{"equal bytes under two keys", []consumer.Message{{ID: "1", Payload: []byte("poison")}, {ID: "2", Payload: []byte("poison")}}, 2},
		{"two contents of one key", []consumer.Message{{ID: "1", Payload: []byte("a")}, {ID: "1", Payload: []byte("b")}, {ID: "1", Payload: []byte("c")}}, 2},
		{"equal bytes at two positions", []consumer.Message{{Position: "0/1"}, {Position: "0/2"}}, 2},
		{"one position after the topic was made again", []consumer.Message{{Position: "0/1", Time: time.Unix(1, 0)}, {Position: "0/1", Time: time.Unix(2, 0)}}, 2},
		{"two contents without position", []consumer.Message{{Payload: []byte("a")}, {Payload: []byte("b")}}, 2},
		{"one delivered twice", []consumer.Message{{ID: "1", Payload: []byte("poison"), Position: "0/1"}, {ID: "1", Payload: []byte("poison"), Position: "0/9"}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison})
			for _, m := range tc.msgs {
				process(t, c, &m)
			}
			if n := len(letters(t, c)); n != tc.want {
				t.Errorf("%d letters, want %d", n, tc.want)
			}
		})
	}
}
