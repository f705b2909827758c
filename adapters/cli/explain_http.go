package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/httpkey"
)

// httpFlags describe an HTTP request, whose key the database has as an HMAC of all that they say.
type httpFlags struct {
	on                        bool
	secretFiles               []string
	principal, method, target string
}

func (f *httpFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&f.on, "http", false, "KEY is the Idempotency-Key of an HTTP request, and CONSUMER the httpidem.Config.Name")
	flags.StringArrayVar(&f.secretFiles, "secret-file", nil,
		"of --http: a file with one of httpidem.Config.Secrets, as bytes, or in base64 or hexadecimal digits; repeat it for several")
	flags.StringVar(&f.principal, "principal", "", "of --http: what httpidem.Config.Principal returns for the request")
	flags.StringVar(&f.method, "method", "", "of --http: the method, such as POST")
	flags.StringVar(&f.target, "target", "", "of --http: the path and the query as the client has sent them, such as /payments?draft=1")
}

// check refuses flags that do not fit. others says that the key is named in another way, too.
func (f *httpFlags) check(others bool) error {
	given := map[string]bool{
		"--secret-file": len(f.secretFiles) > 0, "--principal": f.principal != "", "--method": f.method != "",
		"--target": f.target != "",
	}
	var missing []string
	for name, is := range given {
		if is && !f.on {
			return fmt.Errorf("%s needs --http", name)
		}
		if !is {
			missing = append(missing, name)
		}
	}
	switch {
	case !f.on:
		return nil
	case others:
		return errors.New("--http excludes --hash, --position and --tenant")
	case len(missing) > 0:
		slices.Sort(missing)
		return fmt.Errorf("--http lacks %s: the database has only a hash of the secret, the principal, the method, the target and the key",
			strings.Join(missing, ", "))
	}
	return nil
}

// keys returns the names that the request may have in the database: one for each form of each secret.
func (f *httpFlags) keys(consumer, id string) (keys []dedup.Key, err error) {
	clients, err := httpkey.Parse(strings.Trim(id, " \t"), false)
	if err != nil {
		return nil, Usage(fmt.Errorf("KEY %q: %w", id, err))
	}
	request := httpkey.Identity{
		Name: consumer, Principal: f.principal, Method: strings.ToUpper(f.method), Target: httpkey.Target(f.target),
		Key: clients,
	}
	for _, file := range f.secretFiles {
		secrets, err := readSecret(file)
		if err != nil {
			return nil, Usage(fmt.Errorf("--secret-file: %w", err))
		}
		for _, secret := range secrets {
			keys = append(keys, dedup.Key{Consumer: consumer, ID: request.Under(secret)})
		}
	}
	return keys, nil
}

// minSecret is httpidem.MinSecret.
const minSecret = 32

// readSecret returns what the text of a file may mean: programs decode it, or take it as it is.
func readSecret(file string) (secrets [][]byte, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	add := func(b []byte, err error) {
		if err == nil && len(b) >= minSecret && !slices.ContainsFunc(secrets, func(s []byte) bool { return bytes.Equal(s, b) }) {
			secrets = append(secrets, b)
		}
	}
	add(raw, nil)
	text := bytes.TrimRight(raw, "\r\n")
	add(text, nil)
	add(hex.DecodeString(string(text)))
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		add(encoding.DecodeString(string(text)))
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%s has %d bytes: a secret has %d or more", file, len(raw), minSecret)
	}
	return secrets, nil
}

// explainKey explains the key that the arguments name, or the first of those that they may mean and that is known.
func (a *app) explainKey(ctx context.Context, db *Database, f explainFlags, key dedup.Key, opts ops.ExplainOptions) (
	e ops.Explanation, err error,
) {
	keys := []dedup.Key{key}
	if f.http.on {
		if keys, err = f.http.keys(key.Consumer, key.ID); err != nil {
			return e, err
		}
	}
	for _, k := range keys {
		limited, cancel := a.limit(ctx)
		e, err = ops.Explain(limited, db.Store.Operator(), k, opts)
		if err == nil && f.tenant == "" && !f.http.on {
			e, err = withTenant(limited, db, e, opts)
		}
		cancel()
		if err != nil || !isUnknown(e) {
			break
		}
	}
	switch {
	case errors.Is(err, ops.ErrHTTPKey):
		return e, refused("consumer %q is a Guard of httpidem, and the database has only hashes of its keys: add --http --secret-file FILE --principal P --method POST --target /PATH, "+
			"or give as KEY the 64 digits that the log of httpidem.LogDecisions or a span shows", key.Consumer)
	case err == nil && f.http.on && !e.HTTP:
		return e, a.notHTTP(ctx, db, key.Consumer)
	case err == nil && e.NoTenant && !f.noTenant:
		return e, refused("consumer %q receives webhooks, whose keys have a tenant: add it, such as --tenant stripe/live, or write TENANT/KEY; docs/webhooks.md lists the tenants. "+
			"For a Verifier without tenants add --tenant \"\"", key.Consumer)
	}
	return e, err
}

// notHTTP refuses --http for a consumer that is no Guard.
func (a *app) notHTTP(ctx context.Context, db *Database, name string) error {
	limited, cancel := a.limit(ctx)
	defer cancel()
	known, err := db.Store.Operator().Keys().Consumers(limited)
	if err != nil {
		return err
	}
	from := "it has answered no request yet"
	for _, c := range known {
		if c.Name == name && len(c.Sources) > 0 {
			from = "its messages come from " + Harmless(c.Sources[0].Name)
		}
	}
	return refused("--http: consumer %q is not known as a Guard of httpidem: %s. For a message leave --http and its flags out; for a request give the Guard's Config.Name as CONSUMER", name, from)
}

// storedResponse returns what is stored for repeats of an HTTP request.
func storedResponse(e ops.Explanation) (r httpkey.Response, ok bool) {
	if !e.HTTP {
		return r, false
	}
	return httpkey.ReadResponse(e.Claim.Result)
}
