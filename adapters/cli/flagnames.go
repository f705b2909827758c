package cli

import "strings"

// fields are the fields that errors and notes of the library name, and the flags that set them.
var fields = strings.NewReplacer(
	"ops: Request.Filter.Consumer", "--consumer",
	"Request.Filter.ID", "--id",
	"ops: Request.Who", "--who",
	"ops: Request.Reason", "--reason",
	"ops: Request.Key", "--new-key",
	"ops: Request.Payload", "--repair",
	"ops: Request.Rate", "--rate",
	"ops: Request.MaxFailures", "--max-failures",
	"storm: Config.URL", "--url", "storm: Config.Method", "--method", "storm: Config.Keys, Clients and Tries", "--keys, --clients and --tries",
	"storm: Config.Keys", "--keys", "storm: Config.Clients", "--clients", "storm: Config.Tries", "--tries",
	"storm: Config.Cuts", "--cuts", "storm: Config.Backoff", "--backoff", "storm: Config.Effects", "--effects",
	"audit: Config.Consumer", "--consumer",
	"audit: Config.Effects", "--effects",
	"audit: Config.Expect", "--expect",
	"audit: Config.Sample", "--sample", "Config.Sample", "--sample",
	"audit: Config.Rate", "--rate", "Config.Rate", "--rate",
	"Config.MaxTime", "--max-time",
	"audit: OutboxConfig.PerClaim", "--per-claim", "OutboxConfig.PerClaim", "--per-claim",
	"OutboxConfig.ID", "--id-header",
	"OutboxConfig.Since", "--since",
)

// withFlags names the flag wherever text of the library names a field that this program sets from a flag.
func withFlags(text string) string { return fields.Replace(text) }
