package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/dedup"
)

// bytesPerClaim is what a row of processed_messages and its index entry take on PostgreSQL 15, without the text of the
// key. Measured with 200,000 random keys and 40 bytes of text: 151 bytes.
const bytesPerClaim = 110

func (a *app) plan() *cobra.Command {
	var rate float64
	var window time.Duration
	var keyBytes int
	c := &cobra.Command{
		Use: "plan", Short: "Estimate the size of the table of claims, without a database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !(rate > 0) || rate > 1e9: // NaN is neither
				return Usage(fmt.Errorf("--rate %v: want new messages a second, more than 0 and at most a billion", rate))
			case window < dedup.MinWindow:
				return Usage(fmt.Errorf("--window %v is shorter than %v", window, dedup.MinWindow))
			case keyBytes < 0 || keyBytes > dedup.MaxID:
				return Usage(fmt.Errorf("--key-bytes %d: want 0 to %d", keyBytes, dedup.MaxID))
			}
			type plan struct {
				version
				Claims  int64   `json:"claims"`
				Bytes   int64   `json:"bytes"`
				Deletes float64 `json:"deletes_per_second"`
			}
			claims := int64(rate * window.Seconds())
			p := plan{v1(), claims, claims * int64(bytesPerClaim+keyBytes), rate}
			out := a.printer(cmd)
			return out.object(p, func() {
				out.printf("claims   %d: %g a second, kept for %s\n", p.Claims, rate, ago(window))
				out.printf("disk     about %s on PostgreSQL, with the index; Compact saves about 40 bytes a claim\n",
					size(p.Bytes))
				out.printf("sweeper  deletes %g a second\n", p.Deletes)
			})
		},
	}
	c.Flags().Float64Var(&rate, "rate", 0, "new messages a second, on average (required)")
	c.Flags().DurationVar(&window, "window", dedup.DefaultWindow, "how long keys are remembered: Config.Window")
	c.Flags().IntVar(&keyBytes, "key-bytes", 40, "the average length of consumer, tenant and key together")
	return c
}

func size(bytes int64) string {
	const unit = 1 << 10
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; value >= unit && i < len(units)-1; i++ {
		value /= unit
	}
	return fmt.Sprintf("%.1f %s", value, units[i])
}
