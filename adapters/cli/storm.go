package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/adapters/httpidem/storm"
)

// stormFlags say what the storm sends where.
type stormFlags struct {
	cfg      storm.Config
	allow    string
	headers  []string
	bodyFile string
	jitter   string
	effects  string
	maxTime  time.Duration
}

// mostStorm is the longest --max-time.
const mostStorm = 10 * time.Minute

func (a *app) storm() *cobra.Command {
	var f stormFlags
	c := &cobra.Command{
		Use: "storm --url URL", Short: "Send an HTTP API repeats, cut connections and retries, without a database", Args: cobra.NoArgs,
		Example: `  txonce storm --url http://127.0.0.1:8080/payments --body '{"amount": 10, "note": "storm {n}"}'
  txonce storm --url https://staging.example/payments --allow staging.example --header 'Authorization: Bearer …' --effects https://staging.example/payments/count`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jitters, err := f.check(a)
			if err != nil {
				return Usage(err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), f.maxTime)
			defer cancel()
			var reports []storm.Report
			for _, jitter := range jitters {
				f.cfg.Jitter = jitter
				r, err := storm.Run(ctx, f.cfg)
				switch {
				case cmd.Context().Err() != nil:
					return interrupted("the storm has ended early")
				case err != nil && ctx.Err() != nil:
					return finding("the storm took longer than --max-time %v: %w", f.maxTime, err)
				case err != nil:
					return &coded{ExitUnreachable, err}
				}
				reports = append(reports, r)
			}
			return showStorm(a.printer(cmd), reports)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.cfg.URL, "url", "", "where the requests go (required)")
	flags.StringVar(&f.allow, "allow", "", "the host of --url, if it is not this machine: a storm against a system of others is an attack")
	flags.StringVar(&f.cfg.Method, "method", http.MethodPost, "the method of the requests")
	flags.StringVar(&f.cfg.Header, "key-header", "Idempotency-Key", "the header with the key")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "a further header of each request, and of those to --effects, such as 'Authorization: Bearer …'; repeat it for several")
	flags.StringVar(&f.cfg.Body, "body", "{}", "the body; {n} in it is replaced by the number of the key")
	flags.StringVar(&f.bodyFile, "body-file", "", "a file with the body, in place of --body")
	flags.IntVar(&f.cfg.Keys, "keys", 10, "how many requests, one after the other, each with a key of its own")
	flags.IntVar(&f.cfg.Clients, "clients", 20, "how many clients send each request at the same moment")
	flags.IntVar(&f.cfg.Tries, "tries", 8, "how often a client sends its request at most")
	flags.Float64Var(&f.cfg.Cuts, "cuts", .3, "the share of tries that get no answer: their connection is cut, or the answer is thrown away")
	flags.DurationVar(&f.cfg.Backoff, "backoff", 100*time.Millisecond, "how long a client waits before its first retry; it doubles, and Retry-After is added")
	flags.StringVar(&f.jitter, "jitter", "both", "whether waits are random: on, off, or both, one after the other")
	flags.StringVar(&f.effects, "effects", "", "a URL that answers a GET with the number of effects, as a JSON number or as an array with an element for each; without it only answers are compared")
	flags.DurationVar(&f.maxTime, "max-time", 2*time.Minute, "how long all of it may take, at most 10m")
	return c
}

// check completes the Config and returns the values of Jitter.
func (f *stormFlags) check(a *app) (jitters []bool, err error) {
	jitters, known := map[string][]bool{"on": {true}, "off": {false}, "both": {false, true}}[f.jitter]
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if !known {
		refuse("--jitter %q: want on, off or both", f.jitter)
	}
	if f.maxTime <= 0 || f.maxTime > mostStorm {
		refuse("--max-time %v: want more than 0 and at most %v", f.maxTime, mostStorm)
	}
	if a.timeout <= 0 {
		refuse("--timeout must be positive")
	}
	f.cfg.TryTimeout = a.timeout
	f.cfg.Headers = http.Header{}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			refuse("--header %q: want 'Name: value'", h)
			continue
		}
		f.cfg.Headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if f.bodyFile != "" {
		body, err := os.ReadFile(f.bodyFile)
		if err != nil {
			refuse("--body-file: %w", err)
		}
		f.cfg.Body = string(body)
	}
	for flag, text := range map[string]string{"--url": f.cfg.URL, "--effects": f.effects} {
		if text == "" && flag == "--effects" {
			continue
		}
		if err := f.mayAsk(text); err != nil {
			refuse("%s: %w", flag, err)
		}
	}
	if f.effects != "" {
		f.cfg.Effects = storm.EffectsAt(f.effects, f.cfg.Headers)
	}
	if len(wrong) == 0 {
		if err := f.cfg.Validate(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return jitters, errors.Join(wrong...)
}

// mayAsk refuses URLs of other machines that --allow does not name.
func (f *stormFlags) mayAsk(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%q: want http:// or https:// and a host", text)
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() || host == f.allow {
		return nil
	}
	return fmt.Errorf("%s is not this machine: add --allow %s if it is yours, and no system that others use", host, host)
}

type stormObject struct {
	version
	Runs []storm.Report `json:"runs"`
}

// showStorm prints the reports. Findings are the error.
func showStorm(out *printer, reports []storm.Report) error {
	found := 0
	for _, r := range reports {
		found += len(r.Findings)
	}
	err := out.object(stormObject{v1(), reports}, func() {
		for _, r := range reports {
			printStorm(out, r)
		}
	})
	if err == nil && found > 0 {
		err = finding("the API has not passed: %d findings", found)
	}
	return err
}

func printStorm(out *printer, r storm.Report) {
	kind := "without jitter"
	if r.Jitter {
		kind = "with jitter"
	}
	out.printf("storm     %s: %d keys, %d clients each, %.1f s\n", kind, r.Keys, r.Clients, r.Seconds)
	out.printf("requests  %d: %d cut or unheard on purpose, %d failed; at most %d retries began within 100 ms\n", r.Requests,
		r.Cut, r.Failed, r.Peak)
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		statuses = append(statuses, fmt.Sprintf("%s: %d", status, r.Statuses[status]))
	}
	out.printf("answers   %s; %d of them replayed\n", strings.Join(statuses, ", "), r.Replayed)
	out.printf("latency   p50 %s, p95 %s, p99 %s, at most %s\n", milli(r.Latency.P50), milli(r.Latency.P95),
		milli(r.Latency.P99), milli(r.Latency.Max))
	if r.Effects != nil {
		out.printf("effects   %d of %d keys that succeeded\n", *r.Effects, r.Succeeded)
	} else {
		out.printf("effects   not counted; %d keys succeeded\n", r.Succeeded)
	}
	for _, note := range r.Notes {
		out.printf("note      %s\n", note)
	}
	for _, found := range r.Findings {
		out.printf("FINDING   %s\n", found)
	}
	if len(r.Findings) == 0 {
		out.printf("passed    one answer for each key\n")
	}
}

func milli(seconds float64) string {
	return fmt.Sprintf("%.1f ms", seconds*1000)
}
