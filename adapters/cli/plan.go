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

// What a response of httpidem adds to its row on PostgreSQL 15, measured with 20,000 rows of random bytes: 1,212 bytes a
// key with a body of 803 bytes, 6,120 with 4,865, 22,299 with 19,865.
const (
	responseHead  = 135 // fingerprint, status and headers
	responseWaste = 1.1 // rows of that size leave room on their pages; longer responses go to TOAST in pieces
	hashBytes     = 64  // a key is stored as a hash of this length
)

// httpKeyBytes is the length of consumer, tenant and key that a plan for HTTP responses takes without --key-bytes.
const httpKeyBytes = 76

// httpWindow is the default of httpidem.Config.Window.
const httpWindow = 24 * time.Hour

// claimBytes is about what one key takes on the disk.
func claimBytes(key, response int) float64 {
	bytes := float64(bytesPerClaim + key)
	if response > 0 {
		bytes += responseWaste * float64(response+responseHead)
	}
	return bytes
}

func (a *app) plan() *cobra.Command {
	var rate float64
	var window time.Duration
	var keyBytes, responseBytes int
	c := &cobra.Command{
		Use: "plan", Short: "Estimate the size of the table of claims, without a database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if responseBytes > 0 && !cmd.Flags().Changed("key-bytes") {
				keyBytes = httpKeyBytes
			}
			if responseBytes > 0 && !cmd.Flags().Changed("window") {
				window = httpWindow
			}
			switch {
			case !(rate > 0) || rate > 1e9: // NaN is neither
				return Usage(fmt.Errorf("--rate %v: want new messages a second, more than 0 and at most a billion", rate))
			case window < dedup.MinWindow:
				return Usage(fmt.Errorf("--window %v is shorter than %v", window, dedup.MinWindow))
			case keyBytes < 0 || keyBytes > dedup.MaxID:
				return Usage(fmt.Errorf("--key-bytes %d: want 0 to %d", keyBytes, dedup.MaxID))
			case responseBytes < 0 || responseBytes > 1<<30:
				return Usage(fmt.Errorf("--response-bytes %d: want 0 to %d", responseBytes, 1<<30))
			case responseBytes > 0 && keyBytes < hashBytes:
				return Usage(fmt.Errorf("--key-bytes %d: httpidem stores a key as %d digits", keyBytes, hashBytes))
			}
			type plan struct {
				version
				Claims  int64   `json:"claims"`
				Bytes   int64   `json:"bytes"`
				Deletes float64 `json:"deletes_per_second"`
			}
			claims := int64(rate * window.Seconds())
			p := plan{v1(), claims, int64(float64(claims) * claimBytes(keyBytes, responseBytes)), rate}
			out := a.printer(cmd)
			return out.object(p, func() {
				out.printf("claims   %d: %g a second, kept for %s\n", p.Claims, rate, ago(window))
				switch {
				case responseBytes > 0:
					out.printf("disk     about %s on PostgreSQL, with the index and responses of %d bytes; responses that compress take less, and each further secret as much again\n",
						size(p.Bytes), responseBytes)
				default:
					out.printf("disk     about %s on PostgreSQL, with the index; Compact saves about 40 bytes a claim\n",
						size(p.Bytes))
				}
				out.printf("sweeper  deletes %g a second\n", p.Deletes)
			})
		},
	}
	c.Flags().Float64Var(&rate, "rate", 0, "new messages a second, on average (required)")
	c.Flags().DurationVar(&window, "window", dedup.DefaultWindow, "how long keys are remembered: Config.Window; with --response-bytes 24h by default, as in httpidem.Config")
	c.Flags().IntVar(&keyBytes, "key-bytes", 40, "the average length of consumer, tenant and key together")
	c.Flags().IntVar(&responseBytes, "response-bytes", 0, "the average length of a response's body: for a Guard of httpidem, which stores responses; --key-bytes is then 76 by default, and --window 24h")
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
