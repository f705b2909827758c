// Package twiliohook receives the webhooks of Twilio, such as the status of messages and calls, and incoming messages.
//
// # Use
//
//	twilio, err := twiliohook.New(twiliohook.Config{AuthTokens: []string{os.Getenv("TWILIO_AUTH_TOKEN")}})
//	…
//	receiver, err := webhook.New(webhook.Config{Verifier: twilio, PublicURL: "https://hooks.example.com", …})
//
// Twilio signs the URL that it was given, so webhook.Config.PublicURL is needed: the scheme and host of that URL. A
// Verifier answers a delivery without a URL with an error, which becomes a 503 and a line in the log.
//
// Twilio signs no time. So the age of an event is unknown, and its events must be stored and forwarded
// (webhook.NewInbox): a handler that fails in place could not know which attempt is the last. By default Twilio makes
// one more attempt, and only if the connection failed; see its connection overrides. A copy of a request that somebody
// captured has a valid signature for ever, therefore keys should be remembered for 400 days: that is Source.Horizon.
//
// The response is 204 by default, which Twilio takes for "nothing to say". A webhook that must answer with TwiML that
// depends on the request cannot be received this way.
//
// # How it works
//
// The signature, an HMAC-SHA1 with the auth token, is of the URL followed by the names and values of all form
// parameters, sorted by name. The values of a repeated parameter are sorted too, and equal ones count once. Twilio
// signs the URL with or without its port, so both are tried. A consumer.Message has these parts:
//
//   - ID is the MessageSid or CallSid and the status, such as "SM…:delivered"; see Config.Identify. Tenant is "twilio".
//   - Topic is "message.delivered" or "call.completed", for example.
//   - Payload is the form, encoded with its parameters sorted (read it with url.ParseQuery).
//   - The header "twilio-url" is the URL that was signed, with its query. Trust the query only as far as the form
//     below.
//   - Fingerprint is of the Payload without RawDlrDoneDate and ApiVersion, which may differ between two reports of one
//     status: the second report is a duplicate. A second request with the same ID that differs in another parameter is
//     parked as a mismatch. A JSON body's Fingerprint is of its whole Payload.
//   - Aliases has the hash of the signed text. Twilio puts no separators between names and values, so one signature
//     fits several forms, such as MessageSid=SM1 with To=2, and MessageSid=SM1To2. A form that was divided anew has the
//     same signed text: it is parked as a known content if its ID is new, and as a mismatch if not. That needs the
//     genuine request to have come first. Somebody who sends a captured request earlier can move parameters between the
//     form and the end of the URL's query, so that "twilio-url" has a text that Twilio did not write there, and the
//     genuine request is parked. So do not act on a query that Twilio was not given.
//
// Requests with a JSON body have the SHA-256 of the body in the URL, as bodySHA256. An endpoint that expects them sets
// Config.IdentifyJSON, and accepts no forms. No endpoint accepts both, because the text that is signed for a form could
// be read as a URL with another body.
//
// # What a crash does
//
// A Verifier has no state. A crash before the inbox's COMMIT leaves the request without a 2xx. Whether Twilio repeats
// it depends on the connection overrides of the webhook's URL.
package twiliohook
