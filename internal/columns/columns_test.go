package columns_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/outbox/driver"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain żółć": "plain żółć", "a\x00b": "a\uFFFDb",
		"a\xffb": "a\uFFFDb",
	} {
		if got := columns.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	if long := columns.Text(strings.Repeat("ż", 10_000)); len(long) > 8<<10+len("\uFFFD") || !utf8.ValidString(long) {
		t.Errorf("a long text became %d bytes, valid: %v", len(long), utf8.ValidString(long))
	}
}

func TestOutcomes(t *testing.T) {
	failed := driver.Outcome{Err: errors.New("no route\x00")}
	failed.Attempts = 2
	if got := columns.Attempts(&failed); got != 3 {
		t.Errorf("%d attempts after a third failure", got)
	}
	if got := columns.Error(&failed); got != "no route\uFFFD" {
		t.Errorf("error %q", got)
	}
	failed.BrokerFault, failed.Err = true, nil
	if got := columns.Attempts(&failed); got != 2 {
		t.Errorf("%d attempts after a failure that does not count", got)
	}
	if columns.Error(&failed) == "" {
		t.Error("the error is empty")
	}
}

func TestLetters(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 123_000, time.UTC)
	full := consumer.DeadLetter{
		ID: consumer.DeadLetterID{1, 2},
		Record: dedup.Record{
			Key: dedup.Key{Consumer: "billing", Tenant: "a", ID: "m-1"}, Time: created,
			Window: time.Hour, Fingerprint: dedup.FingerprintOf([]byte("x")),
		},
		Message: consumer.Message{
			Tenant: "a", ID: "m-1", Time: created, Topic: "orders", OrderingKey: "k", Position: "0/7",
			Payload: []byte("x"), Attempt: 3, Headers: map[string]string{"h": "v"},
		},
		Cause: "poison", Error: "boom",
	}
	bare := consumer.DeadLetter{
		Record:  dedup.Record{Key: dedup.Key{Consumer: "billing"}, Window: time.Hour},
		Message: consumer.Message{Payload: []byte{}},
	}
	for _, want := range []consumer.DeadLetter{full, bare} {
		row, err := columns.NewLetter(want)
		if err != nil {
			t.Fatal(err)
		}
		if row.HasKey != (want.Record.Key.ID != "") || row.HasKey && row.Key != want.Record.Key.Hash() {
			t.Errorf("key %x of %v", row.Key, want.Record.Key)
		}
		got, err := row.DeadLetter()
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Message.Headers) == 0 {
			got.Message.Headers = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
