package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// tiers are the tiers in the order of the page, and what each is.
var tiers = []struct{ name, title, what string }{
	{Sim, "Simulation", `The consumer and the relay run unmodified on databases and brokers in memory. A scheduler that draws from the
seed decides which goroutine goes on, and what happens to it at each boundary. Of a member of a Kafka group, where a session
begins is decided by the adapter's own function; the rest, which is bound to sockets, is written once more for the simulation.`},
	{Wire, "Wire", `A proxy stands between the real driver and a real server. It knows the protocol, counts its messages, and cuts, delays,
or answers at one of them. Then the tables are compared with what the handlers were given.`},
	{Process, "Processes and servers", `Real processes and servers are killed, frozen and replaced while they work. Then the tables and
topics are compared with what was sent.`},
}

// Page returns docs/proof.md.
func Page(runs []Run) string {
	runs = ordered(runs)
	var b strings.Builder
	b.WriteString(`# Faults that were tried

These runs inject faults on purpose, count them, and check afterwards that no message was lost or applied twice. A fault
counts only if it has fired while a message of its case was not done yet. A *case* is a few messages from their first delivery to the check.
It is *bad* if a rule was broken: a message without an effect or a dead letter, two effects, an effect without a claim, an
acknowledgement without an effect, an outbox message that was lost, that nobody has committed, or that came first behind a
later one of its ordering key. Where processes or servers are killed, each kill counts as a case.

The three kinds of runs are not added up: a simulated fault proves less than one at a real server, and there are more of them.
[guarantees.md](guarantees.md) lists the promises and the test of each.

This page is generated: ` + "`go run ./internal/test/proof/page > docs/proof.md`" + `.

| tier | run | faults | cases | bad | bad, at most | seed | date | commit |
|---|---|---:|---:|---:|---|---:|---|---|
`)
	for _, r := range runs {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %s | %d | %s | %s |\n", r.Tier, r.Name, number(r.Faults()), number(r.Cases),
			r.Bad, atMost(r.Bad, r.Cases), r.Seed, r.Date, short(r.Commit))
	}
	b.WriteString(`
**What 0 bad cases mean.** If n cases are drawn at random and none is bad, then with a confidence of 95 % fewer than 3/n of all
cases that the same generator can draw are bad. It says nothing about cases that the generator does not draw.
`)
	for _, t := range tiers {
		writeTier(&b, t.title, t.what, slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Tier != t.name }))
	}
	return b.String()
}

func writeTier(b *strings.Builder, title, what string, runs []Run) {
	if len(runs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", title, what)
	for _, r := range runs {
		fmt.Fprintf(b, "\n### %s\n\n`%s`, seed %d, %s, commit %s, %.0f s: %s faults in %s cases, %d bad.\n\n", r.Name,
			r.Command, r.Seed, r.Date, short(r.Commit), r.Seconds, number(r.Faults()), number(r.Cases), r.Bad)
		b.WriteString("| boundary | action | faults | cases | bad |\n|---|---|---:|---:|---:|\n")
		var empty []Cell
		for _, c := range r.Cells {
			if c.Faults == 0 {
				empty = append(empty, c)
				continue
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %d |\n", c.Boundary, c.Action, number(c.Faults), number(c.Cases), c.Bad)
		}
		if len(empty) > 0 {
			b.WriteString("\nNot tried:\n\n")
			for _, c := range empty {
				fmt.Fprintf(b, "- %s, %s: %s\n", c.Boundary, c.Action, cmp.Or(c.Reason, "no fault has fired"))
			}
		}
	}
}

// Sentence returns README's sentence with the number of faults of each tier.
func Sentence(runs []Run) string {
	var faults, bad [3]int
	for _, r := range runs {
		for i, t := range tiers {
			if r.Tier == t.name {
				faults[i] += r.Faults()
				bad[i] += r.Bad
			}
		}
	}
	return fmt.Sprintf("The last published runs injected %s faults in a simulation, %s at the wire of real servers, and %s into "+
		"processes and servers: in %d, %d and %d cases a message was lost or doubled ([what was tried](docs/proof.md)).",
		number(faults[0]), number(faults[1]), number(faults[2]), bad[0], bad[1], bad[2])
}

// ordered returns the runs and their cells in the order of the page.
func ordered(runs []Run) []Run {
	place := func(r Run) int {
		for i, t := range tiers {
			if t.name == r.Tier {
				return i
			}
		}
		return len(tiers)
	}
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Name, b.Name))
	})
	return runs
}

// atMost returns the share of bad cases that the run leaves possible.
func atMost(bad, cases int) string {
	switch {
	case bad > 0:
		return ""
	case cases < 30:
		return "too few to say"
	default:
		return "1 in " + number(cases/3)
	}
}

// number writes 1234567 as 1,234,567.
func number(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func short(commit string) string {
	return commit[:min(len(commit), 10)]
}
