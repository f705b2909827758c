package shares_test

import (
	"slices"
	"testing"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func leased(shard int, token, seq int64) driver.Leased {
	l := driver.Leased{Stored: outbox.Stored{Shard: shard}, Token: token}
	l.Seq = seq
	return l
}

func TestHeldShardThatIsTakenAgain(t *testing.T) {
	h := shares.Held{}
	h.Add(map[int]int64{1: 10})
	first := h.Borrow([]int{1, 2})
	if n := first.Numbers(); !slices.Equal(n, []int{1}) {
		t.Fatalf("borrowed %v, want shard 1, which is the only one", n)
	}
	if again := h.Borrow([]int{1}); len(again) > 0 {
		t.Error("a shard that is busy is borrowed again")
	}
	h.Set(map[int]int64{}) // another session takes it
	h.Set(map[int]int64{1: 12})
	second := h.Borrow([]int{1})
	if len(second) != 1 {
		t.Fatal("the shard is not free after it was taken again")
	}
	first.Free()
	if again := h.Borrow([]int{1}); len(again) > 0 {
		t.Error("a poll from before the shard was lost has freed it, although another poll reads it")
	}
	h.Set(map[int]int64{1: 14}) // lost and taken again between two Renews
	if h.Tokens()[1] != 14 || !h[1].Idle() {
		t.Errorf("the shard has token %d, idle: %v", h[1].Token, h[1].Idle())
	}
}

func TestHeldGivesBackIdleShardsFirst(t *testing.T) {
	h := shares.Held{}
	h.Add(map[int]int64{1: 1, 2: 1, 3: 1})
	h.Lease([]driver.Leased{leased(1, 1, 5), leased(2, 1, 6)})
	if idle := h.GiveBack(2); !slices.Equal(idle, []int{3}) {
		t.Errorf("gives back %v at once, want shard 3, which has no leased messages", idle)
	}
	leaving := slices.DeleteFunc(h.Numbers(), func(n int) bool { return !h[n].Leaving })
	if len(leaving) != 1 {
		t.Fatalf("shards %v leave, want one", leaving)
	}
	if idle := h.RemoveLeaving(); len(idle) > 0 {
		t.Errorf("gives back %v with leased messages", idle)
	}
	n := leaving[0]
	seq := map[int]int64{1: 5, 2: 6}[n]
	h.Settle([]driver.Outcome{{Leased: leased(n, 2, seq)}}) // of another token
	if idle := h.RemoveLeaving(); len(idle) > 0 {
		t.Errorf("a settlement with another token counts")
	}
	h.Settle([]driver.Outcome{{Leased: leased(n, 1, seq)}})
	if idle := h.RemoveLeaving(); !slices.Equal(idle, leaving) {
		t.Errorf("gives back %v after its messages are settled, want %v", idle, leaving)
	}
}

func TestHeldFollowed(t *testing.T) {
	h := shares.Held{}
	h.Add(map[int]int64{1: 1, 2: 1, 3: 1})
	h.Lease([]driver.Leased{leased(1, 1, 5), leased(2, 1, 6), leased(2, 1, 7), leased(3, 1, 8)})
	parked := func(shard int, seq int64, policy outbox.ParkPolicy) driver.Outcome {
		o := driver.Outcome{Leased: leased(shard, 1, seq), Verdict: driver.Parked, ParkPolicy: policy}
		o.OrderingKey = "k"
		return o
	}
	got := h.Followed([]driver.Outcome{
		parked(1, 5, outbox.BlockKey),
		parked(2, 6, outbox.BlockKey),    // a message of the shard stays leased
		parked(3, 8, outbox.SkipMessage), // nothing waits behind it
		parked(4, 9, outbox.BlockKey),    // of a shard that is lost
	})
	if !slices.Equal(got, []int{1}) {
		t.Errorf("followed shards %v, want 1", got)
	}
}
