package counts_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/txonce/txonce/internal/counts"
)

func TestCounter(t *testing.T) {
	var c counts.Counter
	want := func(id string, n int) {
		t.Helper()
		if got := c.Of(id); got != n {
			t.Errorf("%s was counted %d times; want %d", id, got, n)
		}
	}
	c.Forget("a")
	want("a", 0)
	c.Add("a")
	c.Add("b")
	c.Add("a")
	want("a", 2)
	want("b", 1)
	c.Forget("a")
	want("a", 0)
	want("b", 1)
	c.Add("a")
	want("a", 1)
}

func TestCounterIsBounded(t *testing.T) {
	var c counts.Counter
	c.Add("again")
	c.Forget("again")
	for i := range counts.Limit - 1 {
		c.Add(fmt.Sprint(i))
	}
	c.Add("again") // the youngest, although it was counted before
	c.Add("one more")
	for id, n := range map[string]int{"0": 0, "1": 1, fmt.Sprint(counts.Limit - 2): 1, "again": 1, "one more": 1} {
		if got := c.Of(id); got != n {
			t.Errorf("%s was counted %d times; want %d", id, got, n)
		}
	}
}

func TestCounterCountsSideBySide(t *testing.T) {
	var c counts.Counter
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				c.Add("a")
			}
		})
	}
	all.Wait()
	if n := c.Of("a"); n != 8000 {
		t.Errorf("counted %d of 8000", n)
	}
}
