// Package slackhook verifies requests of Slack's Events API.
//
// # Use
//
// Copy the signing secret of the app, which is under Basic Information in its settings:
//
//	verifier, err := slackhook.New(slackhook.Config{Secrets: []string{os.Getenv("SLACK_SIGNING_SECRET")}})
//
// and give the Verifier to the receiver of package webhook. Slack waits for only three seconds, so a handler that may
// need longer belongs behind webhook.NewInbox. Tests make signed requests with [Sign].
//
// # How it works
//
// Slack signs the time of the attempt and the body, with HMAC-SHA256, in the headers X-Slack-Signature and
// X-Slack-Request-Timestamp. The signed time must be within five minutes of the time of receipt, in both directions.
//
// The ID of an event is in the signed body. It is the same when Slack sends the event again: at once, after one minute
// and after five minutes. The header X-Slack-Retry-Num of such an attempt is not used: it is not signed, and does not
// show whether the first attempt succeeded.
//
//	Message.ID      event_id
//	Message.Tenant  "slack/" and api_app_id
//	Message.Topic   the type of the inner event, such as "app_mention"
//	Message.Time    event_time
//
// The fingerprint is that of the type and the team.
//
// Slack checks a new URL with a request of type url_verification. It is answered with the challenge, but only if its
// signature is right. The notice app_rate_limited is logged and does not reach the handler, because it is not an event
// and has no ID.
//
// Slash commands, shortcuts, buttons and dialogs are refused. Slack sends them once, without an ID of an event, and a
// person waits for an answer that the handler writes. There is nothing to deduplicate: give them a URL of their own and
// a plain HTTP handler.
//
// # What a crash does
//
// A Verifier has no state. Slack repeats an event that was not answered, three times within about six minutes. An
// outage that is longer loses events, unless the app has Delayed Events switched on: then Slack repeats them each hour
// for a day.
package slackhook
