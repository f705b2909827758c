package tokens_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/tokens"
)

func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokens.NewBucket(tokens.Limit{Burst: 4, PerMinute: 6})
		take := func(want int) {
			t.Helper()
			b.Refill(time.Now())
			got := 0
			for b.Take() {
				got++
			}
			if got != want {
				t.Errorf("%d tokens, want %d", got, want)
			}
		}
		take(4)
		if b.Next() != 10*time.Second || b.Interval() != 10*time.Second || b.HalfFull() {
			t.Errorf("empty: next token after %v, one each %v, half full: %v", b.Next(), b.Interval(), b.HalfFull())
		}
		<-time.After(10*time.Second - time.Millisecond)
		take(0)
		<-time.After(time.Millisecond)
		take(1)
		<-time.After(20 * time.Second)
		b.Refill(time.Now())
		if !b.HalfFull() || !b.Has(2) || b.Has(2.01) {
			t.Error("two of four tokens are half of them")
		}
		take(2)
		<-time.After(time.Hour)
		take(4) // and no more than the burst
		b.GiveBack(2)
		take(2)
		b.GiveBack(100)
		take(4)
	})
}

func TestUnlimited(t *testing.T) {
	b := tokens.NewBucket(tokens.Limit{Unlimited: true})
	for range 1000 {
		if !b.Unlimited() || !b.Take() {
			t.Fatal("an unlimited bucket was empty")
		}
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		limit tokens.Limit
		want  string
	}{
		{tokens.Limit{}, ""},
		{tokens.Limit{Unlimited: true}, ""},
		{tokens.Limit{Burst: 1, PerMinute: 1}, ""},
		{tokens.Limit{Burst: 1, PerMinute: 1, Unlimited: true}, ".Unlimited is set beside a limit: set one of them"},
		{tokens.Limit{PerMinute: 1}, ".Burst is 0: want 1 or more, or Unlimited"},
		{tokens.Limit{Burst: 1, PerMinute: -1}, ".PerMinute is -1: want 1 or more, or Unlimited"},
	} {
		got := ""
		if err := test.limit.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test.limit, got, test.want)
		}
	}
}
