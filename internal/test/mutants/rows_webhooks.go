package main

var webhookRows = []row{
	{
		promise: "A webhook that waited too long for room in memory gets 503, and the sender is not called slow.",
		in:      "adapters/webhook.(*share).take",
		body: `err := s.takeOriginal(ctx, n)
		s.waited = 0
		return err`,
		fails: "TestSlowSendersHoldNoBudget in adapters/webhook",
	},
	{
		promise: "A request that its verifier refuses is not handled.",
		in:      "adapters/webhook.RefusalOf",
		body:    "return \"\"",
		fails:   "TestRequestsThatAreRefused in adapters/webhook",
	},
	{
		promise: "An event is acknowledged only when it is committed or parked.",
		in:      "adapters/webhook.(*Receiver).answer",
		body:    `return r.answerOriginal(reply, make([]error, len(errs)))`,
		fails:   "TestAnswers in adapters/webhook",
	},
	{
		promise: "The response comes before the sender's deadline.",
		in:      "adapters/webhook.(Source).answerWithin",
		body:    `return 24 * time.Hour`,
		fails:   "TestTheSendersDeadline in adapters/webhook",
	},
	{
		promise: "Work that is claimed is finished although the sender hangs up.",
		in:      "adapters/webhook.(*work).claimed",
		body:    `return`,
		fails:   "TestTheClientHangsUp in adapters/webhook",
	},
	{
		promise: "A failing event is parked before its sender gives up, but not for an outage while the sender goes on.",
		in:      "adapters/webhook.(*Receiver).message",
		body: `msg := r.messageOriginal(e)
		msg.GiveUpAt = time.Time{}
		return msg`,
		fails: "TestOutageOfTenMinutes in adapters/webhook",
	},
	{
		promise: "A window that is shorter than the sender's retries is refused.",
		in:      "adapters/webhook.New",
		body: `cfg.AcceptedRisks = append(cfg.AcceptedRisks, RiskShortWindow)
		return newOriginal(cfg)`,
		fails: "TestNewRefusesSettings in adapters/webhook",
	},
	{
		promise: "A body is bounded before it is read.",
		in:      "adapters/webhook.(Config).largest",
		body:    `return 1 << 40`,
		fails:   "TestRequestsThatAreRefused in adapters/webhook",
	},
	{
		promise: "Known content under a new, unsigned ID is parked for a person, and not handled.",
		in:      "consumer.aliasRecords",
		body:    `return nil, nil`,
		fails:   "TestKnownContent in adapters/webhook",
	},
	{
		promise: "An inbox forwards an event with all that its consumer needs to recognise it.",
		in:      "adapters/webhook.restored",
		body: `msg := restoredOriginal(m)
		msg.Aliases, msg.Fingerprint = nil, nil
		return msg`,
		fails: "TestWhatIsForwarded in adapters/webhook",
	},
	{
		promise: "An event leaves the inbox only when its effect is committed.",
		in:      "adapters/webhook.(*Worker).Publish",
		body: `go w.publishOriginal(context.WithoutCancel(ctx), msgs)
		return make([]error, len(msgs))`,
		fails: "TestWorkerAnswersAfterTheProcessor in adapters/webhook",
	},
	{
		promise: "A signed time that is too old, or in the future, is refused.",
		in:      "adapters/webhook/internal/strict.Recent",
		body:    `return nil`,
		fails:   "TestTime in adapters/webhook/stripehook",
	},
	{
		promise: "Stripe: an altered body is refused.",
		in:      "adapters/webhook/stripehook.(signers).none",
		body:    `return false`,
		fails:   "TestBodyIsSigned in adapters/webhook/stripehook",
	},
	{
		promise: "Stripe: a thin event, its snapshot event and a backfill have one effect.",
		in:      "adapters/webhook/stripehook.(Event).LogicalID",
		body:    `return e.ID`,
		fails:   "TestThinSnapshotAndBackfillHaveOneEffect in adapters/webhook/stripehook",
	},
	{
		promise: "Stripe: a backfill's checkpoint does not pass an event that was not handled.",
		in:      "adapters/webhook/stripehook.isRejected",
		body:    `return false`,
		fails:   "TestRejectedEventsHoldTheCheckpoint in adapters/webhook/stripehook",
	},
	{
		promise: "Stripe and App Store: a backfill fetches again what the database lost during its pass.",
		in:      "adapters/webhook.(*Checkpoint).lost",
		body:    `return false`,
		fails:   "TestBackfillClosesTheGapOfALossDuringAPass in adapters/webhook/applehook",
	},
	{
		promise: "App Store: the signature covers the notification.",
		in:      "adapters/webhook/applehook.(*jws).signedBy",
		body:    `return nil`,
		fails:   "TestVerifyJWS in adapters/webhook/applehook",
	},
	{
		promise: "App Store: a notification must lead to a configured root by certificates of Apple.",
		in:      "adapters/webhook/applehook.(*Verifier).buildChain",
		body:    `return []*x509.Certificate{leaf, intermediate, intermediate}, nil`,
		fails:   "TestVerifyChain in adapters/webhook/applehook",
	},
	{
		promise: "GitHub and Shopify: a captured body under a new, unsigned ID is recognised.",
		in:      "adapters/webhook/internal/bodymac.Message",
		body: `msg := messageOriginal(source, endpoint, id, topic, payload, unsigned)
		msg.Aliases, msg.Fingerprint = nil, nil
		return msg`,
		fails: "TestDeduplication in adapters/webhook/githubhook",
	},
	{
		promise: "GitHub and Shopify: an unsigned body is refused.",
		in:      "adapters/webhook/internal/bodymac.Authenticate",
		body:    `return nil`,
		fails:   "TestRefuses in adapters/webhook/githubhook",
	},
	{
		promise: "Slack: the challenge is answered only if it is signed.",
		in:      "adapters/webhook/internal/bodymac.Authenticate",
		body:    `return nil`,
		fails:   "TestURLVerification in adapters/webhook/slackhook",
	},
	{
		promise: "SNS: messages of other topics are refused before anything is fetched.",
		in:      "adapters/webhook/snshook.(*Verifier).checkClaims",
		body:    `return nil`,
		fails:   "TestVerifyRefuses in adapters/webhook/snshook",
	},
	{
		promise: "Twilio: a URL or body that was not signed is refused.",
		in:      "adapters/webhook/twiliohook.(*Verifier).signed",
		body:    `return true`,
		fails:   "TestJSON in adapters/webhook/twiliohook",
	},
	{
		promise: "Standard Webhooks: an altered body, ID or time is refused.",
		in:      "adapters/webhook/standardhook.(*Verifier).authentic",
		body:    `return true`,
		fails:   "TestAcceptsAndRefuses in adapters/webhook/standardhook",
	},
	{
		promise: "HMAC: no bytes can be moved between the parts of a signed text.",
		in:      "adapters/webhook/internal/strict.IsContainer",
		body:    `return true`,
		fails:   "TestCase55Framing in adapters/webhook/hmachook",
	},
}
