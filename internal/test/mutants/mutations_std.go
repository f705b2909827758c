package main

import "path"

// verifying is a mutation of one of the packages below adapters/webhook that the test of that name in the same package must notice.
func verifying(pkg, name, file, test string, edits ...edit) mutation {
	dir := "adapters/webhook/" + pkg
	return mutation{name: pkg + ": " + name, file: path.Join(dir, file), edits: edits, pkg: dir, run: "^" + test + "$", fails: test, short: true}
}

// stdMutations are of standardhook, githubhook, shopifyhook, slackhook and of the code that they share.
var stdMutations = []mutation{
	verifying("internal/strict", "a truncated signature is not equal", "mac.go", "TestAnyEqual", edit{
		`subtle.ConstantTimeCompare([]byte(w), []byte(g))`,
		`subtle.ConstantTimeCompare([]byte(w)[:min(len(w), len(g))], []byte(g))`,
	}),
	verifying("internal/strict", "a time of the far future is not recent", "time.go", "TestRecent", edit{
		`off.Abs() > tolerance`, `max(off, -off) > tolerance`,
	}),
	verifying("internal/strict", "a signed time is not from the future", "time.go", "TestRecent", edit{
		`off.Abs() > tolerance`, `off > tolerance`,
	}),
	verifying("internal/strict", "two JSON members with one name are refused, ignoring case", "json.go", "TestSelect", edit{
		`!strings.EqualFold(m.name, wanted)`, `!(strings.EqualFold(m.name, wanted) && m.name == wanted)`,
	}),
	verifying("internal/strict", "an ID that could be an alias is refused", "id.go", "TestBodyAlias", edit{
		`strings.EqualFold(id[:len(aliasPrefix)], aliasPrefix)`, `false`,
	}),
	verifying("standardhook", "an id with a dot is refused", "verifier.go", "TestAcceptsAndRefuses", edit{
		`strict.Token(headers.id, ".")`, `strict.Token(headers.id, "")`,
	}),
	verifying("standardhook", "webhook-… and svix-… headers must agree", "headers.go", "TestAcceptsAndRefuses", edit{
		`case len(found) == 2 && found[0] != found[1]:`, `case false:`,
	}),
	verifying("standardhook", "a signed time out of the tolerance is refused", "verifier.go", "TestAcceptsAndRefuses", edit{
		`strict.Recent(attempt, d.Time, v.cfg.Tolerance); err != nil`, `strict.Recent(attempt, d.Time, v.cfg.Tolerance); false`,
	}),
	verifying("standardhook", "whsec_ alone is no secret", "config.go", "TestConfig", edit{
		`case len(key) < minSecret:`, `case false:`,
	}, edit{`case encoded == "":`, `case false:`}, edit{`if err := strict.Key(key, minSecret); err != nil {`, `if err := error(nil); err != nil {`}),
	verifying("githubhook", "a captured body with a new id is a suspected replay", "../internal/bodymac/bodymac.go", "TestDeduplication", edit{
		`Aliases:     []string{alias},`, ``,
	}),
	verifying("githubhook", "another body under a known id is not dropped", "../internal/bodymac/bodymac.go", "TestDeduplication", edit{
		`fingerprint := dedup.FingerprintOf([]byte(alias + unsigned))`, `fingerprint := dedup.Fingerprint{}`,
	}),
	verifying("githubhook", "a delivery of another topic is refused", "verifier.go", "TestRefuses", edit{
		`case !v.cfg.TrustTopicHeader && topic != v.cfg.Topic:`, `case false:`,
	}),
	verifying("shopifyhook", "one order under three topics runs three times", "verifier.go", "TestDeduplication", edit{
		`topic+":"+id,`, `id,`,
	}),
	verifying("slackhook", "the challenge is answered only if it is signed", "verifier.go", "TestURLVerification", edit{
		`"the app's signing secret"); err != nil`,
		`"the app's signing secret"); err != nil && !bytes.Contains(d.Body, []byte("challenge"))`,
	}, edit{`import (`, "import (\n\t\"bytes\""}),
}
