package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

type tier struct{ name, title, runs, what string }

// tiers are the tiers in the order of the page, and what each is.
var tiers = []tier{
	{
		Sim, "Simulation", "txonce's code on a database and a broker in memory, in virtual time",
		`Consumers, relays and package calls run unmodified on a database and a broker in memory, in virtual time. At each
boundary, where a process meets the database, the broker or another system, a scheduler that draws from the seed decides
which goroutine goes on, and which fault happens there. For a Kafka group, the adapter's own functions
begin a session and write and compare positions; the group and its client are written for the simulation. Not drawn are
publishers that take several messages of a key at once, messages that the database refuses, refusals by the other system
of a call, aliases, results and versions, other content under a known key, and the Sweeper.`,
	},
	{
		Wire, "Wire", "stores, relays and publishers on real servers, behind a proxy that injects the faults",
		`A proxy stands between the real driver and a real server. It knows the protocol, counts its messages, and cuts, delays,
or answers at one of them. A fault counts when the proxy has carried out all of it. A stall that ends early because the
client gives up does not count, for example, nor does an error that the client did not get.

A message of a consumer is done when it is acknowledged. A relay's messages are done when they are deleted from the
outbox. A case of a relay enqueues messages, one after the other, until its fault has fired. Several relays share the
outbox, and a fault at one of them counts only if the same relay has published a message of the case.

In the runs of databases, a publisher in memory refuses messages, is unavailable, or loses its confirmation, as the seed
says. These failures are not counted. Every 30 seconds the tables and what was published are compared with what the
handlers were given, and once more for all messages at the end of the run.`,
	},
	{
		Process, "Processes and servers", "whole programs and servers, which are killed or frozen",
		`Real processes and servers are killed, frozen and replaced while they work. Then the tables and topics are compared with
what was sent. A dash in place of the seed: the moments were not drawn from a seed.`,
	},
}

// Page returns docs/proof.md.
func Page(runs []Run) string {
	runs = ordered(runs)
	var b strings.Builder
	b.WriteString(`# Faults that were tried

These runs inject faults on purpose, count them, and check afterwards that no message was lost or applied twice. A fault
counts only if it has fired while a message of its case was not done yet. A *case* is a few messages from their first
delivery to the check. It may have several faults. Where processes or servers are killed, each kill counts as a case. A
case is *bad* if one of these was found:

- a message without an effect and without a dead letter, or with two effects;
- an effect without a claim, or an acknowledgement without an effect or a dead letter;
- an outbox message that was lost, or that was published although its transaction was not committed;
- two outbox messages with one ordering key whose first arrivals are not in the order of their commits.

There are three tiers of runs. Their numbers are not added up, because a simulated fault proves less than a fault at a
real server, and the simulation makes many more faults.

`)
	writeSums(&b, runs)
	b.WriteString(`
[guarantees.md](guarantees.md) lists the promises and the test of each. This page is generated:
` + "`go run ./internal/test/proof/page > docs/proof.md`" + `.

| tier | run | faults | cases | bad | bad, at most | seed | date | commit |
|---|---|---:|---:|---:|---|---:|---|---|
`)
	for _, r := range runs {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %s | %s | %s | %s |\n", r.Tier, r.Name, number(r.Faults()), number(r.Cases),
			r.Bad, atMost(r.Bad, r.Cases), seed(r.Seed), r.Date, short(r.Commit))
	}
	b.WriteString(`
**What 0 bad cases mean.** If n cases are drawn at random and none is bad, then with a confidence of 95 % at most 3/n of
all cases that the same generator can draw are bad: the column *bad, at most*. It says nothing about cases that the
generator does not draw.
`)
	for _, t := range tiers {
		writeTier(&b, t, slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Tier != t.name }))
	}
	return b.String()
}

// writeSums writes what the runs of each tier have counted together, as README's sentence has it.
func writeSums(b *strings.Builder, runs []Run) {
	b.WriteString("| tier | what runs | faults | cases | bad |\n|---|---|---:|---:|---:|\n")
	for _, t := range tiers {
		var faults, cases, bad int
		for _, r := range runs {
			if r.Tier == t.name {
				faults, cases, bad = faults+r.Faults(), cases+r.Cases, bad+r.Bad
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %d |\n", t.name, t.runs, number(faults), number(cases), bad)
	}
}

func writeTier(b *strings.Builder, t tier, runs []Run) {
	if len(runs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n", t.title, t.what)
	explained[t.name].write(b)
	for _, r := range runs {
		fmt.Fprintf(b, "\n### %s\n\n`%s`, seed %s, %s, commit %s, %.0f s: %s faults in %s cases, %d bad.\n\n", r.Name,
			r.Command, seed(r.Seed), r.Date, short(r.Commit), r.Seconds, number(r.Faults()), number(r.Cases), r.Bad)
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

// seed writes 0 as a dash: nothing was drawn from a seed.
func seed(n uint64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprint(n)
}

// short cuts the hash, and keeps what Commit has put behind it.
func short(commit string) string {
	hash, rest, dirty := strings.Cut(commit, "-")
	hash = hash[:min(len(hash), 10)]
	if dirty {
		hash += "-" + rest
	}
	return hash
}
