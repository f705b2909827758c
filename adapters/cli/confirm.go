package cli

import (
	"bufio"
	"context"
	"os"
	"os/user"
	"strings"
)

// confirm asks for word on a terminal. yes answers without asking. Without a terminal and without yes it refuses.
func (p *printer) confirm(ctx context.Context, question, word string, yes bool) error {
	if yes {
		return nil
	}
	if !p.asks {
		return refused("nothing was changed: the input is no terminal; confirm with --yes")
	}
	p.notef("%s", question)
	answered := make(chan string, 1)
	go func() { // it cannot be interrupted; the process ends without it
		answer, _ := bufio.NewReader(p.in).ReadString('\n') // an end of the input is no answer
		answered <- strings.TrimSpace(answer)
	}()
	select {
	case answer := <-answered:
		if answer != word {
			return refused("nothing was changed: the answer was not %q", word)
		}
		return nil
	case <-ctx.Done():
		p.notef("\n")
		return interrupted("nothing was changed")
	}
}

// confirmCount is confirm for commands whose --yes needs --expect. n is what they have counted.
func (p *printer) confirmCount(ctx context.Context, question, word string, n int) error {
	if !p.asks {
		return refused("nothing was changed: the input is no terminal; confirm with --yes --expect %d", n)
	}
	return p.confirm(ctx, question, word, false)
}

// whoami names the person or program that acts.
func whoami() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = "unknown"
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
