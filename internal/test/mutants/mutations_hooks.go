package main

import "path"

// hook is a mutation of a webhook verifier, or of what several verifiers share, that the test of that name must notice.
func hook(name, pkg, file, test string, edits ...edit) mutation {
	pkg = "adapters/webhook/" + pkg
	return mutation{name: "webhook: " + name, file: path.Join(pkg, file), edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var hookMutations = []mutation{
	hook("SNS messages of other topics are refused, before anything is fetched", "snshook", "message.go", "TestVerifyRefuses", edit{
		`!slices.Contains(v.cfg.TopicArns, arn)`, `false`,
	}),
	hook("SNS's largest message is accepted by default", "snshook", "verifier.go", "TestLargestMessage", edit{
		`, MaxBody: maxBody`, ``,
	}),
	hook("a message that SNS has signed is not refused for this machine's slow clock", "snshook", "verifier.go", "TestCase48Time", edit{
		`return m, fmt.Errorf("snshook: Timestamp`, `return m, webhook.Refuse(webhook.BadTime, "Timestamp`,
	}),
	hook("a verifier for SNS without topics is refused", "snshook", "config.go", "TestConfig", edit{
		`if len(c.TopicArns) == 0 {`, `if false {`,
	}),
	hook("certificates of SNS come from SNS only", "snshook", "message.go", "TestCertificateURL", edit{
		`!certificateURL.MatchString(m.certificate)`, `false`,
	}),
	hook("the text that SNS signs can be divided into fields in one way only", "snshook", "message.go", "TestCase55Framing", edit{
		`case name != "Message" && strings.ContainsFunc(value, unicode.IsControl):`, `case name != "Message" && strings.ContainsFunc(value, unicode.IsControl) && false:`,
	}),
	hook("a certificate is not fetched from where a redirect leads", "snshook", "certificates.go", "TestFetchFails", edit{
		`			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },`, ``,
	}),
	hook("many requests that need a certificate fetch it once", "snshook", "../internal/fetch/fetch.go", "TestFetchOnce", edit{
		`if q := s.running[key]; q != nil {`, `if q := s.running[key]; q != nil && false {`,
	}),
	hook("no delivery waits for a certificate beyond its deadline", "snshook", "../internal/fetch/fetch.go", "TestFetchTimesOut", edit{
		`case <-ctx.Done():`, `case <-context.WithoutCancel(ctx).Done():`,
	}),
	hook("forged messages cause few fetches of certificates", "snshook", "certificates.go", "TestFetchesAreLimited", edit{
		`!c.bucket.Take()`, `!c.bucket.Take() && false`,
	}),
	hook("a subscription is confirmed at SNS only", "snshook", "confirm.go", "TestSubscribeURL", edit{
		`if err := checkSubscribeURL(m.fields); err != nil {`, `if err := checkSubscribeURL(m.fields); err != nil && false {`,
	}),
	hook("a captured form of Twilio that was divided anew is parked", "twiliohook", "verifier.go", "TestConsumer", edit{
		`event.Message.Aliases = []string{strict.BodyAlias("twilio", "", "", append([]byte(targets[0]), text...))}`, ``,
	}),
	hook("a JSON body of Twilio has the hash that was signed", "twiliohook", "verifier.go", "TestJSON", edit{
		`if query[bodySHA256][0] != hex.EncodeToString(sum[:]) {`, `if false && query[bodySHA256][0] != hex.EncodeToString(sum[:]) {`,
	}),
	hook("a timestamp from the future is refused", "hmachook", "verifier.go", "TestCase48Tolerance", edit{
		`strict.Recent(sent, d.Time, p.cfg.Tolerance); err != nil`, `strict.Recent(sent, d.Time, p.cfg.Tolerance); err != nil && d.Time.After(sent)`,
	}),
	hook("no bytes can be moved between the parts of a signed text", "hmachook", "verifier.go", "TestCase55Framing", edit{
		`if p.signed.container && `, `if false && `,
	}),
	hook("a known body with a new unsigned id is parked", "hmachook", "events.go", "TestConsumer", edit{
		`m.Aliases = []string{alias}`, `m.Aliases = nil`,
	}),
	hook("a captured body with the unsigned id of another event does not make that event a duplicate", "hmachook", "events.go", "TestConsumer", edit{
		`*m.Fingerprint = dedup.FingerprintOf([]byte(alias))`, ``,
	}),
	hook("events of two topics with one unsigned id are two events", "hmachook", "events.go", "TestConsumer", edit{
		`id = escape.Replace(id) + ":" + topic`, `id = escape.Replace(id)`,
	}),
	hook("the number 1 and the text 1 are different IDs", "hmachook", "events.go", "TestScalarIDs", edit{
		"s = `\"` + s + `\"`", `_ = isString`,
	}),
	hook("a name that occurs twice on the path to an id is refused", "internal/strict", "json.go", "TestLookup", edit{
		`if found != "" {`, `if false {`,
	}),
}
