package fromredis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"
)

// export writes the business keys that Redis has under prefix, one in each line, for
//
//	txonce import --consumer billing --window 360h --from-file keys.txt --keys-file real-keys.txt …
//
// SCAN may return a key twice; import counts it once. From a shell:
// redis-cli --scan --pattern 'seen:*' | sed 's/^seen://'
func export(ctx context.Context, client *redis.Client, prefix string, to io.Writer) error {
	out := bufio.NewWriter(to)
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if _, err := fmt.Fprintln(out, strings.TrimPrefix(keys.Val(), prefix)); err != nil {
			return err
		}
	}
	if err := keys.Err(); err != nil {
		return err
	}
	return out.Flush()
}
