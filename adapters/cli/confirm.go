package cli

import (
	"bufio"
	"os"
	"os/user"
	"strings"
)

// confirm asks for word on a terminal. yes answers without asking. Without a terminal and without yes it refuses.
func (p *printer) confirm(question, word string, yes bool) error {
	if yes {
		return nil
	}
	if !p.asks {
		return refused("nothing was changed: the input is no terminal; confirm with --yes")
	}
	p.notef("%s", question)
	answer, _ := bufio.NewReader(p.in).ReadString('\n') // an end of the input is no answer
	if strings.TrimSpace(answer) != word {
		return refused("nothing was changed: the answer was not %q", word)
	}
	return nil
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
