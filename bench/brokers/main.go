// Command brokers measures how fast messages are handled from each broker to a committed effect in PostgreSQL: by txonce, and by
// the same subscriber without deduplication, with the same batches, transactions and effects but no claims. The ratio of the two
// is the cost of effectively-once. The ratio holds on any machine, the rates only on this one.
//
//	make bench-brokers
//	go run ./brokers -rounds 3 -json
//
// Within a round the two alternate on each broker, so that a disturbance does not affect only one of them. Each figure is the
// median over rounds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is the result of one broker.
type figure struct {
	Broker  string    `json:"broker"`
	Bare    float64   `json:"bare_per_second"`
	Txonce  float64   `json:"txonce_per_second"`
	Ratio   float64   `json:"ratio"` // of the medians
	Ratios  []float64 `json:"ratios"`
	bares   []float64
	txonces []float64
}

func main() {
	rounds := flag.Int("rounds", 3, "`number` of measurements per figure")
	only := flag.String("only", "", "measure only brokers whose names contain this `text`")
	asJSON := flag.Bool("json", false, "print one JSON object instead of the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	figures, err := measure(ctx, *rounds, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(map[string][]figure{"figures": figures}) // cannot fail: finite numbers
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "broker\tno deduplication\ttxonce\tratio\t")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%.0f/s\t%.0f/s\t%.2f\t\n", f.Broker, f.Bare, f.Txonce, f.Ratio)
	}
	_ = w.Flush()
}

func measure(ctx context.Context, rounds int, only string) ([]figure, error) {
	if rounds < 1 {
		return nil, errors.New("-rounds: want 1 or more")
	}
	var figures []figure
	for _, k := range kinds {
		if strings.Contains(k.name, only) {
			figures = append(figures, figure{Broker: k.name})
		}
	}
	if len(figures) == 0 {
		return nil, fmt.Errorf("-only %s: there is no such broker", only)
	}
	for round := range rounds {
		for i := range figures {
			f := &figures[i]
			k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == f.Broker })]
			bare, err := rate(ctx, k, newBare)
			if err != nil {
				return nil, fmt.Errorf("%s without deduplication: %w", k.name, err)
			}
			claiming, err := rate(ctx, k, newTxonce)
			if err != nil {
				return nil, fmt.Errorf("%s with txonce: %w", k.name, err)
			}
			f.bares, f.txonces, f.Ratios = append(f.bares, bare), append(f.txonces, claiming), append(f.Ratios, claiming/bare)
			fmt.Fprintf(os.Stderr, "round %d: %-16s %6.0f/s without deduplication, %6.0f/s with txonce\n", round+1, k.name, bare, claiming)
		}
	}
	for i := range figures {
		f := &figures[i]
		f.Bare, f.Txonce, f.Ratio = median(f.bares), median(f.txonces), median(f.Ratios)
	}
	return figures, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
