package await_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/await"
)

func TestSleep(t *testing.T) {
	for _, tt := range []struct {
		name         string
		d, deadline  time.Duration
		want         error
		wantDuration time.Duration
	}{
		{"the time passes", time.Second, time.Minute, nil, time.Second},
		{"the context ends first", time.Minute, time.Second, context.DeadlineExceeded, time.Second},
		{"no time", 0, time.Second, nil, 0},
		{"negative time", -time.Second, time.Second, nil, 0},
		{"no time, and the context has ended", 0, 0, context.DeadlineExceeded, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				began := time.Now()
				if err := await.Sleep(ctx, tt.d); !errors.Is(err, tt.want) {
					t.Errorf("Sleep returns %v, want %v", err, tt.want)
				}
				if took := time.Since(began); took != tt.wantDuration {
					t.Errorf("Sleep took %v, want %v", took, tt.wantDuration)
				}
			})
		})
	}
}
