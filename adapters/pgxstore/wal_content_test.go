package pgxstore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox"
)

// What the server builds is covered by the tests that relay it; this is about bytes that it would not build.
func FuzzOutboxWALContent(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01"))
	f.Add([]byte("\x02rest"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x03" +
		"\x00\x00\x00\x02id\x00\x00\x00\x05topic\x00\x00\x00\x00\x00\x00\x00\x00payload"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x03\xff\xff\xff\xffid"))
	f.Fuzz(func(t *testing.T, content []byte) {
		before := append([]byte{}, content...)
		m, err := decodeWAL(content)
		if diff := cmp.Diff(before, content); diff != "" {
			t.Errorf("content changed: %s", diff)
		}
		if err != nil {
			return
		}
		if got := len(m.ID) + len(m.Topic) + len(m.Key) + len(m.Payload); got > len(content) {
			t.Errorf("%d bytes of message out of %d", got, len(content))
		}
	})
}

func TestOutboxWALContent(t *testing.T) {
	content := "\x01\x00\x00\x00\x00\x00\x00\x01\x07\x00\x02\xec\x27\x5b\x5e\x10\x01\x00\x03" +
		"\x00\x00\x00\x02id\x00\x00\x00\x05topic\x00\x00\x00\x01k\x00\x00\x00\x09{\"a\":\"b\"}payload"
	got, err := decodeWAL([]byte(content))
	want := outbox.Leased{
		Message: outbox.Message{ID: "id", Topic: "topic", Key: "k", Headers: map[string]string{"a": "b"}, Payload: []byte("payload")},
		Seq:     0x107, Shard: 3, Enqueued: pgTime(0x0002ec275b5e1001),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if at := pgTime(0); !at.Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the server's epoch is %v", at)
	}
	for n := range len(content) - len("payload") {
		if _, err := decodeWAL([]byte(content[:n])); err == nil {
			t.Errorf("the first %d bytes were taken for a message", n)
		}
	}
}
