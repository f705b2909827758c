package httpidem

import (
	"net/http"
	"slices"
)

// RecordStripeV1 is a Config.Record that also stores 500, 501, 502 and 504, as version 1 of Stripe's API does: once a
// handler has begun, its failure is final for the key. Requests that were refused, such as with 400 or 428, can be
// mended and sent again with the same key.
func RecordStripeV1(status int) bool {
	return recordDefault(status) || slices.Contains([]int{500, 501, 502, 504}, status)
}

// RecordStripeV2 is a Config.Record that stores no failures, as version 2 of Stripe's API does: a retry after a failure
// runs again.
func RecordStripeV2(status int) bool { return status < 400 }

// final are the statuses from 400 on that answer the operation itself: no later time, no other headers, no credentials
// and no mended body would change the answer. All others ask for another request or another time, and the same key may
// be used for it. That costs nothing, because the handler's work was rolled back.
var final = []int{http.StatusPaymentRequired, http.StatusGone, http.StatusUnavailableForLegalReasons}

func recordDefault(status int) bool { return status < 400 || slices.Contains(final, status) }

// passing statuses ask the client to try again. They are never stored, even if Config.Record returns true.
var passing = []int{
	http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusServiceUnavailable,
}

// records reports whether the response of work that was rolled back is stored.
func (c *Config[TTx]) records(status int) bool {
	return status >= 400 && !slices.Contains(passing, status) && c.Record(status)
}

// redirects are the statuses that routers use to send a client to the same resource's other path.
var redirects = []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}

// undoes reports whether a status rolls the handler's work back. A router inside Wrap that redirects has done no work.
// Its response is not stored, because after a change of the routes it would be wrong.
func (e *endpoint[TTx]) undoes(status int, worked bool) bool {
	return status >= 400 || e.next != nil && !worked && slices.Contains(redirects, status)
}
