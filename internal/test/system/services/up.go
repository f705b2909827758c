//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// healthyWithin is how long a started server may take until it is healthy. It usually takes seconds, but longer on a
// small machine that starts all servers at once.
const healthyWithin = 4 * time.Minute

// up makes every server healthy and writes the addresses to .services/env.
func up(ctx context.Context, servers []server) error {
	var absent []server
	insist := os.Getenv("TXONCE_TEST_ALL") != "" || len(servers) == 1
	for _, s := range servers {
		address, given := addressOf(s)
		err := healthyOnce(ctx, s, address)
		switch {
		case err == nil:
			say(s, "already answers at %s", address)
		case given:
			return fmt.Errorf("%s is set to %s, and what is there is not a healthy %s: %w", s.About().Env, address,
				s.About().Title, err)
		default:
			absent = append(absent, s)
		}
	}
	missing, err := start(ctx, absent, insist)
	if err != nil {
		return err
	}
	return writeEnv(servers, missing)
}

// noServer is the value of an optional server's variable on a machine that cannot have it. Package testdb knows it.
const noServer = "absent"

// addressOf returns a server's address, and whether the user set it in the environment.
func addressOf(s server) (address string, given bool) {
	if a := os.Getenv(s.About().Env); a != "" && a != noServer {
		return a, true
	}
	return s.About().Address, false
}

// start starts servers side by side. It returns the optional ones that it could not start, unless it insists on them.
func start(ctx context.Context, servers []server, insist bool) (missing []server, err error) {
	if len(servers) == 0 {
		return nil, nil
	}
	// Report all obstacles before anything is installed or started.
	ready := make([]error, len(servers))
	var checks sync.WaitGroup
	for i, s := range servers {
		checks.Go(func() { ready[i] = makeRoom(ctx, s) })
	}
	checks.Wait()
	if err := errors.Join(ready...); err != nil {
		return nil, err
	}
	begin := startNative
	if dockerAnswers(ctx) {
		begin = startDocker
	} else if err := install(ctx, needsOf(servers)); err != nil {
		return nil, err
	}
	failures := make([]error, len(servers))
	var side sync.WaitGroup
	for i, s := range servers {
		side.Go(func() {
			started := time.Now()
			if err := startOne(ctx, s, begin); err != nil {
				failures[i] = fmt.Errorf("%s: %w", s.About().Name, err)
				return
			}
			say(s, "started at %s in %s", s.About().Address, seconds(time.Since(started)))
		})
	}
	side.Wait()
	for i, s := range servers {
		if failures[i] != nil && s.About().Optional && !insist && ctx.Err() == nil {
			say(s, "cannot be had on this machine, so its tests do not run: %s", oneLine(failures[i]))
			missing, failures[i] = append(missing, s), nil
		}
	}
	return missing, errors.Join(failures...)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// makeRoom stops what an interrupted run of this checkout has left of a server, and checks that the server's ports are
// free.
func makeRoom(ctx context.Context, s server) error {
	if err := stop(ctx, s); err != nil {
		return err
	}
	return portsFree(ctx, s)
}

// startOne starts a server and waits until it is healthy. If that fails, it stops the server again.
func startOne(ctx context.Context, s server, begin func(context.Context, server) (ended <-chan error, err error)) error {
	ended, err := begin(ctx, s)
	if err != nil {
		return err
	}
	if err := awaitHealthy(ctx, s, ended); err != nil {
		tail := logTail(s)
		return fmt.Errorf("%w%s", errors.Join(err, stop(context.WithoutCancel(ctx), s)), tail)
	}
	return nil
}

// awaitHealthy polls until the server is healthy, its process has ended, or the time is up.
func awaitHealthy(ctx context.Context, s server, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, healthyWithin)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := healthyOnce(ctx, s, s.About().Address)
		if err == nil {
			return nil
		}
		select {
		case exit := <-ended:
			return fmt.Errorf("it ended at once (%w)", exit)
		case <-ctx.Done():
			return fmt.Errorf("not healthy within %s: %w", healthyWithin, err)
		case <-tick.C:
		}
	}
}

func healthyOnce(ctx context.Context, s server, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return s.Healthy(ctx, address)
}

func say(s server, format string, args ...any) {
	fmt.Fprintf(os.Stdout, "%-11s %s "+format+"\n", append([]any{s.About().Name, s.About().Title}, args...)...)
}
