package httpidem

import (
	"bytes"
	"slices"

	"github.com/txonce/txonce/dedup/driver"
)

// checkSecrets returns a copy of the secrets, which the caller cannot change.
func (c *Config[TTx]) checkSecrets(refuse func(string, ...any)) [][]byte {
	if len(c.Secrets) == 0 {
		refuse("Secrets is required: make a secret of %d random bytes, for example with openssl rand -base64 %[1]d, and give it to all processes", MinSecret)
	}
	var secrets [][]byte
	for i, s := range c.Secrets {
		if len(s) < MinSecret {
			refuse("Secrets[%d] has %d bytes: want %d random bytes or more, for example of openssl rand -base64 %[3]d",
				i, len(s), MinSecret)
		}
		if slices.ContainsFunc(secrets, func(other []byte) bool { return bytes.Equal(other, s) }) {
			refuse("Secrets[%d] is there twice: remove it", i)
		}
		secrets = append(secrets, bytes.Clone(s))
	}
	return secrets
}

func (c *Config[TTx]) checkLimits(refuse func(string, ...any)) {
	if c.Timeout < 0 {
		refuse("Timeout is %v: want more than 0", c.Timeout)
	}
	if c.MaxBody < 0 {
		refuse("MaxBody is %d: want more than 0", c.MaxBody)
	}
	if c.MaxResponse < 0 {
		refuse("MaxResponse is %d: want more than 0", c.MaxResponse)
	}
	if c.MaxConcurrent < 0 {
		refuse("MaxConcurrent is %d: want 1 or more", c.MaxConcurrent)
	}
	most := 0
	if pool, ok := c.Store.(driver.PoolReporter); ok {
		_, most = pool.PoolUse()
	}
	switch {
	case c.MaxConcurrent == 0 && most == 0:
		c.MaxConcurrent = 64
	case c.MaxConcurrent == 0:
		c.MaxConcurrent = max(1, most*3/4)
	case most > 1 && c.MaxConcurrent >= most:
		refuse("MaxConcurrent is %d, but the Store's pool has %d connections: a handler that needs a second connection would wait forever; "+
			"lower it, or raise the pool's limit", c.MaxConcurrent, most)
	}
}
