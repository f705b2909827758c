package main

import "path"

// ofApple is a mutation of applehook that needs no servers.
func ofApple(name, file, test string, edits ...edit) mutation {
	const pkg = "adapters/webhook/applehook"
	return mutation{name: "applehook: " + name, file: path.Join(pkg, file), edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var applehookMutations = []mutation{
	ofApple("no key of a forged certificate costs more than a small one", "chain.go", "TestForgedChainIsCheap", edit{
		`case !smallKey(intermediate):`, `case !smallKey(leaf):`,
	}),
	ofApple("the key of a forged intermediate is not used", "chain.go", "TestForgedChainIsCheap", edit{
		`if _, err := intermediate.Verify(options); err != nil {`, `if _, err := intermediate.Verify(options); err != nil && false {`,
	}),
	ofApple("no delivery waits for an OCSP responder beyond its deadline", "../internal/fetch/fetch.go", "TestOCSPCache", edit{
		`case <-ctx.Done():`, `case <-context.WithoutCancel(ctx).Done():`,
	}),
	ofApple("a responder that hangs is not asked for each delivery", "../internal/fetch/fetch.go", "TestOCSPCache", edit{
		`found && time.Now().Before(f.until) {`, `found && false {`,
	}),
	ofApple("notifications before Since do not run", "backfill_span.go", "TestBackfill", edit{
		`if start.Before(b.cfg.Since) {`, `if false {`,
	}),
	ofApple("a backfill without Since is refused", "backfill_config.go", "TestNewBackfillRefuses", edit{
		`if c.Since.IsZero() {`, `if false {`,
	}),
	ofApple("a notification must lead to a configured root", "chain.go", "TestVerifyChain", edit{
		`		Roots:       v.roots, //`, `		Roots:       x509.NewCertPool(), //`,
	}, edit{
		`if _, err := intermediate.Verify(options); err != nil {`, `if _, err := intermediate.Verify(options); err != nil && false {`,
	}, edit{
		"	if err != nil {\n		return nil, err\n	}\n	for _, chain := range chains {", "	if err != nil {\n		return []*x509.Certificate{leaf, intermediate, intermediate}, nil\n	}\n	for _, chain := range chains {",
	}),
	ofApple("a developer's certificate under Apple's root signs nothing", "chain.go", "TestVerifyChain", edit{
		`	case !marked(leaf, markLeaf):`, `	case false:`,
	}),
	ofApple("the signature covers the notification", "jws.go", "TestVerifyJWS", edit{
		`	if !ecdsa.Verify(key, hash[:], r, s) {`, `	if ecdsa.Verify(key, hash[:], r, s) && false {`,
	}),
	ofApple("the header does not choose the algorithm", "jws.go", "TestVerifyJWS", edit{
		`	case alg != "ES256":`, `	case alg == "":`,
	}),
	ofApple("signed transactions are verified by their own chain", "nested.go", "TestVerifyNested", edit{
		`		o, err := v.open(ctx, name, compact, m)`, `		j, err := parseJWS(compact)
		if err != nil {
			return all, err
		}
		o := opened{raw: j.payload}
		o.members, _ = parseObject(j.payload)`,
	}),
	ofApple("a transaction is of the configured bundle", "nested.go", "TestVerifyNested", edit{
		"func (v *Verifier) checkTransaction(o object, id identity) error {\n	if err := expect(o, \"bundleId\", v.cfg.BundleID); err != nil {",
		"func (v *Verifier) checkTransaction(o object, id identity) error {\n	if err := expect(o, \"bundleId\", v.cfg.BundleID); err != nil && false {",
	}),
	ofApple("a notification for another app is refused", "identity.go", "TestVerifyIdentity", edit{
		`id.environment == Production && id.appAppleID != v.cfg.AppAppleID:`, `id.environment == Production && false:`,
	}),
	ofApple("the certificates are valid at the signed time", "verifier.go", "TestVerifyTime", edit{
		`		validAt = o.at //`, `		_ = o.at //`,
	}),
	ofApple("a remembered chain still expires", "chain.go", "TestVerifyRemembers", edit{
		`if at.Before(cert.NotBefore) || at.After(cert.NotAfter) {`, `if at.Before(cert.NotBefore) {`,
	}),
	ofApple("a chain is remembered for its leaf only", "chain.go", "TestVerifyRemembers", edit{
		`return pair{sha256.Sum256(leaf.Raw), sha256`, `return pair{{}, sha256`,
	}),
	{
		name: "applehook: names that encoding/json confuses are refused", file: "adapters/webhook/internal/strict/unambiguous.go",
		pkg: "adapters/webhook/applehook", short: true, run: "^TestVerifyID$", fails: "TestVerifyID",
		edits: []edit{{`				folded := fold(name)`, `				folded := name + string(rune(len(top.names)))`}},
	},
	ofApple("a responder that is down refuses nothing", "verifier.go", "TestOCSP", edit{
		`			return opened{}, fmt.Errorf("applehook: %s: ask whether its certificates are revoked: %w", name, err)`,
		`			return refuse(webhook.BadSignature, err)`,
	}),
	ofApple("only the issuer's statement counts", "ocsp_response.go", "TestOCSP", edit{
		`b.Signature.RightAlign()) == nil {`, `b.Signature.RightAlign()) != x509.ErrUnsupportedAlgorithm {`,
	}),
	ofApple("dates and certificates do not change the fingerprint", "event.go", "TestVerifyAgain", edit{
		`uuid, kind, subtype, original,`, `string(all.notification.raw), kind, subtype, original,`,
	}),
	ofApple("the checkpoint does not pass a notification that failed", "backfill_span.go", "TestBackfillCheckpoint", edit{
		`			if !ok {
				return`, `			if !ok && false {
				return`,
	}, edit{
		`			if !retry.Uncounted {`, `			if retry == nil {
				continue
			}
			if !retry.Uncounted {`,
	}),
	ofApple("the checkpoint does not pass a notification that does not verify", "backfill_config.go", "TestBackfillCheckpoint", edit{
		`func(err error, _ string) error { return err }`, `func(error, string) error { return nil }`,
	}),
	ofApple("a page that leads to itself ends a pass", "backfill_span.go", "TestBackfillRefused", edit{
		`p.HasMore && seen[p.Token]`, `false`,
	}),
	ofApple("pages that lead to each other end a pass", "backfill_span.go", "TestBackfillRefused", edit{
		`p.HasMore && seen[p.Token]`, `p.HasMore && p.Token == token`,
	}),
	ofApple("Run pauses between two passes", "backfill_config.go", "TestNewBackfillRefuses", edit{
		`c.Interval < minInterval`, `c.Interval < 0`,
	}),
	ofApple("a page follows the one before", "backfill_span.go", "TestBackfillFailures", edit{
		`		if !p.HasMore {`, `		if true {`,
	}),
	ofApple("each pass begins before the checkpoint", "backfill.go", "TestBackfill", edit{
		`through.Add(-b.cfg.Overlap)`, `through`,
	}),
	ofApple("Retry-After is in milliseconds", "history.go", "TestBackfillFailures", edit{
		`		case n >= millis:`, `		case n < 0:`,
	}),
}
