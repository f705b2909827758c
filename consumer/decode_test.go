package consumer_test

import (
	"context"
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

func TestDecoding(t *testing.T) {
	type order struct {
		ID string `json:"id" xml:"id,attr"`
	}
	add := func(_ context.Context, tx tx, o order) error { return tx.Add(o.ID) }
	addPointer := func(_ context.Context, tx tx, o *order) error { return tx.Add(o.ID) }
	decodeXML := func(p []byte) (o order, err error) { return o, xml.Unmarshal(p, &o) }
	for _, tc := range []struct {
		name    string
		handle  consumer.Handler[tx]
		payload string
		parked  string // part of the error
	}{
		{"JSON", consumer.JSON(add), `{"id":"x"}`, ""},
		{"JSON by pointer", consumer.JSON(addPointer), `{"id":"x"}`, ""},
		{"JSON with more members", consumer.JSON(add), `{"id":"x","more":1}`, ""},
		{"not JSON", consumer.JSON(add), `{"id":"x"`, "consumer_test.order"},
		{"other JSON", consumer.JSON(add), `{"id":7}`, "consumer_test.order"},
		{"nothing", consumer.JSON(add), ``, "consumer_test.order"},
		{"XML", consumer.Decode(decodeXML, add), `<order id="x"/>`, ""},
		{"not XML", consumer.Decode(decodeXML, add), `<order`, "consumer_test.order"},
		{"a decoder that panics", consumer.Decode(func([]byte) (order, error) { panic("boom") }, add), `x`, "boom"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store, traced := consumertest.NewStore(), &events{}
			c := newConsumer(t, config{Store: store, Handle: tc.handle, Backoff: noBackoff, Trace: traced.trace()})
			process(t, c, msg("1", tc.payload))
			found := letters(t, c)
			if tc.parked == "" {
				wantCount(t, store.Database(), "x", 1)
			} else if len(found) != 1 || !strings.Contains(found[0].Error, tc.parked) {
				t.Errorf("letters: %+v", found)
			} else if n := traced.count("claimed"); n != 1 && tc.parked != "boom" {
				t.Errorf("tried %d times what no attempt can cure", n)
			}
		})
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"id":"x"}`))
	f.Add([]byte(`{"id":[]}`))
	f.Add([]byte("\xff"))
	handle := consumer.JSON(func(context.Context, tx, struct{ ID map[string]any }) error { return errors.New("ran") })
	f.Fuzz(func(t *testing.T, p []byte) {
		if err := handle(context.Background(), nil, &consumer.Message{Payload: p}); err == nil ||
			err.Error() != "ran" && !consumer.IsPermanent(err) {
			t.Errorf("err = %v", err)
		}
	})
}
